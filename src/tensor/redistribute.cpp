#include "partita/tensor/redistribute.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/exchange.hpp"
#include "src/device/profile.hpp"

namespace partita {

namespace {

/// One step of a redistribution on one rank: fills `to` from `from`.
class Conversion {
 public:
  Conversion(const RedistributionStep& step, const Tensor& from, const Tensor& to, const ProcessGrid& grid,
             Stream stream)
      : step_(step), from_(from), to_(to), grid_(grid), stream_(stream) {}

  void run() const {
    const Timed timed(Profile::Part::exchange);
    const bool alone = grid_.grid().group_size(step_.axes) == 1;
    switch (step_.verb) {
      case Verb::none: return slice();
      case Verb::all_reduce: return alone ? slice() : all_reduce();
      case Verb::all_gather: return alone ? slice() : all_gather();
      case Verb::reduce_scatter: return alone ? slice() : reduce_scatter();
      case Verb::exchange: return exchange();
      default: break;
    }
    broken(fmt::format("{} is not a step of a redistribution", name(step_.verb)));
  }

 private:
  /// Copies a local part. If replicas become a pending sum, only the first of them keeps its value, so that the sum is
  /// that value.
  void slice() const {
    const AxisSet sum = step_.to.partial() & ~step_.from.partial();
    if (grid_.grid().group(grid_.rank(), sum).front() == grid_.rank()) copy_box(from_, to_, to_.box(), stream_);
  }

  void all_reduce() const {
    copy_box(from_, to_, to_.box(), stream_);
    grid_.along(step_.axes).all_reduce(to_.data(), to_.volume(), to_.dtype(), ReduceOp::sum, stream_).wait(stream_);
  }

  void all_gather() const {
    const auto boxes = group_boxes(step_.from);
    const auto gathered = to_.like(to_.box(), MemoryClass::workspace, Fill::none);
    grid_.along(step_.axes)
        .all_gather(from_.data(), gathered.data(), volumes(boxes), to_.dtype(), stream_)
        .wait(stream_);
    for (const auto* at = gathered.data(); const auto& box : boxes) {
      unpack(at, box, to_, stream_);
      at += box.volume() * size_of(to_.dtype());
    }
  }

  void reduce_scatter() const {
    const auto boxes = group_boxes(step_.to);
    const auto packed = from_.like(from_.box(), MemoryClass::workspace, Fill::none);
    for (auto* at = packed.data(); const auto& box : boxes) {
      pack(from_, box, at, stream_);
      at += box.volume() * size_of(from_.dtype());
    }
    grid_.along(step_.axes)
        .reduce_scatter(packed.data(), to_.data(), volumes(boxes), to_.dtype(), stream_)
        .wait(stream_);
  }

  void exchange() const {
    const auto plan = plan_transfer(step_.from, step_.to, grid_.rank());
    Exchange(plan, from_, to_, grid_.world(), stream_).finish();
  }

  /// Returns what the ranks of this step's group own, in the order of their communicator.
  std::vector<Box> group_boxes(const Layout& layout) const {
    std::vector<Box> boxes;
    for (const int rank : grid_.grid().group(grid_.rank(), step_.axes)) boxes.push_back(layout.owned(rank));
    return boxes;
  }

  static std::vector<Index> volumes(const std::vector<Box>& boxes) {
    std::vector<Index> volumes;
    volumes.reserve(boxes.size());
    for (const auto& box : boxes) volumes.push_back(box.volume());
    return volumes;
  }

  const RedistributionStep& step_;
  const Tensor& from_;
  const Tensor& to_;
  const ProcessGrid& grid_;
  Stream stream_;
};

}  // namespace

DistTensor redistribute(const DistTensor& from, const std::vector<RedistributionStep>& steps, const ProcessGrid& grid,
                        Stream stream) {
  DistTensor now = from;
  for (const auto& step : steps) {
    require(step.from == now.layout, "each step must start from the layout that the previous one made");
    DistTensor next;
    next.layout = step.to;
    const bool sums = (step.to.partial() & ~step.from.partial()) != 0;  // then most ranks contribute zeros
    next.local = now.local.like(step.to.owned(grid.rank()), sums ? Fill::zeros : Fill::none);
    Conversion(step, now.local, next.local, grid, stream).run();
    now = std::move(next);
  }
  return now;
}

DistTensor redistribute(const DistTensor& from, const Layout& to, const ProcessGrid& grid, Stream stream) {
  return redistribute(from, plan_redistribution(from.layout, to), grid, stream);
}

}  // namespace partita
