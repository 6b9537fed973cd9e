#pragma once

#include "partita/comm/counting.hpp"
#include "src/device/capture.hpp"
#include "src/train/executor/executor.hpp"

#include <optional>
#include <vector>

namespace partita {

/// Where the tensors of a batch lie, images first; null for one without bytes.
using BatchPlaces = std::vector<const void*>;

/// A step up to its update that a device has captured, and what the CPU did in it besides.
struct Executor::CapturedStep {
  Allocator::State start;  ///< of the allocator, when it began
  double scale = 1;        ///< of the loss
  /// From where the graph copies the batch of a microbatch.
  struct Brought {
    int microbatch = 0;
    BatchPlaces from;
  };
  std::vector<Brought> brought;
  /// If the first microbatch of the next step travels in the graph: from where, and to where, from which the graph also
  /// takes that of the present step.
  std::optional<BatchPlaces> sent;
  BatchPlaces here;
  TrafficCounter traffic;  ///< of one launch
  std::vector<int> losses;
  // What the update reads.
  std::optional<ReleasedTensor> results;
  std::vector<ReleasedTensor> sums, statistics;
  std::unique_ptr<Graph> graph;
};

}  // namespace partita
