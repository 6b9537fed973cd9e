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

/// Reads samples in the order in which they will be asked for, a few ahead, on a thread of its own.
class Prefetch {
 public:
  using Read = std::function<void(Index sample, std::span<float> out)>;

  /// `read` fills `size` numbers of a sample; it is called on the other thread, and must live as long as this.
  Prefetch(std::vector<Index> order, std::size_t size, Read read);
  /// Ends the thread after the sample that it is at.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// The sample, if it is the next one in the order: then waits for it, and rethrows what stopped the reading. False for
  /// another one, which is left to the caller.
  bool take(Index sample, std::span<float> out);

 private:
  void run();

  std::vector<Index> order_;
  std::size_t size_, ahead_;
  Read read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> ready_;  // from position next_ of the order on
  std::size_t next_ = 0;
  std::exception_ptr failed_;
  bool ended_ = false;
  std::thread thread_;  // last: it begins when all else is there
};

}  // namespace partita
