#pragma once

namespace partita {

/// An operation in shared memory that was started. It advances when its ranks call `progress`.
class SharedOperation {
 public:
  virtual ~SharedOperation() = default;
  virtual bool done() const = 0;
  /// Tells the operation that the rank now waits for it.
  virtual void await() const {}
};

}  // namespace partita
