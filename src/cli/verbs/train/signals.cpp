#include "src/cli/verbs/train/signals.hpp"

#include <atomic>
#include <mutex>

namespace partita::cli {

namespace {

// Any thread may get a signal, and the ranks ask.
std::atomic<bool> term_came = false, user_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use it");

/// How many ranks of this process watch a signal, and what it did before.
struct Watched {
  int watches = 0;
  struct sigaction before {};
};
std::mutex mutex;  // of these two
Watched term, user;

void note_signal(int number) { (number == SIGTERM ? term_came : user_came) = true; }

}  // namespace

SignalWatch::SignalWatch(int number) : number_(number) {
  const std::scoped_lock lock(mutex);
  Watched& watched = number_ == SIGTERM ? term : user;
  if (watched.watches++ > 0) return;
  (number_ == SIGTERM ? term_came : user_came) = false;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number_, &action, &watched.before);
}

SignalWatch::~SignalWatch() {
  const std::scoped_lock lock(mutex);
  Watched& watched = number_ == SIGTERM ? term : user;
  if (--watched.watches == 0) sigaction(number_, &watched.before, nullptr);
}

Requests SignalWatch::take() { return {.save = user_came.exchange(false), .stop = term_came.exchange(false)}; }

}  // namespace partita::cli
