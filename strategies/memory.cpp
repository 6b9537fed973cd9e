#include "memory.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <memory>

namespace partita {

namespace {

/// Holds and releases what the executor does, in its order (train/executor.cpp, layer_group.cpp and stage_exchange.cpp), without
/// computing: a buffer is its bytes.
class Replay {
 public:
  Replay(const Plan& plan, int rank)
      : plan_(plan),
        stage_(plan.stage_of_rank(rank)),
        rank_(plan.rank_in_stage(rank)),
        element_(size_of(plan.workload.dtype)),
        microbatches_(static_cast<std::size_t>(plan.microbatches)),
        filters_(plan.places.size(), 0),
        sums_(plan.buckets.size()) {
    MemoryUse use;  // for good
    for (const auto& layer : plan.layers)
      if (plan.replica_on(layer.group, stage_) >= 0) add_weights(plan, layer, rank_, use);
    for (const auto& bucket : plan.buckets)
      if (plan.replica_on(group_of(bucket), stage_) >= 0) add_bucket(plan, bucket, -1, rank_, use);
    for (const auto kept : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer})
      take(kept, use[kept]);
  }

  MemoryPeak run() {
    for (const auto& action : plan_.schedule.stages[static_cast<std::size_t>(stage_)]) {
      layers_ = &plan_.layers_of(action.microbatch);
      m_ = &microbatches_[static_cast<std::size_t>(action.microbatch)];
      if (m_->outputs.empty()) begin();
      group_ = action.group;
      replica_ = action.replica;
      action.is_transfer() ? cross(action) : perform(action);
    }
    return peak_;
  }

 private:
  using Buffer = std::shared_ptr<const Index>;

  /// As train/layer_group.hpp has it.
  struct Microbatch {
    Buffer images, target;
    std::vector<Buffer> outputs, gradients, dy, sent;
    std::vector<std::pair<std::size_t, Buffer>> arriving_gradients;
    std::vector<std::vector<Buffer>> saved;
    std::vector<bool> live;
  };

  bool mine(std::size_t i) const { return (*layers_)[i].group == group_; }

  void perform(const Action& action) {
    using enum Action::Kind;
    switch (action.kind) {
      case forward: return run_forward(action.microbatch);
      case backward:
        ++filters_[static_cast<std::size_t>(group_)];
        finish_transfers();
        return run_backward();
      case backward_data: finish_transfers(); return run_backward_data();
      case backward_filter: ++filters_[static_cast<std::size_t>(group_)]; return run_backward_filter();
      case reduce:
        leaving_.clear();
        if (plan_.microbatches_of(replica_) == 0)  // its sums have not begun
          for (std::size_t i = layers_->size(); i-- > 0;)
            if (mine(i)) start_buckets(static_cast<int>(i));
        return;
      case step: return gather();
      default: return;
    }
  }

  void begin() {
    const std::size_t count = layers_->size();
    m_->outputs.assign(count, {});
    m_->gradients.assign(count, {});
    m_->dy.assign(count, {});
    m_->saved.assign(count, {});
    m_->live.assign(count, false);
  }

  /// As train/stage_exchange.cpp.
  void cross(const Action& action) {
    using enum Action::Kind;
    const bool back = action.kind == send_gradient || action.kind == receive_gradient;
    const bool own = action.kind == send_output || action.kind == receive_gradient;
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      const LayerPlan& layer = (*layers_)[i];
      if (layer.group != (own ? action.group : action.peer) || (back && !layer.sends_gradient())) continue;
      for (const auto& boundary : layer.departs) {
        if (boundary.group != (own ? action.peer : action.group)) continue;
        if (action.kind == send_output) m_->sent.push_back(convert_layout(m_->outputs[i], boundary.settle));
        if (action.kind == receive_input)
          m_->outputs[i] = hold(MemoryClass::activations, volume(boundary.to) * element_);
        if (action.kind == send_gradient) {
          leaving_.push_back(m_->gradients[i]);
          m_->gradients[i] = {};
        }
        if (action.kind == receive_gradient)
          m_->arriving_gradients.emplace_back(i, hold(MemoryClass::activations, volume(boundary.from) * element_));
      }
    }
  }

