#include "partita/strategies/plan/memory.hpp"

#include "partita/base/error.hpp"
#include "strategies/plan/memory_tracker.hpp"
#include "strategies/plan/stage_layers.hpp"

#include <algorithm>
#include <unordered_map>

namespace partita {

namespace {

/// Adds the weights of a layer that `rank` of its stage holds outside of buckets: untrained ones, and copies that kernels read.
void add_weights(const Plan& plan, const LayerPlan& layer, int rank, MemoryUse& use) {
  const Index element = size_of(plan.workload.dtype), master = size_of(master_dtype(plan.workload.dtype));
  for (std::size_t i = 0; i < layer->weights.size(); ++i) {
    const Index elements = layer->at.w[i].owned(rank).volume();
    const bool rounded =
        layer->weights[i].trained && element != master;  // kept twice: the master, and what kernels read
    if (rounded) use[MemoryClass::weights] += elements * element;
    if (!layer->weights[i].trained || !plan.workload.training) use[MemoryClass::weights] += elements * master;
  }
}

/// Adds the weights, gradients and optimizer state of a bucket that `rank` of its stage holds: for all its layers, or for one.
void add_bucket(const Plan& plan, const Bucket& bucket, int rank, MemoryUse& use, std::optional<int> layer = {}) {
  const Index element = size_of(plan.workload.dtype), master = size_of(master_dtype(plan.workload.dtype));
  const auto states = static_cast<Index>(plan.workload.optimizer.states().size());
  const auto offsets = plan.offsets(bucket, rank);
  const Interval share = plan.share(bucket, rank);
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    if (layer && bucket.entries[i].layer != *layer) continue;
    const Interval place{offsets[i], offsets[i + 1]};
    use[MemoryClass::weights] += place.extent() * master;
    use[MemoryClass::gradients] += place.extent() * element;
    use[MemoryClass::optimizer] += intersect(place, share).extent() * master * states;
  }
}

/// Holds and releases what the executor does, in its order (train/executor.cpp, layer_group.cpp and stage_exchange.cpp), without
/// computing: a buffer is its bytes.
class Replay {
 public:
  Replay(const Plan& plan, int rank)
      : plan_(plan),
        stage_(plan.stage_of_rank(rank)),
        rank_(plan.rank_in_stage(rank)),
        stage_layers_(plan, stage_),
        element_(size_of(plan.workload.dtype)),
        microbatches_(static_cast<std::size_t>(plan.microbatches)),
        filters_(plan.stage_of_group.size(), 0),
        sums_(plan.buckets.size()) {
    MemoryUse use;  // for good
    for (const auto& layer : plan.layers)
      if (plan.replica_on(layer.group, stage_) >= 0) add_weights(plan, layer, rank_, use);
    for (const auto& bucket : plan.buckets)
      if (plan.replica_on(group_of(bucket), stage_) >= 0) add_bucket(plan, bucket, rank_, use);
    for (const auto kept : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer})
      memory_.take(kept, use[kept]);
  }

  MemoryPeak run() {
    for (const auto& action : plan_.schedule.stages[static_cast<std::size_t>(stage_)]) {
      layers_ = &plan_.layers_of(action.microbatch);
      m_ = &microbatches_[static_cast<std::size_t>(action.microbatch)];
      if (m_->places.empty()) m_->places.resize(stage_layers_.count());
      group_ = action.group;
      replica_ = action.replica;
      action.is_transfer() ? cross(action) : perform(action);
    }
    return memory_.peak();
  }

 private:
  using Buffer = MemoryTracker::Buffer;

  /// Of a layer in a microbatch.
  struct Place {
    Buffer output, gradient, dy;
    std::vector<Buffer> saved;
    bool live = false;
  };
  /// As train/layer_group.hpp has it.
  struct Microbatch {
    Buffer images, target;
    std::vector<Place> places;  // of the layers that the stage runs or reads
    std::vector<Buffer> sent;
    std::vector<std::pair<std::size_t, Buffer>> arriving_gradients;
  };

