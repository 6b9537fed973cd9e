#include "src/cli/support/signals.hpp"

namespace partita::cli {

namespace {

volatile std::sig_atomic_t term_came = 0, user_came = 0;

void note_signal(int number) { (number == SIGTERM ? term_came : user_came) = 1; }

}  // namespace

SignalWatch::SignalWatch() {
  term_came = 0;
  user_came = 0;
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

Requests SignalWatch::take() {
  const Requests asked{.save = user_came != 0, .stop = term_came != 0};
  if (asked.save) user_came = 0;
  if (asked.stop) term_came = 0;
  return asked;
}

}  // namespace partita::cli
