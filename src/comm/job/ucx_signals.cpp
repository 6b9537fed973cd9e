#include "src/comm/job/ucx_signals.hpp"

#include <dlfcn.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace partita {

void give_back_ucx_signals() {
  static std::atomic<bool> done = false;  // UCX warns of a signal that it no longer has
  if (done.exchange(true)) return;
  const auto give_back = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "ucs_debug_disable_signal"));
  if (give_back == nullptr) return;  // no UCX in this process
  if (std::getenv("UCX_DEBUG_SIGNO") == nullptr) give_back(SIGHUP);
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr || std::getenv("UCX_ERROR_SIGNALS") != nullptr) return;
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) give_back(signal);
}

}  // namespace partita
