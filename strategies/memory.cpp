#include "partita/strategies/plan.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <memory>

namespace partita {

namespace {

/// Holds and releases what the executor does, in its order (train/executor.cpp, whose functions have the same names), without
/// computing: a buffer is its bytes.
class Replay {
 public:
  Replay(const Plan& plan, int rank)
      : plan_(plan),
        rank_(rank),
        element_(size_of(plan.workload.dtype)),
        outputs_(plan.layers.size()),
        gradients_(plan.layers.size()),
        saved_(plan.layers.size()),
        live_(plan.layers.size(), false) {
    for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer) {
      const MemoryUse use = plan.memory(layer, rank);
      for (const auto kept : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer})
        take(kept, use[kept]);
    }
  }

  MemoryPeak run() {
    const auto& loss = plan_.layers.back();
    const Target target = loss.op->target(loss.input_shapes[0]);
    const Buffer images = hold(MemoryClass::activations, volume(plan_.layers.front().y) * element_);
    const Buffer labels = hold(MemoryClass::activations, volume(loss.at.x[0].onto(target.shape)) *
                                                             (target.labels ? size_of(DType::i32) : element_));
    images_ = images;
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      forward_layer(i);
      settle(i);
    }
    if (plan_.workload.training) {
      for (std::size_t i = plan_.layers.size(); i-- > 0;) {
        backward_layer(i);
        start_buckets(static_cast<int>(i));
        gradients_[i] = {};
        saved_[i].clear();
        outputs_[i] = {};
      }
      gather();
    }
    return peak_;
  }

 private:
  using Buffer = std::shared_ptr<const Index>;

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
    const Box& needed = halo->needed[static_cast<std::size_t>(rank_)];
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
    const LayerPlan& layer = plan_.layers[i];
    const Kept kept = layer.op->keeps();
    std::vector<Buffer> x;
    for (std::size_t j = 0; j < layer.inputs.size(); ++j)
      x.push_back(convert_layout(outputs_[static_cast<std::size_t>(layer.inputs[j])], layer.arrive[j]));
    const Buffer y = layer.inputs.empty() ? images_ : hold(MemoryClass::activations, volume(layer.at.y) * element_);
    if (kept.z) saved_[i].push_back(hold(MemoryClass::activations, volume(layer.at.y) * element_));
    multiply(layer, 0);
    const Buffer with_halo = x.empty() ? Buffer() : extended(layer.at.x_halo, layer.at.x[0]);
    if (kept.x) {
      const auto held = with_halo ? std::vector{with_halo} : x;
      saved_[i].insert(saved_[i].end(), held.begin(), held.end());
    }
    if (kept.y) saved_[i].push_back(y);
    if (kept.more > 0) saved_[i].push_back(hold(MemoryClass::activations, volume(layer.at.y) * kept.more));
    outputs_[i] = convert_layout(y, layer.finish);
    live_[i] = true;
  }

  void settle(std::size_t i) {
    const LayerPlan& layer = plan_.layers[i];
    if (!plan_.workload.training || layer.recompute || !layer.has_backward()) {
      saved_[i].clear();
      live_[i] = false;
    }
    for (const int input : layer.inputs)
      if (plan_.readers(input).back() == static_cast<int>(i) && !plan_.needs_output(input))
        outputs_[static_cast<std::size_t>(input)] = {};
  }

  void restore(std::size_t i) {
    for (const int input : plan_.layers[i].inputs)
      if (!outputs_[static_cast<std::size_t>(input)]) restore(static_cast<std::size_t>(input));
    forward_layer(i);
  }

  void release_restored() {
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      if (!plan_.layers[i].recompute || !outputs_[i]) continue;
      const auto wait = [&](int reader) {
        const auto r = static_cast<std::size_t>(reader);
        return plan_.layers[r].recompute && !live_[r];
      };
      const auto readers = plan_.readers(static_cast<int>(i));
      if (std::none_of(readers.begin(), readers.end(), wait)) outputs_[i] = {};
    }
  }

  void backward_layer(std::size_t i) {
    const LayerPlan& layer = plan_.layers[i];
    if (!layer.has_backward()) return;
    if (!live_[i]) {
      restore(i);
      release_restored();
    }
    Buffer dy;
    if (!layer.op->is_loss()) dy = convert_layout(gradients_[i], layer.finish_back);
    gradients_[i] = {};
    const bool needs_dx = layer.needs_any_dx();
    if (needs_dx) saved_[i].push_back(extended(layer.at.dy_halo, layer.at.y.dual()));
    const bool fused = !layer.at.products.empty() && (layer.op->keeps().y || layer.op->keeps().z);
    Buffer dz = fused ? hold(MemoryClass::workspace, volume(layer.at.y) * element_) : Buffer();
    multiply(layer, 2);
    if (!needs_dx) return;
    std::vector<Buffer> dx;
    for (const auto& layout : layer.at.dx) dx.push_back(hold(MemoryClass::activations, volume(layout) * element_));
    multiply(layer, 1);
    dz = {};
    if (!layer.at.dy_halo) static_cast<void>(extended(layer.at.x_halo, layer.at.dx[0]));
    for (std::size_t j = 0; j < dx.size(); ++j) {
      if (!layer.needs_dx[j]) continue;
      const Buffer gradient = convert_layout(dx[j], layer.leave[j]);
      auto& sum = gradients_[static_cast<std::size_t>(layer.inputs[j])];
      if (!sum) sum = gradient;
    }
  }

  void start_buckets(int layer) {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    for (const auto& bucket : plan_.buckets) {
      if (bucket.last() != layer) continue;
      const Index elements = plan_.offsets(bucket, rank_).back();
      if (master != element_) sums_.push_back(hold(MemoryClass::gradients, elements * master));
      if (plan_.distributed && bucket.axes != 0 && elements > 0)
        sums_.push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master));
    }
  }

  void gather() {
    const Index master = size_of(master_dtype(plan_.workload.dtype));
    if (!plan_.distributed) return;
    if (master == element_) sums_.clear();  // one after the other is applied, and what was updated gathered
    std::vector<Buffer> travelling;
    for (const auto& bucket : plan_.buckets)
      if (bucket.axes != 0 && plan_.offsets(bucket, rank_).back() > 0)
        travelling.push_back(hold(MemoryClass::workspace, plan_.share(bucket, rank_).extent() * master));
  }

  const Plan& plan_;
  int rank_;
  Index element_;
  MemoryUse now_;
  MemoryPeak peak_;
  Buffer images_;
  std::vector<Buffer> outputs_, gradients_, sums_;
  std::vector<std::vector<Buffer>> saved_;
  std::vector<bool> live_;
};

}  // namespace

