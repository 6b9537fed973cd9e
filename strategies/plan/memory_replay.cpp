#include "strategies/plan/memory_replay.hpp"

#include "strategies/plan/memory_tracker.hpp"
#include "strategies/plan/stage_layers.hpp"
#include "strategies/plan/step.hpp"

#include <array>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>

namespace partita {

namespace {

/// Replays the operations of a rank's step. A buffer is only a number of bytes. Two names for one tensor share a
/// buffer.
class Replay {
 public:
  /// `sizes` as in MemoryTracker.
  Replay(const StepProgram& program, int rank, const MemoryUse& held, const MessageMemory& messages, bool sizes)
      : plan_(program.plan()),
        messages_(messages),
        stage_(plan_.stage_of_rank(rank)),
        rank_(plan_.rank_in_stage(rank)),
        program_(program),
        stage_layers_(program_.stage_layers()),
        master_(size_of(master_dtype(plan_.workload.dtype))),
        memory_(sizes),
        microbatches_(static_cast<std::size_t>(plan_.microbatches)),
        sums_(plan_.buckets.size()) {
    for (std::size_t i = 0; i < memory_classes; ++i) memory_.take(static_cast<MemoryClass>(i), held.bytes[i]);
  }

  /// `all`: also the actions that repeat others.
  const MemoryTracker& run(bool all) {
    const RepeatedActions repeated = all ? RepeatedActions{} : program_.repeated();
    int skipped = 0;  // microbatches
    const Buffer results = numbers(MemoryClass::workspace, plan_.target().results() * plan_.microbatches + 2);
    const auto& actions = program_.actions();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (i == repeated.first && repeated.count > 0) {
        i += repeated.count;
        skipped = repeated.microbatches;
      }
      action_ = actions[i];
      layers_ = &plan_.layers_of(action_.microbatch);
      m_ = &microbatches_[action_.microbatch < skipped ? 0 : action_.microbatch - skipped];
      if (m_->tensors.empty()) m_->tensors.resize(stage_layers_.count());
      for (const StepOp& op : program_.ops(i)) replay(op);
    }
    return memory_;
  }

 private:
  using Buffer = MemoryTracker::Buffer;
  using Packs = std::array<Buffer, 2>;  // buffers of messages: those that leave, and those that arrive

  /// A redistribution under way.
  struct Traveling {
    Buffer from, packed, to;
  };
  /// The tensors of one layer for one microbatch.
  struct LayerTensors {
    Buffer output, gradient, dy;
    std::vector<Buffer> kept, work;  // held for backward; held for one pass, until release_work
    Buffer y;                        // the output before its redistribution
    Packs dy_halo;                   // while it travels
    std::vector<Buffer> parts;       // this microbatch's gradients of weights, until they are scattered
    std::deque<std::vector<Traveling>> gathering;
    std::vector<Buffer> gathered;
    std::vector<Traveling> scattering;
  };
  struct Microbatch {
    std::vector<Buffer> images;  // by input
    Buffer target;
    std::vector<LayerTensors> tensors;  // of the layers that the stage runs or reads
    std::vector<Buffer> sent;           // and the buffers of these messages
    std::vector<Packs> arriving;
    struct Gradient {
      int layer;
      Buffer tensor;
      Packs packs;
    };
    std::vector<Gradient> arriving_gradients;
  };

  const LayerPlan& layer(int i) const { return (*layers_)[i]; }
  LayerTensors& at(int i) { return m_->tensors[stage_layers_.number(static_cast<std::size_t>(i))]; }
  const StageBoundary& boundary(const StepOp& op) const { return layer(op.layer).sends_to_stages[op.part]; }
  int producer(const StepOp& op) const { return layer(op.layer).inputs[op.part]; }

