#pragma once

#include "src/device/capture.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace partita::cuda {

/// An event, and the capture in which it was recorded last: 0 for none.
struct CardEvent {
  cudaEvent_t event = nullptr;
  std::uint64_t capture = 0;
};

/// While it lives, calls that allocate memory do not end a capture of this thread.
class AllowAllocation {
 public:
  AllowAllocation();
  ~AllowAllocation();
  AllowAllocation(const AllowAllocation&) = delete;
  AllowAllocation& operator=(const AllowAllocation&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // that of the thread, while this lives
};

/// A copy from pinned memory, as a node of a graph.
struct CapturedCopy {
  cudaGraphNode_t node = nullptr;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
};

/// Captures the operations of a card as CUDA graphs, on the thread of the rank that uses the card.
class CardCapture final : public Capture {
 public:
  /// `streams` are those of `card`; the same thread may add more. Both outlive this object and its graphs.
  CardCapture(Device& card, const std::vector<cudaStream_t>& streams) : card_(card), streams_(streams) {}

  void begin(Stream stream) override;
  std::unique_ptr<Graph> end() override;
  bool active() const override { return number_ != 0; }
  /// The number of the present capture; 0 if there is none.
  std::uint64_t number() const { return number_; }
  /// Calls `release`, which gives memory back, when nothing captured can use it any more.
  void release_later(std::function<void()> release) { released_.push_back(std::move(release)); }
  /// Notes that a copy from pinned memory was just added to a stream.
  void add_copy(const void* from, void* to, std::size_t bytes, cudaStream_t stream);
  /// Lets all streams wait for each other.
  void join_streams(Stream origin) const;

 private:
  Device& card_;
  const std::vector<cudaStream_t>& streams_;
  Stream origin_;
  std::uint64_t number_ = 0, count_ = 0;
  std::vector<CapturedCopy> copies_;
  std::vector<std::function<void()>> released_;
};

}  // namespace partita::cuda