MemoryPeak Plan::peak(int rank) const { return Replay(*this, rank).run(); }

void check_memory(const Plan& plan, Index limit) {
  if (limit == 0) return;
  MemoryPeak worst;
  int where = 0;
  for (int rank = 0; rank < plan.grid.size(); ++rank)
    if (const MemoryPeak peak = plan.peak(rank); peak.total > worst.total) {
      worst = peak;
      where = rank;
    }
  if (worst.total > limit)
    fail(
        "rank {} of the grid \"{}\" holds up to {} ({}), {} more than the memory limit of {}; cut samples or space "
        "over "
        "more ranks, or give layers recompute = true",
        where, plan.grid.print(), print_bytes(worst.total), worst.each.print(), print_bytes(worst.total - limit),
        print_bytes(limit));
}

std::vector<int> Plan::readers(int layer) const {
  std::vector<int> all;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (std::find(layers[i].inputs.begin(), layers[i].inputs.end(), layer) != layers[i].inputs.end())
      all.push_back(static_cast<int>(i));
  return all;
}

bool Plan::needs_output(int layer) const {
  if (layers[static_cast<std::size_t>(layer)].recompute) return false;
  const auto all = readers(layer);
  return std::any_of(all.begin(), all.end(),
                     [&](int reader) { return layers[static_cast<std::size_t>(reader)].recompute; });
}

}  // namespace partita
