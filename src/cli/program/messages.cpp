#include "src/cli/program/messages.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/communicator.hpp"
#include "src/device/exception_message.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace partita::cli {

Failure present_failure() {
  try {
    throw;
  } catch (const RunFailed& error) {
    return {error.what(), run_failed};
  } catch (const Error& error) {
    return {error.what(), user_error};
  } catch (const DeviceError& error) {
    return {error.what(), run_failed};
  } catch (const CommunicationError& error) {
    return {error.what(), run_failed};
  } catch (...) {
    return {message_of_exception(), EXIT_FAILURE};
  }
}

void complain(std::string_view message) {
  const auto shown = isatty(STDERR_FILENO) != 0 ? message : message.substr(0, message.find('\n'));
  std::fputs(fmt::format("partita: {}\n", shown).c_str(), stderr);  // fmt::print would throw if that is full
  std::fflush(stderr);
}

void print_note(std::string_view note) {
  if (!note.empty()) std::fputs(fmt::format("note: {}\n", note).c_str(), stderr);
}

}  // namespace partita::cli
