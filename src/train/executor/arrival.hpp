#pragma once

#include "partita/train/batch.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace partita {

/// Brings the first microbatch of each step to a device while the step before computes:
///
///     stream of the steps   x = here       compute ...          | x = here   ...
///     stream of its own                here = next batch        |
///
/// So a batch takes memory twice: once where it arrives, once where the step reads it and may release it.
class Arrival {
 public:
  /// The steps run on the stream of `allocator`.
  explicit Arrival(std::shared_ptr<Allocator> allocator);

  /// A step begins. If its batch has not come during the step before, it comes now, as `read()` returns it.
  void expect(const std::function<Batch()>& read);
  /// Returns the batch in memory that the step may release.
  Batch take() const;
  /// Behind what take() has read, the batch of the next step begins to travel. It lies in staging memory, and stays
  /// there until the step ends.
  void send(const Batch& next);
  /// The step has ended. `sent`: the batch of the next one has come meanwhile. Otherwise the memory is freed.
  void end_step(bool sent);

 private:
  std::shared_ptr<Allocator> allocator_;
  Device& device_;
  Stream stream_;
  Batch here_, traveling_;
  bool come_ = false;
  Event arrived_;
};

/// What is done for later steps while a device computes the present one.
struct Ahead {
  Arrival& arrival;
  Batch next;                       ///< the first microbatch of the next step; empty if it shall not travel yet
  std::function<void()> meanwhile;  ///< what the CPU does
  bool sends() const { return next.images || next.target; }
};

}  // namespace partita