  const StageLayers::Replica& replica() const { return stage_layers_.replica(replica_); }
  Place& at(std::size_t i) { return m_->places[stage_layers_.number(i)]; }
  /// The layers of the group: the first, and behind the last.
  std::size_t first() const { return stage_layers_.of_group(group_).first; }
  std::size_t end() const { return stage_layers_.of_group(group_).second; }
  bool mine(std::size_t i) const { return i >= first() && i < end(); }

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
        if (replica().microbatches == 0)  // its sums have not begun
          for (std::size_t i = end(); i-- > first();) start_buckets(static_cast<int>(i));
        return;
      case step: return gather();
      default: return;
    }
  }

  /// As train/stage_exchange.cpp.
  void cross(const Action& action) {
    using enum Action::Kind;
    const bool back = action.kind == send_gradient || action.kind == receive_gradient;
    const bool own = action.kind == send_output || action.kind == receive_gradient;
    const auto [first, end] = stage_layers_.of_group(own ? action.group : action.peer);
    for (std::size_t i = first; i < end; ++i) {
      const LayerPlan& layer = (*layers_)[i];
      if (back && !layer.has_backward()) continue;
      for (const auto& boundary : layer.sends_to_stages) {
        if (boundary.group != (own ? action.peer : action.group)) continue;
        if (action.kind == send_output) m_->sent.push_back(convert_layout(at(i).output, boundary.complete_sums));
        if (action.kind == receive_input) at(i).output = hold(MemoryClass::activations, volume(boundary.to) * element_);
        if (action.kind == send_gradient) {
          leaving_.push_back(at(i).gradient);
          at(i).gradient = {};
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
      if (!at(layer).gradient) at(layer).gradient = gradient;
    m_->arriving_gradients.clear();
  }

  bool here(std::size_t i) const { return plan_.stage_of(static_cast<int>(i), replica_) == stage_; }
  /// What the rank brings: at the microbatch's first forward on the stage.
  void read() {
    if (group_ != replica().first_group) return;
    const auto& loss = layers_->back();
    const Target target = loss.op->target(loss->input_shapes[0]);
    if (here(0)) m_->images = hold(MemoryClass::activations, volume(layers_->front()->y) * element_);
    if (here(layers_->size() - 1))
      m_->target = hold(MemoryClass::activations, loss->at.x[0].onto(target.shape).owned(rank_).volume() *
                                                      (target.labels ? size_of(DType::i32) : element_));
  }

  void run_forward(int microbatch) {
    if (!plan_.workload.training && microbatch > 0 && group_ == replica().first_group)
      microbatches_[static_cast<std::size_t>(microbatch) - 1] = {};
    read();
    for (std::size_t i = first(); i < end(); ++i) {
      forward_layer(i);
      settle(i);
    }
  }

  void run_backward() {
    for (std::size_t i = end(); i-- > first();) {
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
    for (std::size_t i = first(); i < end(); ++i)
      for (const int input : (*layers_)[i].inputs)
        if (const auto j = static_cast<std::size_t>(input);
            !here(j) && replica().readers[j].front() == static_cast<int>(i))
          at(j).output = {};
  }

  void run_backward_data() {
    for (std::size_t i = end(); i-- > first();) {
      const LayerPlan& layer = (*layers_)[i];
      if (layer.has_backward()) {
        const Buffer dy = start_backward(i);
        if (layer.needs_any_dx()) form_data(i);
        at(i).dy = dy;
      }
      if (!layer.trains()) release(i);
    }
    release_arrived();
  }

  void run_backward_filter() {
    for (std::size_t i = end(); i-- > first();) {
      if ((*layers_)[i].trains()) multiply((*layers_)[i], 2);
      start_buckets(static_cast<int>(i));
      release(i);
    }
    if (mine(0)) m_->images = {};
    if (mine(layers_->size() - 1)) m_->target = {};
  }

  void release(std::size_t i) {
    const bool live = at(i).live;
    at(i) = {};
    at(i).live = live;
  }

  Buffer hold(MemoryClass memory, Index bytes) { return memory_.hold(memory, bytes); }
  /// Elements that the rank has of a layout of the plan, counted once.
  Index volume(const Layout& layout) {
    const auto [known, fresh] = volumes_.try_emplace(&layout);
    if (fresh) known->second = layout.owned(rank_).volume();
    return known->second;
  }
  Index workspace(const ProductPlan& product) {
    const auto [known, fresh] = workspaces_.try_emplace(&product);
    if (fresh) known->second = product.workspace(rank_);
    return known->second;
  }

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
    if (which >= layer->at.products.size()) return;
    const ProductPlan& product = layer->at.products[which];
    hold(MemoryClass::workspace, workspace(product) * element_);
    if (product.redistribute_c.empty()) return;
    const Buffer made = product.sums_slabs && product.cut_dim(product.c) < 0
                            ? hold(MemoryClass::workspace, volume(product.c_made) * element_)
                            : Buffer();
    convert_layout(hold(MemoryClass::workspace, volume(product.redistribute_c.front().from) * element_),
                   product.redistribute_c, MemoryClass::workspace);
  }

  void forward_layer(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    const Kept kept = layer.op->keeps();
    std::vector<Buffer> x;
    for (std::size_t j = 0; j < layer.inputs.size(); ++j)
      x.push_back(convert_layout(at(static_cast<std::size_t>(layer.inputs[j])).output, layer->redistribute_input[j]));
    const Buffer y = layer.inputs.empty() ? m_->images : hold(MemoryClass::activations, volume(layer->at.y) * element_);
    if (kept.z) at(i).saved.push_back(hold(MemoryClass::activations, volume(layer->at.y) * element_));
    multiply(layer, 0);
    const Buffer with_halo = x.empty() ? Buffer() : extended(layer->at.x_halo, layer->at.x[0]);
    if (kept.x) {
      const auto held = with_halo ? std::vector{with_halo} : x;
      at(i).saved.insert(at(i).saved.end(), held.begin(), held.end());
    }
    if (kept.y) at(i).saved.push_back(y);
    if (kept.more > 0) at(i).saved.push_back(hold(MemoryClass::activations, volume(layer->at.y) * kept.more));
    at(i).output = convert_layout(y, layer->redistribute_output);
    at(i).live = true;
  }

  void settle(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    if (!plan_.workload.training || layer.recompute || !layer.has_backward()) {
      at(i).saved.clear();
      at(i).live = false;
    }
    for (const int input : layer.inputs)
      if (const auto j = static_cast<std::size_t>(input);
          replica().readers[j].back() == static_cast<int>(i) && !replica().needs_output[j])
        at(j).output = {};
  }

  void restore(std::size_t i) {
    const auto& inputs = (*layers_)[i].inputs;
    for (const int input : inputs)
      if (const auto j = static_cast<std::size_t>(input);
          mine(j) && (!at(j).output || ((*layers_)[j].recompute && !at(j).live)))
        restore(j);
    at(i).output = {};
    forward_layer(i);
    for (const int input : inputs)
      if (const auto j = static_cast<std::size_t>(input); mine(j)) release_restored(j);
  }

  void release_restored(std::size_t i) {
    const auto waits = [&](int reader) {
      const auto r = static_cast<std::size_t>(reader);
      return (*layers_)[r].recompute && !at(r).live;
    };
    const auto& readers = replica().readers[i];
    if ((*layers_)[i].recompute && std::none_of(readers.begin(), readers.end(), waits)) at(i).output = {};
  }

  Buffer start_backward(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    if (!at(i).live) {
      restore(i);
      release_restored(i);
    }
    Buffer dy;
    if (!layer.op->is_loss()) dy = convert_layout(at(i).gradient, layer->redistribute_dy);
    at(i).gradient = {};
    if (layer.needs_any_dx()) at(i).saved.push_back(extended(layer->at.dy_halo, layer->at.y.dual()));
    const bool fused = !layer->at.products.empty() && (layer.op->keeps().y || layer.op->keeps().z);
    at(i).saved.push_back(fused ? hold(MemoryClass::activations, volume(layer->at.y) * element_) : dy);  // dz
    return dy;
  }

  void form_data(std::size_t i) {
    const LayerPlan& layer = (*layers_)[i];
    std::vector<Buffer> dx;
    for (const auto& layout : layer->at.dx) dx.push_back(hold(MemoryClass::activations, volume(layout) * element_));
    multiply(layer, 1);
    if (!layer->at.dy_halo) static_cast<void>(extended(layer->at.x_halo, layer->at.dx[0]));
    for (std::size_t j = 0; j < dx.size(); ++j) {
      if (!layer->needs_dx[j]) continue;
      const Buffer gradient = convert_layout(dx[j], layer->redistribute_dx[j]);
      auto& sum = at(static_cast<std::size_t>(layer.inputs[j])).gradient;
      if (!sum) sum = gradient;
    }
  }

  void start_buckets(int layer) {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    if (filters_[static_cast<std::size_t>(group_)] < replica().microbatches) return;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const Bucket& bucket = plan_.buckets[b];
      if (bucket.last() != layer) continue;
      const Index elements = plan_.offsets(bucket, rank_).back();
      if (master != element_) sums_[b].push_back(hold(MemoryClass::gradients, elements * master));
      if (plan_.sharded_optimizer && bucket.axes != 0 && elements > 0)
        sums_[b].push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master));
    }
  }

  int group_of(const Bucket& bucket) const { return plan_.layers[static_cast<std::size_t>(bucket.last())].group; }

  void gather() {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    if (!plan_.sharded_optimizer) return;
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
  StageLayers stage_layers_;
  Index element_;
  MemoryTracker memory_;
  std::unordered_map<const Layout*, Index> volumes_;
  std::unordered_map<const ProductPlan*, Index> workspaces_;
  std::vector<Microbatch> microbatches_;
  const std::vector<LayerPlan>* layers_ = nullptr;  // of the action, and its microbatch
  Microbatch* m_ = nullptr;
  std::vector<int> filters_;               // microbatches whose dw is formed, by group
  std::vector<std::vector<Buffer>> sums_;  // by bucket
  std::vector<Buffer> leaving_;
};

}  // namespace

