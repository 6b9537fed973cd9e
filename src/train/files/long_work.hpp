#pragma once

#include "partita/comm/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>

namespace partita {

/// As agree_or_throw(), for work that may take longer than a rank waits for others (--timeout), such as writing a large
/// file. f runs on another thread. Meanwhile the ranks exchange signs of life, so that none waits for long.
/// Collective: every rank of `comm` calls it.
/// @pre f does not communicate.
inline void agree_on_long_work(Communicator& comm, const std::function<void()>& f) {
  using std::chrono::milliseconds;
  std::future<void> work;
  agree_or_throw(comm, [&] { work = std::async(std::launch::async, f); });  // the system may have no thread left
  double busy = 1;
  for (milliseconds pause(1); busy > 0; pause = std::min(2 * pause, milliseconds(100))) {
    busy = work.wait_for(pause) == std::future_status::ready ? 0 : 1;
    comm.all_reduce(&busy, 1, DType::f64, ReduceOp::max, {}).wait();
  }
  agree_or_throw(comm, [&] { work.get(); });
}

}  // namespace partita