  void replay(const StepOp& op) {
    using enum StepOp::Kind;
    element_ = size_of(moved_type(plan_, op));
    const auto part = static_cast<std::size_t>(op.part);
    switch (op.kind) {
      case read_batch: return read();
      case redistribute_input:
        return at(op.layer).work.push_back(
            convert_layout(at(producer(op)).output, layer(op.layer)->redistribute_input[part]));
      case forward: return run_forward(op.layer);
      case redistribute_output: {
        LayerTensors& tensors = at(op.layer);
        tensors.output = convert_layout(tensors.y, layer(op.layer)->redistribute_output);
        return;
      }
      case redistribute_dy: {
        LayerTensors& tensors = at(op.layer);
        tensors.dy = convert_layout(tensors.gradient, layer(op.layer)->redistribute_dy);
        tensors.gradient = {};
        return;
      }
      case start_backward: return run_start_backward(op.layer);
      case backward_filter: return run_backward_filter(op.layer);
      case backward_data: return run_backward_data(op.layer);
      case gather_weights: return start_gathering(op.layer);
      case wait_weights: return finish_gathering(at(op.layer));
      case release_weights: at(op.layer).gathered.clear(); return;
      case scatter_gradients: return start_scattering(op.layer);
      case add_gradients: at(op.layer).scattering.clear(); return;
      case redistribute_dx: return add_gradient(op, part);

      case release_work: at(op.layer).work.clear(), at(op.layer).y = {}; return;
      case release_dy: at(op.layer).dy = {}; return;
      case release_kept: at(op.layer).kept.clear(); return;
      case release_output: at(op.layer).output = {}; return;
      case release_layer: at(op.layer) = {}; return;
      case release_images: m_->images[layer(op.layer).input] = {}; return;
      case release_target: m_->target = {}; return;
      case release_previous:
        if (action_.microbatch > 0) *(m_ - 1) = {};
        return;

      case send_output:
        m_->sent.push_back(convert_layout(at(op.layer).output, boundary(op).complete_sums));
        for (const Buffer& packs : cross(boundary(op), false)) m_->sent.push_back(packs);
        return;
      case receive_input:
        at(op.layer).output = hold(MemoryClass::activations, volume(boundary(op).to) * element_);
        return m_->arriving.push_back(cross(boundary(op), false));
      case wait_inputs: m_->arriving.clear(); return;
      case send_gradient:
        leaving_.push_back(std::exchange(at(op.layer).gradient, {}));
        for (const Buffer& packs : cross(boundary(op), true)) leaving_.push_back(packs);
        return;
      case receive_gradient: {
        const Buffer tensor = hold(MemoryClass::activations, volume(boundary(op).from) * element_);
        return m_->arriving_gradients.push_back({op.layer, tensor, cross(boundary(op), true)});
      }
      case wait_gradients: return finish_transfers();
      case wait_sent_gradients: leaving_.clear(); return;

      case sum_gradients:
        for (const Bucket& bucket : completed_by(plan_.buckets, op.layer)) start_sum(number(bucket));
        return;
      case sum_zero_gradients:
        for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
          if (group_of(plan_.buckets[b]) == action_.group) start_sum(b);
        return;
      case finish_sums: kept_.clear(); return;
      case update: return apply_update();

      case clear_statistics:
      case add_replicas:
      case add_copies:
      case progress:
      case finish_outputs:
      case share_loss: return;  // these neither allocate nor free
    }
  }

  /// Adds the gradient of an input to that from other readers: in its memory, unless somebody else holds it, as an
  /// addition forwards one gradient to both its inputs.
  void add_gradient(const StepOp& op, std::size_t part) {
    const auto& steps = layer(op.layer)->redistribute_dx[part];
    const Buffer gradient = convert_layout(at(op.layer).work[part], steps);
    Buffer& sum = at(producer(op)).gradient;
    if (!sum)
      sum = gradient;
    else if (sum.use_count() > 1)
      sum = hold(MemoryClass::activations,
                 volume(steps.empty() ? layer(op.layer)->at.dx[part] : steps.back().to) * element_);
  }

  void finish_transfers() {
    m_->sent.clear();
    leaving_.clear();
    for (auto& [layer, gradient, packs] : m_->arriving_gradients)
      at(layer).gradient = gradient;  // what was there is added to it
    m_->arriving_gradients.clear();
  }

  bool here(int i) const { return plan_.stage_of(i, action_.replica) == stage_; }
  void read() {
    const auto& loss = layers_->back();
    const Target target = loss.op->target(loss->input_shapes[0]);
    for (int i = 0; i < static_cast<int>(layers_->size()); ++i)
      if (const LayerPlan& input = layer(i); input.input >= 0)
        m_->images.push_back(here(i) ? hold(MemoryClass::activations,
                                            volume(input->y) * size_of(input.op->output_type(plan_.workload.dtype)))
                                     : Buffer());
    if (here(static_cast<int>(layers_->size()) - 1))
      m_->target = hold(MemoryClass::activations, loss->at.x[0].onto(target.shape).elements(rank_) *
                                                      (target.labels ? size_of(DType::i32) : element_));
  }

