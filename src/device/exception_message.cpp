#include "src/device/exception_message.hpp"

#include "partita/device/memory.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <typeinfo>

namespace partita {

namespace {

/// Returns the name of the type of the exception that is being handled.
std::string type_of_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "unknown";
  int status = 0;
  char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type->name();
  std::free(name);
  return text;
}

}  // namespace

std::string message_of_exception() {
  std::string message;
  try {
    throw;
  } catch (const OutOfMemory& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return out_of_memory_text("memory could not be allocated");
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    return fmt::format("an exception of type '{}', which is not a std::exception and has no message",
                       type_of_exception());
  }
  return message.empty() ? fmt::format("an exception of type '{}' without a message", type_of_exception()) : message;
}

}  // namespace partita
