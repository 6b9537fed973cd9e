#pragma once

#include "partita/train/batch.hpp"

#include <algorithm>
#include <functional>
#include <memory>

namespace partita {

/// Brings the first microbatch of each step to a device while the step before computes:
///
///     stream of the steps   x = here    compute ...       | x = here    compute ...
///     stream of its own              here = next batch    |
///
/// So a batch takes memory twice: where it arrives, and where the step reads it and may release it.
class Arrival {
 public:
  /// The steps run on the stream of `allocator`.
  explicit Arrival(std::shared_ptr<Allocator> allocator);

  /// A step begins. If its batch has not come during the step before, it comes now, as `read()` returns it.
  void expect(const std::function<Batch()>& read);
  /// Where the batch lies until take() has copied it.
  const Batch& here() const { return here_; }
  /// Returns a copy of the batch, which the step may release.
  Batch take() const;
  /// After the copies of take(), the batch of the next step is copied to the device. The caller keeps its memory, which
  /// is of the device's staging, until the step has ended.
  void send(const Batch& next);
  /// The stream of the steps waits until what was sent has arrived.
  void join() const;
  /// The step has ended. `sent`: the batch of the next one has come meanwhile. Otherwise the memory is freed.
  void end_step(bool sent);
  /// No step will take what was sent: waits until it has arrived, and drops it.
  void forget();

 private:
  std::shared_ptr<Allocator> allocator_;
  Device& device_;
  Stream stream_;
  Batch here_;
  Batch first_;  // on the CPU: what expect() copies
  bool has_arrived_ = false;
  Event arrived_;
};

/// What is done for later steps while a device computes the present one.
struct Ahead {
  Arrival& arrival;
  Batch next;                       ///< the first microbatch of the next step; empty if it shall not travel yet
  std::function<void()> meanwhile;  ///< what the CPU does
  bool sends() const {
    return next.target || std::any_of(next.images.begin(), next.images.end(), [](const Tensor& x) { return bool{x}; });
  }
};

}  // namespace partita