  Buffer hold(MemoryClass memory, Index bytes) { return memory_.hold(memory, bytes); }
  Buffer numbers(MemoryClass memory, Index count) { return hold(memory, count * size_of(DType::f64)); }
  HeldNumbers numbers_of(const LayerPlan& layer) const {
    return layer.inputs.empty() ? HeldNumbers{} : layer.op->numbers(layer->at.x[0], rank_, plan_.workload.training);
  }
  Index volume(const Layout& layout) const { return layout.elements(rank_); }
  Index workspace(const ProductPlan& product) {
    const auto [known, fresh] = workspaces_.try_emplace(&product);
    if (fresh) known->second = product.workspace(rank_, messages_.packs);
    return known->second;
  }

  Packs pack(const PackedElements& elements) {
    return {hold(MemoryClass::workspace, elements.sent * element_),
            hold(MemoryClass::workspace, elements.received * element_)};
  }
  /// Holds the buffers of messages between stages, on the side of this rank.
  Packs cross(const StageBoundary& boundary, bool back) {
    if (!messages_.packs) return {};
    const int first = plan_.grids[stage_].first_rank();
    const Layout& here = boundary.from.grid().first_rank() == first ? boundary.from : boundary.to;
    const Box own = here.owned(rank_);
    return pack(packed_elements(boundary.transfer(first + rank_, back), here.shape().names(), own, own));
  }
  /// Holds the buffers of a halo's messages. `local` is the layout of the tensor without its halo.
  Packs pack_halo(const Halo& halo, const Layout& local) {
    if (!messages_.packs) return {};
    const Box own = local.owned(rank_);
    return pack(packed_elements(halo.transfer(rank_), local.shape().names(), own, with(halo, own)));
  }
  Packs pack_returned_halo(const Halo& halo, const Layout& local) {
    if (!messages_.packs) return {};
    return pack(packed_by_adjoint(halo.transfer(rank_), local.shape().names(), with(halo, local.owned(rank_))));
  }
  /// The box of a tensor that holds `own` and its halo.
  Box with(const Halo& halo, const Box& own) const {
    const Box needed = halo.needed(rank_);
    return own.contains(needed) ? own : needed;
  }

  /// Holds what a step of a redistribution packs, or receives to unpack.
  Buffer pack_blocks(const RedistributionStep& step) {
    const Index elements = packed_blocks(step, rank_);
    return elements > 0 ? hold(MemoryClass::workspace, elements * element_) : Buffer();
  }

  Buffer convert_layout(const Buffer& from, std::span<const RedistributionStep> steps,
                        MemoryClass memory = MemoryClass::activations) {
    Buffer now = from;
    for (const auto& step : steps) {
      const Buffer next = hold(memory, volume(step.to) * element_);
      const Buffer packed = pack_blocks(step);
      const Packs packs = messages_.packs && step.verb == Verb::exchange ? pack(packed_elements(step, rank_)) : Packs();
      now = next;
    }
    return now;
  }

  /// Begins a redistribution whose last step travels; `from` is held until it ends.
  Traveling start(Buffer from, std::span<const RedistributionStep> steps, MemoryClass memory) {
    Traveling traveling{convert_layout(std::move(from), steps.first(steps.size() - 1), memory), {}, {}};
    traveling.to = hold(memory, volume(steps.back().to) * element_);
    traveling.packed = pack_blocks(steps.back());
    return traveling;
  }

  void start_gathering(int i) {
    auto& gathering = at(i).gathering.emplace_back();
    for (const auto& rest : layer(i)->rest)
      if (!rest.gather.empty()) gathering.push_back(start({}, rest.gather, MemoryClass::weights));
  }

  static void finish_gathering(LayerTensors& tensors) {
    for (Traveling& each : tensors.gathering.front()) {
      tensors.gathered.push_back(each.to);
      each = {};
    }
    tensors.gathering.pop_front();
  }

  /// Converts the gradients of a microbatch to the master type, one by one, and begins to scatter them.
  void start_scattering(int i) {
    auto parts = std::exchange(at(i).parts, {});
    auto part = parts.begin();
    element_ = master_;
    for (std::size_t w = 0; w < layer(i)->weights.size(); ++w) {
      if (!layer(i)->weights[w].trained) continue;
      Buffer whole = std::exchange(*part++, {});
      const auto& scatter = layer(i)->rest[w].scatter;
      if (scatter.empty()) continue;
      if (master_ != size_of(plan_.workload.dtype))
        whole = hold(MemoryClass::workspace, volume(layer(i)->at.w[w]) * master_);
      at(i).scattering.push_back(start(std::move(whole), scatter, MemoryClass::workspace));
    }
  }

