#pragma once

#include "partita/base/types.hpp"

#include <condition_variable>
#include <deque>
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
  using Read = std::function<void(Index sample, std::span<float> out)>;

  /// `read` fills the `size` numbers of a sample. It is called on the other thread.
  /// @pre everything that `read` uses outlives this object.
  Prefetch(std::vector<Index> order, std::size_t size, Read read);
  /// Ends the thread after the sample that it is reading.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// If `sample` is the next one in the order, waits for it and returns true; rethrows the error if reading failed.
  /// Returns false for any other sample, which the caller must read itself.
  bool take(Index sample, std::span<float> out);

 private:
  void run();

  std::vector<Index> order_;
  std::size_t size_, ahead_;
  Read read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> ready_;  // the samples from position next_ of the order on
  std::size_t next_ = 0;
  std::exception_ptr failed_;
  bool ended_ = false;
  std::thread thread_;  // last: it starts when everything else is initialized
};

}  // namespace partita
