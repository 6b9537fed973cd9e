#pragma once

#include "partita/comm/counting.hpp"
#include "src/device/capture.hpp"
#include "src/train/executor/executor.hpp"

#include <optional>

namespace partita {

/// A step up to its update that a device has captured, and what the CPU did in it besides.
struct Executor::CapturedStep {
  Allocator::State start;  ///< of the allocator, when it began
  double scale = 1;        ///< of the loss
  /// From where the graph copies the batch of a microbatch; null for a part without bytes.
  struct Brought {
    int microbatch = 0;
    const void *images = nullptr, *target = nullptr;
  };
  std::vector<Brought> brought;
  std::optional<Brought> sent;  ///< the first microbatch of the next step, if the graph lets it travel
  TrafficCounter traffic;       ///< of one launch
  std::vector<int> losses;
  // What the update reads.
  std::optional<ReleasedTensor> results;
  std::vector<ReleasedTensor> sums, statistics;
  std::unique_ptr<Graph> graph;
};

}  // namespace partita