  /// Returns the extended copy into which a halo is received; empty if `local` holds everything that is needed.
  Buffer extended(const std::optional<Halo>& halo, const Layout& local) {
    if (!halo) return {};
    const Box needed = halo->needed(rank_);
    return local.owned(rank_).contains(needed) ? Buffer() : hold(MemoryClass::halos, needed.volume() * element_);
  }

  /// Holds the most that a product needs beside its operands and its result.
  void multiply(const LayerPlan& layer, std::size_t which) {
    if (which < layer->at.products.size())
      hold(MemoryClass::workspace, workspace(layer->at.products[which]) * element_);
  }

  /// Holds the most that a rank holds of what travels around a ring, beside results in the type of sums.
  void pass_around(const LayerPlan& layer, bool back) {
    if (!layer->at.ring) return;
    const Ring& ring = *layer->at.ring;
    const auto [known, fresh] = (back ? back_rings_ : rings_).try_emplace(&ring);
    if (fresh) {
      const auto steps = ring.steps(rank_);
      const bool adds = back ? steps.size() > 1 : adds_results(steps);
      const Index sums = adds && element_ != master_ ? volume(back ? layer->at.dx[0] : layer->at.y) * master_ : 0;
      known->second = sums + ring.workspace(rank_, back, element_, master_, messages_.packs);
    }
    hold(MemoryClass::workspace, known->second);
  }

  void run_forward(int i) {
    const LayerPlan& layer = this->layer(i);
    const Kept keeps = layer.keeps();
    LayerTensors& tensors = at(i);
    tensors.y = layer.inputs.empty() ? m_->images[layer.input]
                : layer.in_place     ? tensors.work.front()
                                     : hold(MemoryClass::activations, volume(layer->at.y) * element_);
    if (keeps.z) tensors.kept.push_back(hold(MemoryClass::activations, volume(layer->at.y) * element_));
    if (keeps.more > 0) tensors.kept.push_back(hold(MemoryClass::activations, volume(layer->at.y) * keeps.more));
    multiply(layer, 0);
    // The copy with the halo is freed at the end of the forward unless the layer keeps x.
    const Buffer with_halo = layer.inputs.empty() ? Buffer() : extended(layer->at.x_halo, layer->at.x[0]);
    if (layer->at.x_halo) static_cast<void>(pack_halo(*layer->at.x_halo, layer->at.x[0]));
    if (messages_.ahead && layer->at.x_halo)
      hold(MemoryClass::workspace, layer.op->held_ahead(layer->at, rank_) * element_);
    if (keeps.x && with_halo) tensors.kept.push_back(with_halo);
    if (keeps.x && !with_halo) tensors.kept.insert(tensors.kept.end(), tensors.work.begin(), tensors.work.end());
    if (keeps.y) tensors.kept.push_back(tensors.y);
    const HeldNumbers held = numbers_of(layer);
    const Buffer work = numbers(MemoryClass::workspace, held.work);
    tensors.kept.push_back(numbers(MemoryClass::activations, held.forward));
    tensors.kept.push_back(hold(MemoryClass::activations, held.sums * master_));
    if (held.elements > 0) tensors.kept.push_back(hold(MemoryClass::activations, held.elements * element_));
    pass_around(layer, false);
  }

  void run_start_backward(int i) {
    const LayerPlan& layer = this->layer(i);
    LayerTensors& tensors = at(i);
    tensors.gradient = {};
    tensors.kept.push_back(numbers(MemoryClass::activations, numbers_of(layer).backward));
    // Layers whose dx needs a halo of dy keep dy or its extended copy, products keep dz. Other layers keep neither.
    if (layer->at.dy_halo && layer.needs_any_dx()) {
      const Buffer with_halo = extended(layer->at.dy_halo, layer->at.y.dual());
      tensors.kept.push_back(with_halo ? with_halo : tensors.dy);
      const Packs packs = pack_halo(*layer->at.dy_halo, layer->at.y.dual());
      if (messages_.overlap && layer.op->halo_overlap().dy) tensors.dy_halo = packs;
    }
    if (layer->at.products.empty()) return;
    const bool fused = layer.op->keeps().y || layer.op->keeps().z;
    tensors.kept.push_back(fused ? hold(MemoryClass::activations, volume(layer->at.y) * element_) : tensors.dy);  // dz
  }

