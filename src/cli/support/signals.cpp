#include "src/cli/support/signals.hpp"

#include <atomic>

namespace partita::cli {

namespace {

// Any thread may get a signal, and the main thread asks.
std::atomic<bool> term_came = false, user_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use it");

void note_signal(int number) { (number == SIGTERM ? term_came : user_came) = true; }

}  // namespace

SignalWatch::SignalWatch() {
  term_came = false;
  user_came = false;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &old_term_);
  sigaction(SIGUSR1, &action, &old_user_);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGUSR1, &old_user_, nullptr);
}

Requests SignalWatch::take() { return {.save = user_came.exchange(false), .stop = term_came.exchange(false)}; }

}  // namespace partita::cli
