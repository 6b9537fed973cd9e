#pragma once

namespace partita {

/// Something that was started in shared memory and goes on as its ranks make progress.
class SharedOperation {
 public:
  virtual ~SharedOperation() = default;
  virtual bool done() const = 0;
  /// Somebody waits for it from now on.
  virtual void await() const {}
};

}  // namespace partita
