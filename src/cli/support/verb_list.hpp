#pragma once

#include <span>
#include <string>
#include <vector>

namespace partita::cli {

/// What `--help` says about a verb. In `example`, {0} stands for the program; "" for none.
struct VerbText {
  const char* name;
  const char* summary;  ///< what the verb does, after "NAME"
  const char* example;
};

/// All verbs, in the order of `--help`. The verbs `completion` and `man`, which only an installation needs, are left
/// out.
std::span<const VerbText> verb_list();
/// The names of verb_list().
std::vector<std::string> verb_names();
/// Returns the answer to `--help` without a verb.
std::string print_usage(const std::string& program);

}  // namespace partita::cli
