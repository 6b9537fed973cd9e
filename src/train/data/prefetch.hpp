#pragma once

#include "partita/base/types.hpp"
#include "src/train/data/sample_list.hpp"

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace partita {

/// Reads samples in the order in which they will be requested, a few ahead, on its own thread.
class Prefetch {
 public:
  using Read = std::function<void(Index sample, std::span<std::byte> out)>;

  /// `read` fills the `size` bytes of a sample. It is called on the other thread. `samples` is the size of the data
  /// set, from which `order` lists some.
  /// @pre everything that `read` uses outlives this object.
  Prefetch(std::span<const Index> order, Index samples, Index size, Read read);
  /// Ends the thread after the sample that it is reading.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// Returns the bytes of the order and of the samples that are kept ready, for an order of `count` samples of `size`
  /// bytes.
  static Index bytes(Index count, Index samples, Index size);
  Index bytes() const;

  /// If `sample` is the next one in the order, waits for it, shows it to `use` and returns true; rethrows the error if
  /// reading failed. Returns false for any other sample, which the caller must read itself.
  template <class Use>
  bool take(Index sample, const Use& use) {
    if (!wait_for(sample)) return false;
    use(std::span<const std::byte>(slot(next_)));
    release();
    return true;
  }

 private:
  void run();
  bool wait_for(Index sample);
  void release();
  std::span<std::byte> slot(std::size_t position) { return std::span(ring_).subspan(position % slots_ * size_, size_); }

  SampleList order_;
  std::size_t size_, slots_;
  std::vector<std::byte> ring_;  // position i of the order is kept in slot i % slots_
  Read read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t read_so_far_ = 0, next_ = 0;  // positions of the order: read; taken
  std::exception_ptr failed_;
  bool ended_ = false;
  std::thread thread_;  // last: it starts when everything else is initialized
};

}  // namespace partita
