#pragma once

#include "src/train/trainer/run_memory.hpp"
#include "src/train/trainer/sample_order.hpp"

#include <algorithm>
#include <functional>

namespace partita {

/// The samples of which a rank reads images (or targets), in the order of reading.
class Announced {
 public:
  /// `box_of` returns the box that the rank reads of a microbatch of a plan.
  Announced(const RunMemory::PlanOf& plan_of, const SampleOrder& order, Index batch, bool training, Index count,
            const std::function<Box(const Plan& plan, int microbatch)>& box_of,
            const std::shared_ptr<Allocator>& allocator)
      : memory_(Allocator::allocate(allocator, count * Index{sizeof(Index)}, MemoryClass::data, Fill::none)) {
    auto* next = reinterpret_cast<Index*>(memory_.get());
    for (Index first = 0; first < order.size(); first += batch) {
      const Plan& plan = plan_of(std::min(batch, order.size() - first), training);
      for (int m = 0; m < plan.microbatches; ++m) {
        const Interval mine = box_of(plan, m)[0];
        for (Index n = mine.lo; n < mine.hi; ++n) *next++ = order[first + plan.samples(m).lo + n];
      }
    }
    samples_ = {reinterpret_cast<const Index*>(memory_.get()), next};
    require(static_cast<Index>(samples_.size()) == count, "the list has as many samples as were counted");
  }
  std::span<const Index> samples() const { return samples_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::span<const Index> samples_;
};

}  // namespace partita
