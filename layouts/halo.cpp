#include "partita/layouts/halo.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

AxisSet axes_of_space(const Layout& owner, const Layout& consumer) {
  AxisSet axes = 0;
  for (int d = 0; d < owner.shape().dims(); ++d)
    if (is_spatial(owner.shape().name(d))) axes |= owner.sharding(d) | consumer.sharding(d);
  return axes;
}

/// True if every window of a block of y lies in the block of x with the same coordinates: windows do not overlap, there
/// is no padding before them, and every block begins where a window begins.
bool stays(const Layout& x, const Layout& y, const Window& window, int d) {
  const Index inputs = x.shape().extent(d), outputs = y.shape().extent(d);
  if (!(x.axes(d) == y.axes(d)) || window.pad_lo != 0 || window.reach() > window.stride) return false;
  if (inputs != outputs * window.stride) return false;
  return window.stride == 1 || outputs % y.grid().group_size(y.sharding(d)) == 0;
}

/// Windows that slide over a shape, in one object without allocations.
class Slides {
 public:
  Slides(std::span<const Window> windows, const Shape& shape) : count_(windows.size()) {
    if (const int spatial = shape.dims() - 2; static_cast<int>(windows.size()) != spatial)
      fail("{} given for the shape \"{}\"; give one for each spatial dimension",
           counted(static_cast<Index>(count_), "window"), shape.print());
    std::copy(windows.begin(), windows.end(), windows_.begin());
  }
  std::span<const Window> windows() const { return std::span(windows_).first(count_); }

 private:
  std::array<Window, max_dims> windows_;
  std::size_t count_;
};

/// Returns the axes along which windows reach into blocks of other ranks.
AxisSet axes_of_windows(const Layout& x, const Layout& y, std::span<const Window> windows) {
  AxisSet axes = 0;
  for (std::size_t i = 0; i < windows.size(); ++i)
    if (const int d = static_cast<int>(i) + 2; !stays(x, y, windows[i], d)) axes |= x.sharding(d) | y.sharding(d);
  return axes;
}

}  // namespace

Halo::Halo(const Layout& owner, const Layout& consumer, Reads reads)
    : Halo(owner, consumer, std::move(reads), axes_of_space(owner, consumer)) {}

Halo::Halo(const Layout& owner, const Layout& consumer, Reads reads, AxisSet along)
    : parts_(std::make_shared<const Parts>(Parts{owner, consumer, std::move(reads), along})) {
  if (!(owner.grid() == consumer.grid()) || !(owner.axes(0) == consumer.axes(0)))
    fail(
        "a halo is between \"{}\" on the grid \"{}\" and \"{}\" on the grid \"{}\"; give both the same grid and the "
        "same axes for {}",
        owner.print(), owner.grid().print(), consumer.print(), consumer.grid().print(), owner.shape().name(0));
}

Box Halo::needed(int rank) const {
  Box box = parts_->reads(parts_->consumer.owned(rank), Box(parts_->owner.shape()));
  box[1] = parts_->owner.owned(rank)[1];
  return box;
}

Halo Halo::on(const Grid& grid) const {
  return {parts_->owner.on(grid), parts_->consumer.on(grid), parts_->reads, parts_->axes};
}

TransferPlan Halo::transfer(int rank) const {
  const auto ranks = grid().group(rank, parts_->axes);
  std::vector<Box> owned, needed;
  owned.reserve(ranks.size());
  needed.reserve(ranks.size());
  for (const int each : ranks) {
    owned.push_back(this->owned(each));
    needed.push_back(this->needed(each));
  }
  TransferPlan plan = plan_transfer(ranks, owned, needed, rank, grid());
  for (auto& [receiver, box] : plan.sends) box = parts_->reads(parts_->consumer.owned(receiver), box);
  for (auto& [sender, box] : plan.recvs) box = parts_->reads(parts_->consumer.owned(rank), box);
  for (auto* messages : {&plan.sends, &plan.recvs})
    std::erase_if(*messages, [](const Transfer& message) { return message.box.empty(); });
  return plan;
}

// It is enough to look at the ranks that differ from rank 0 along these axes. Along other axes ranks exchange nothing,
// and rank 0 has the largest block.
bool Halo::none() const {
  const auto ranks = grid().group(0, parts_->axes);
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return owned(rank).contains(needed(rank)); });
}

std::string Halo::widths() const {
  std::string text;
  const Shape& shape = parts_->owner.shape();
  for (int d = 0; d < shape.dims(); ++d) {
    if (!is_spatial(shape.name(d))) continue;
    Index below = 0, above = 0;
    for (const int rank : grid().group(0, parts_->axes)) {
      const Box owned = this->owned(rank), needed = this->needed(rank);
      if (needed.empty()) continue;
      if (owned.empty()) {  // everything that it needs comes from other ranks
        above = std::max(above, needed.extent(d));
        continue;
      }
      below = std::max(below, owned[d].lo - needed[d].lo);
      above = std::max(above, needed[d].hi - owned[d].hi);
    }
    if (below > 0 || above > 0) text += fmt::format("{}{} {}+{}", text.empty() ? "" : " ", shape.name(d), below, above);
  }
  return text;
}

Halo halo_of_inputs(const Layout& x, const Layout& y, std::span<const Window> windows) {
  auto reads = [of = Slides(windows, x.shape())](const Box& out, const Box& within) {
    return inputs_of(of.windows(), out, within);
  };
  return {x, y, std::move(reads), axes_of_windows(x, y, windows)};
}

Halo halo_of_outputs(const Layout& x, const Layout& y, std::span<const Window> windows) {
  auto reads = [of = Slides(windows, y.shape())](const Box& in, const Box& within) {
    return outputs_of(of.windows(), in, within);
  };
  return {y, x, std::move(reads), axes_of_windows(x, y, windows)};
}

}  // namespace partita
