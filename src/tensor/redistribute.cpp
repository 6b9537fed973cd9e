#include "partita/tensor/redistribute.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/exchange.hpp"
#include "src/device/profile.hpp"

namespace partita {

namespace {

std::vector<Index> volumes(const std::vector<Box>& boxes) {
  std::vector<Index> volumes;
  volumes.reserve(boxes.size());
  for (const auto& box : boxes) volumes.push_back(box.volume());
  return volumes;
}

}  // namespace

/// One step of a redistribution on one rank. The constructor starts to fill a new tensor from `from`.
class Redistribution::Step {
 public:
  Step(const RedistributionStep& step, DistTensor from, const ProcessGrid& grid, Stream stream)
      : step_(step), from_(std::move(from)), grid_(grid), stream_(stream) {
    require(step.from == from_.layout, "each step must start from the layout that the previous one made");
    to_.layout = step.to;
    const bool sums = (step.to.partial() & ~step.from.partial()) != 0;  // then most ranks contribute zeros
    to_.local = from_.local.like(step.to.owned(grid.rank()), sums ? Fill::zeros : Fill::none);
    start();
  }

  void progress() { request_.progress(); }
  void wait() { std::exchange(request_, {}).wait(stream_); }
  DistTensor finish() {
    const Timed timed(Profile::Part::exchange);
    wait();
    if (step_.verb == Verb::all_gather && packed_) unpack_blocks();
    return std::move(to_);
  }

 private:
  void start() {
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

  /// Copies a local part. If replicas become a pending sum, only the first of them keeps its value, so that the sum is
  /// that value.
  void slice() const {
    const AxisSet sum = step_.to.partial() & ~step_.from.partial();
    if (grid_.grid().group(grid_.rank(), sum).front() == grid_.rank())
      copy_box(from_.local, to_.local, to_.local.box(), stream_);
  }

  void all_reduce() {
    const Tensor& to = to_.local;
    copy_box(from_.local, to, to.box(), stream_);
    request_ = grid_.along(step_.axes).all_reduce(to.data(), to.volume(), to.dtype(), ReduceOp::sum, stream_);
  }

  void all_gather() {
    const Tensor& to = to_.local;
    if (!blocks_are_runs(step_)) packed_ = to.like(to.box(), MemoryClass::workspace, Fill::none);
    const Tensor& gathered = packed_ ? packed_ : to;
    request_ =
        grid_.along(step_.axes)
            .all_gather(from_.local.data(), gathered.data(), volumes(group_boxes(step_.from)), to.dtype(), stream_);
  }

  void unpack_blocks() const {
    for (const auto* at = packed_.data(); const auto& box : group_boxes(step_.from)) {
      unpack(at, box, to_.local, stream_);
      at += box.volume() * size_of(packed_.dtype());
    }
  }

  void reduce_scatter() {
    const Tensor& from = from_.local;
    const auto boxes = group_boxes(step_.to);
    if (!blocks_are_runs(step_)) {
      packed_ = from.like(from.box(), MemoryClass::workspace, Fill::none);
      for (auto* at = packed_.data(); const auto& box : boxes) {
        pack(from, box, at, stream_);
        at += box.volume() * size_of(from.dtype());
      }
    }
    request_ =
        grid_.along(step_.axes)
            .reduce_scatter((packed_ ? packed_ : from).data(), to_.local.data(), volumes(boxes), from.dtype(), stream_);
  }

  void exchange() const {
    const auto plan = plan_transfer(step_.from, step_.to, grid_.rank());
    Exchange(plan, from_.local, to_.local, grid_.world(), stream_).finish();
  }

  /// Returns what the ranks of this step's group own, in the order of their communicator.
  std::vector<Box> group_boxes(const Layout& layout) const {
    std::vector<Box> boxes;
    for (const int rank : grid_.grid().group(grid_.rank(), step_.axes)) boxes.push_back(layout.owned(rank));
    return boxes;
  }

  const RedistributionStep& step_;
  DistTensor from_, to_;
  Tensor packed_;  // the blocks of all ranks, one after the other, where they are not so in the tensor
  const ProcessGrid& grid_;
  Stream stream_;
  Request request_;  // the last member: its destructor waits while the buffers exist
};

Redistribution::Redistribution(const DistTensor& from, std::span<const RedistributionStep> steps,
                               const ProcessGrid& grid, Stream stream)
    : last_(std::make_unique<Step>(steps.back(), redistribute(from, steps.first(steps.size() - 1), grid, stream), grid,
                                   stream)) {}
Redistribution::Redistribution(Redistribution&&) noexcept = default;
Redistribution& Redistribution::operator=(Redistribution&&) noexcept = default;
Redistribution::~Redistribution() = default;

void Redistribution::progress() { last_->progress(); }
void Redistribution::wait() { last_->wait(); }
DistTensor Redistribution::finish() { return last_->finish(); }

DistTensor redistribute(const DistTensor& from, std::span<const RedistributionStep> steps, const ProcessGrid& grid,
                        Stream stream) {
  if (steps.empty()) return from;
  return Redistribution(from, steps, grid, stream).finish();
}

DistTensor redistribute(const DistTensor& from, const Layout& to, const ProcessGrid& grid, Stream stream) {
  return redistribute(from, plan_redistribution(from.layout, to), grid, stream);
}

}  // namespace partita
