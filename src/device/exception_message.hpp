#pragma once

#include <string>

namespace partita {

/// Returns what the exception that is being handled says. If memory ran out, this is a sentence with sizes and
/// remedies. For what is not a std::exception, or says nothing, it names the type. It is never empty.
/// @pre A catch block calls it.
std::string message_of_exception();

}  // namespace partita