MemoryUse layer_memory(const Plan& plan, int layer, int world_rank) {
  const auto& bound = plan.layers[static_cast<std::size_t>(layer)];
  if (plan.replica_on(bound.group, plan.stage_of_rank(world_rank)) < 0) return {};
  const int rank = plan.rank_in_stage(world_rank);
  const Index element = size_of(plan.workload.dtype);
  MemoryUse use;
  add_weights(plan, bound, rank, use);
  for (const auto& bucket : plan.buckets)
    if (layer >= bucket.entries.front().layer && layer <= bucket.entries.back().layer)
      add_bucket(plan, bucket, rank, use, layer);
  use[MemoryClass::activations] +=
      bound->y.owned(rank).volume() * element + bound->at.y.owned(rank).volume() * bound.op->keeps().more;
  if (bound.op->keeps().z) use[MemoryClass::activations] += bound->at.y.owned(rank).volume() * element;
  if (!bound.op->is_loss() && !bound->redistribute_output.empty())
    use[MemoryClass::activations] += bound->at.y.owned(rank).volume() * element;
  for (std::size_t i = 0; i < bound->redistribute_input.size(); ++i)
    if (!bound->redistribute_input[i].empty())
      use[MemoryClass::activations] += bound->at.x[i].owned(rank).volume() * element;
  if (bound->at.x_halo) {
    const Box needed = bound->at.x_halo->needed(rank);
    if (!bound->at.x[0].owned(rank).contains(needed)) use[MemoryClass::halos] += needed.volume() * element;
  }
  return use;
}

MemoryPeak peak_memory(const Plan& plan, int rank) { return Replay(plan, rank).run(); }

void check_memory(const Plan& plan, Index limit) {
  if (limit == 0) return;
  MemoryPeak worst;
  int where = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    if (const MemoryPeak peak = peak_memory(plan, rank); peak.total > worst.total) {
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