  void run_backward_filter(int i) {
    const LayerPlan& layer = this->layer(i);
    std::vector<Buffer> parts;  // gradients of this microbatch, which are then added to those of all
    if (plan_.gradient_dtype != plan_.workload.dtype || layer.gathers_weights())
      for (std::size_t w = 0; w < layer->weights.size(); ++w)
        if (layer->weights[w].trained) parts.push_back(hold(MemoryClass::workspace, volume(layer->at.w[w]) * element_));
    multiply(layer, 2);
    if (layer.gathers_weights()) at(i).parts = std::move(parts);
  }

  void run_backward_data(int i) {
    const LayerPlan& layer = this->layer(i);
    LayerTensors& tensors = at(i);
    const Buffer added =
        layer.adds_gradient ? std::exchange(at(layer.inputs.front()).gradient, {}) : Buffer();  // of other readers
    for (int j = 0; j < std::ssize(layer->at.dx); ++j)
      tensors.work.push_back(layer.forwards_gradient           ? tensors.dy
                             : added && added.use_count() == 1 ? added
                             : layer.op->reads_integers(j)
                                 ? Buffer()
                                 : hold(MemoryClass::activations, volume(layer->at.dx[j]) * element_));
    tensors.dy_halo = {};
    multiply(layer, 1);
    pass_around(layer, true);
    if (const Index slopes = numbers_of(layer).slopes; slopes > 0) hold(MemoryClass::workspace, slopes * element_);
    if (layer->at.dy_halo || !layer->at.x_halo) return;
    const Buffer with_halo = extended(layer->at.x_halo, layer->at.dx[0]);
    static_cast<void>(pack_returned_halo(*layer->at.x_halo, layer->at.dx[0]));
  }

  /// Holds the sum of a bucket until its update: dw in the master dtype or, with a sharded optimizer, this rank's
  /// share.
  void start_sum(std::size_t b) {
    const Bucket& bucket = plan_.buckets[b];
    const Index elements = plan_.elements(bucket, rank_);
    if (plan_.gradient_dtype != master_dtype(plan_.workload.dtype))
      sums_[b] = hold(MemoryClass::workspace, elements * master_);
    if (!plan_.sharded_optimizer || bucket.axes == 0 || elements == 0) return;
    if (sums_[b]) kept_.push_back(sums_[b]);
    sums_[b] = hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master_);
  }

  std::size_t number(const Bucket& bucket) const { return static_cast<std::size_t>(&bucket - plan_.buckets.data()); }
  int group_of(const Bucket& bucket) const { return plan_.layers[bucket.last()].group; }

  /// Frees the sums of a group, bucket by bucket. A sharded optimizer holds a copy of the weights that it updated until
  /// all weights of the group are gathered.
  void apply_update() {
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Bucket& bucket = plan_.buckets[b];
      if (group_of(bucket) != action_.group) continue;
      if (plan_.workload.optimizer.needs_norms())
        static_cast<void>(numbers(MemoryClass::workspace, 2 * static_cast<Index>(bucket.entries.size())));
      sums_[b] = {};
      if (plan_.sharded_optimizer && bucket.axes != 0 && plan_.elements(bucket, rank_) > 0)
        kept_.push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master_));
    }
    kept_.clear();
  }

  const Plan& plan_;
  MessageMemory messages_;
  int stage_;
  int rank_;  // in the stage's grid
  const StepProgram& program_;
  const StageLayers& stage_layers_;
  Index element_ = 0;  // bytes, of the tensors that the present operation moves
  Index master_;       // bytes
  MemoryTracker memory_;
  std::unordered_map<const ProductPlan*, Index> workspaces_;
  std::unordered_map<const Ring*, Index> rings_, back_rings_;  // bytes of workspace
  std::vector<Microbatch> microbatches_;
  Action action_;  // the action that is replayed; its layers and its microbatch follow
  const std::vector<LayerPlan>* layers_ = nullptr;
  Microbatch* m_ = nullptr;
  std::vector<Buffer> sums_;  // by bucket
  std::vector<Buffer> kept_;  // of collectives under way
  std::vector<Buffer> leaving_;
};

}  // namespace

MemoryPeak replay_memory(const StepProgram& program, int rank, const MemoryUse& held, const MessageMemory& messages,
                         bool all) {
  return Replay(program, rank, held, messages, false).run(all).peak();
}

Index replay_taken(const StepProgram& program, int rank, const MemoryUse& held, const MessageMemory& messages,
                   bool all) {
  return held.total() + Replay(program, rank, held, messages, true).run(all).taken();
}

}  // namespace partita
