#include "src/cli/support/signals.hpp"

#include <atomic>

namespace partita::cli {

namespace {

// Any thread may get a signal, and the main thread asks.
std::atomic<bool> term_came = false, user_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use it");

void note_signal(int number) { (number == SIGTERM ? term_came : user_came) = true; }

}  // namespace

SignalWatch::SignalWatch(int number) : number_(number) {
  (number == SIGTERM ? term_came : user_came) = false;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number_, &action, &old_);
}

SignalWatch::~SignalWatch() { sigaction(number_, &old_, nullptr); }

Requests SignalWatch::take() { return {.save = user_came.exchange(false), .stop = term_came.exchange(false)}; }

}  // namespace partita::cli
