#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace partita {

/// A rule for names: those that match the pattern get a value. Later rules win.
struct NameRule {
  std::string match;  ///< a name, or a pattern with * and ?
  int value = 0;
};

/// A name, and the values that it may get: bit v of `accepts` stands for value v. With 0, no rule may match it.
struct NamedChoice {
  std::string name;
  std::uint64_t accepts = 0;
  bool free = false;  ///< it may get any value, or none
};

/// Returns a short list of rules that gives every name a value that it accepts. A beam search writes lists from their
/// beginning, so that the exceptions to a rule follow it: each further rule leaves fewer names with a wrong value, and
/// the lists that leave the fewest are kept. Read from its end, the result is a decision list (Rivest 1987). Patterns
/// have * for some neighboring parts of a name, or before and after some, and ? for one part of one character. Parts
/// end where letters, digits and other characters meet.
/// @pre The names are distinct, and the values are 0 to 63.
std::vector<NameRule> cover_names(const std::vector<NamedChoice>& choices);

}  // namespace partita