  void finish_transfers() {
    m_->sent.clear();
    leaving_.clear();
    for (auto& [layer, gradient] : m_->arriving_gradients)
      if (!m_->gradients[layer]) m_->gradients[layer] = gradient;
    m_->arriving_gradients.clear();
  }

  bool here(std::size_t i) const { return plan_.stage_of(static_cast<int>(i), replica_) == stage_; }
  int first_group() const {
    int group = 0;
    while (plan_.place(group, replica_) != stage_) ++group;
    return group;
  }

  /// What the rank brings: at the microbatch's first forward on the stage.
  void read() {
    if (group_ != first_group()) return;
    const auto& loss = layers_->back();
    const Target target = loss.op->target(loss.input_shapes[0]);
    if (here(0)) m_->images = hold(MemoryClass::activations, volume(layers_->front().y) * element_);
    if (here(layers_->size() - 1))
      m_->target = hold(MemoryClass::activations,
                        volume(loss.at.x[0].onto(target.shape)) * (target.labels ? size_of(DType::i32) : element_));
  }

  void run_forward(int microbatch) {
    if (!plan_.workload.training && microbatch > 0 && group_ == first_group())
      microbatches_[static_cast<std::size_t>(microbatch) - 1] = {};
    read();
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (!mine(i)) continue;
      forward_layer(i);
      settle(i);
    }
  }

  void run_backward() {
    for (std::size_t i = layers_->size(); i-- > 0;) {
      if (!mine(i)) continue;
      const LayerPlan& layer = (*layers_)[i];
      if (layer.has_backward()) {
        const Buffer dy = start_backward(i);
        if (layer.trains()) multiply(layer, 2);
        if (layer.needs_any_dx()) form_data(i);
      }
      start_buckets(static_cast<int>(i));
      release(i);
    }
    release_arrived();
    if (mine(0)) m_->images = {};
    if (mine(layers_->size() - 1)) m_->target = {};
  }

  void release_arrived() {
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (here(i)) continue;
      const auto readers = plan_.readers(static_cast<int>(i), stage_, replica_);
      if (!readers.empty() && mine(static_cast<std::size_t>(readers.front()))) m_->outputs[i] = {};
    }
  }

  void run_backward_data() {
    for (std::size_t i = layers_->size(); i-- > 0;) {
      if (!mine(i)) continue;
      const LayerPlan& layer = (*layers_)[i];
      if (layer.has_backward()) {
        const Buffer dy = start_backward(i);
        if (layer.needs_any_dx()) form_data(i);
        m_->dy[i] = dy;
      }
      if (!layer.trains()) release(i);
    }
    release_arrived();
  }

  void run_backward_filter() {
    for (std::size_t i = layers_->size(); i-- > 0;) {
      if (!mine(i)) continue;
      if ((*layers_)[i].trains()) multiply((*layers_)[i], 2);
      start_buckets(static_cast<int>(i));
      release(i);
    }
    if (mine(0)) m_->images = {};
    if (mine(layers_->size() - 1)) m_->target = {};
  }

  void release(std::size_t i) {
    m_->gradients[i] = {};
    m_->dy[i] = {};
    m_->saved[i].clear();
    m_->outputs[i] = {};
  }

  void take(MemoryClass memory, Index bytes) {
    now_[memory] += bytes;
    peak_.each[memory] = std::max(peak_.each[memory], now_[memory]);
    peak_.total = std::max(peak_.total, now_.total());
  }
  Buffer hold(MemoryClass memory, Index bytes) {
    take(memory, bytes);
    return {new Index(bytes), [this, memory](const Index* held) {
              now_[memory] -= *held;
              delete held;
            }};
  }
  Index volume(const Layout& layout) const { return layout.owned(rank_).volume(); }

  Buffer convert_layout(const Buffer& from, const LayerPlan::Steps& steps,
                        MemoryClass memory = MemoryClass::activations) {
    Buffer now = from;
    for (const auto& step : steps) {
      const Buffer next = hold(memory, volume(step.to) * element_);
      Buffer room;
      if (step.from.grid().group_size(step.axes) > 1) {
        if (step.verb == Verb::all_gather) room = hold(MemoryClass::workspace, volume(step.to) * element_);
        if (step.verb == Verb::reduce_scatter) room = hold(MemoryClass::workspace, volume(step.from) * element_);
      }
      now = next;
    }
    return now;
  }

  /// Room for a halo, if `local` does not hold all that is needed.
  Buffer extended(const std::optional<Halo>& halo, const Layout& local) {
    if (!halo) return {};
    const Box needed = halo->needed(rank_);
    return local.owned(rank_).contains(needed) ? Buffer() : hold(MemoryClass::halos, needed.volume() * element_);
  }

  /// What a product gathers and sums passes.
  void multiply(const LayerPlan& layer, std::size_t which) {
    if (which >= layer.at.products.size()) return;
    const ProductPlan& product = layer.at.products[which];
    hold(MemoryClass::workspace, product.workspace(rank_) * element_);
    if (product.finish.empty()) return;
    const Buffer made = product.sums_slabs && product.cut_dim(product.c) < 0
                            ? hold(MemoryClass::workspace, volume(product.c_made) * element_)
                            : Buffer();
    convert_layout(hold(MemoryClass::workspace, volume(product.finish.front().from) * element_), product.finish,
                   MemoryClass::workspace);
  }

  void forward_layer(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    const Kept kept = layer.op->keeps();
    std::vector<Buffer> x;
    for (std::size_t j = 0; j < layer.inputs.size(); ++j)
      x.push_back(convert_layout(m_->outputs[static_cast<std::size_t>(layer.inputs[j])], layer.arrive[j]));
    const Buffer y = layer.inputs.empty() ? m_->images : hold(MemoryClass::activations, volume(layer.at.y) * element_);
    if (kept.z) m_->saved[i].push_back(hold(MemoryClass::activations, volume(layer.at.y) * element_));
    multiply(layer, 0);
    const Buffer with_halo = x.empty() ? Buffer() : extended(layer.at.x_halo, layer.at.x[0]);
    if (kept.x) {
      const auto held = with_halo ? std::vector{with_halo} : x;
      m_->saved[i].insert(m_->saved[i].end(), held.begin(), held.end());
    }
    if (kept.y) m_->saved[i].push_back(y);
    if (kept.more > 0) m_->saved[i].push_back(hold(MemoryClass::activations, volume(layer.at.y) * kept.more));
    m_->outputs[i] = convert_layout(y, layer.finish);
    m_->live[i] = true;
  }

  void settle(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    if (!plan_.workload.training || layer.recompute || !layer.has_backward()) {
      m_->saved[i].clear();
      m_->live[i] = false;
    }
    for (const int input : layer.inputs)
      if (plan_.readers(input, stage_, replica_).back() == static_cast<int>(i) &&
          !plan_.needs_output(input, stage_, replica_))
        m_->outputs[static_cast<std::size_t>(input)] = {};
  }

  void restore(std::size_t i) {
    for (const int input : (*layers_)[i].inputs)
      if (const auto j = static_cast<std::size_t>(input);
          mine(j) && (!m_->outputs[j] || ((*layers_)[j].recompute && !m_->live[j])))
        restore(j);
    forward_layer(i);
  }

  void release_restored() {
    for (std::size_t i = 0; i < layers_->size(); ++i) {
      if (!mine(i) || !(*layers_)[i].recompute || !m_->outputs[i]) continue;
      const auto wait = [&](int reader) {
        const auto r = static_cast<std::size_t>(reader);
        return (*layers_)[r].recompute && !m_->live[r];
      };
      const auto readers = plan_.readers(static_cast<int>(i), stage_, replica_);
      if (std::none_of(readers.begin(), readers.end(), wait)) m_->outputs[i] = {};
    }
  }

  Buffer start_backward(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    if (!m_->live[i]) {
      restore(i);
      release_restored();
    }
    Buffer dy;
    if (!layer.op->is_loss()) dy = convert_layout(m_->gradients[i], layer.finish_back);
    m_->gradients[i] = {};
    if (layer.needs_any_dx()) m_->saved[i].push_back(extended(layer.at.dy_halo, layer.at.y.dual()));
    const bool fused = !layer.at.products.empty() && (layer.op->keeps().y || layer.op->keeps().z);
    m_->saved[i].push_back(fused ? hold(MemoryClass::activations, volume(layer.at.y) * element_) : dy);  // dz
    return dy;
  }

  void form_data(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    std::vector<Buffer> dx;
    for (const auto& layout : layer.at.dx) dx.push_back(hold(MemoryClass::activations, volume(layout) * element_));
    multiply(layer, 1);
    if (!layer.at.dy_halo) static_cast<void>(extended(layer.at.x_halo, layer.at.dx[0]));
    for (std::size_t j = 0; j < dx.size(); ++j) {
      if (!layer.needs_dx[j]) continue;
      const Buffer gradient = convert_layout(dx[j], layer.leave[j]);
      auto& sum = m_->gradients[static_cast<std::size_t>(layer.inputs[j])];
      if (!sum) sum = gradient;
    }
  }

  void start_buckets(int layer) {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    if (filters_[static_cast<std::size_t>(group_)] < plan_.microbatches_of(replica_)) return;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Bucket& bucket = plan_.buckets[b];
      if (bucket.last() != layer) continue;
      const Index elements = plan_.offsets(bucket, rank_).back();
      if (master != element_) sums_[b].push_back(hold(MemoryClass::gradients, elements * master));
      if (plan_.distributed && bucket.axes != 0 && elements > 0)
        sums_[b].push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master));
    }
  }

  int group_of(const Bucket& bucket) const { return plan_.layers[static_cast<std::size_t>(bucket.last())].group; }

  void gather() {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    if (!plan_.distributed) return;
    for (std::size_t b = 0; b < plan_.buckets.size();
         ++b)  // one after the other is applied, and what was updated gathered
      if (master == element_ && group_of(plan_.buckets[b]) == group_) sums_[b].clear();
    std::vector<Buffer> travelling;
    for (const auto& bucket : plan_.buckets)
      if (group_of(bucket) == group_ && bucket.axes != 0 && plan_.offsets(bucket, rank_).back() > 0)
        travelling.push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master));
  }

  const Plan& plan_;
  int stage_, group_ = 0, replica_ = 0;  // the rank's stage, and what the action is of
  int rank_;                             // in the stage
  Index element_;
  MemoryUse now_;
  MemoryPeak peak_;
  std::vector<Microbatch> microbatches_;
  const std::vector<LayerPlan>* layers_ = nullptr;  // of the action, and its microbatch
  Microbatch* m_ = nullptr;
  std::vector<int> filters_;               // microbatches whose dw is formed, by group
  std::vector<std::vector<Buffer>> sums_;  // by bucket
  std::vector<Buffer> leaving_;
};

}  // namespace

MemoryPeak Plan::peak(int rank) const { return Replay(*this, rank).run(); }

void check_memory(const Plan& plan, Index limit) {
  if (limit == 0) return;
  MemoryPeak worst;
  int where = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    if (const MemoryPeak peak = plan.peak(rank); peak.total > worst.total) {
      worst = peak;
      where = rank;
    }
  if (worst.total > limit)
    fail(
        "rank {} of the grid \"{}\"{} holds up to {} ({}), {} more than the memory limit of {}; cut samples or space "
        "over "
        "more ranks, or give layers recompute = true",
        plan.rank_in_stage(where), plan.grids[static_cast<std::size_t>(plan.stage_of_rank(where))].print(),
        plan.grids.size() > 1 ? fmt::format(" of stage {}", plan.stage_of_rank(where)) : "", print_bytes(worst.total),
        worst.each.print(), print_bytes(worst.total - limit), print_bytes(limit));
}

}  // namespace partita
