#pragma once

#include "src/cli/options/command.hpp"
#include "src/cli/program/messages.hpp"

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// The words of a command line. --options FILE is replaced by the options of the file that the command line does not
/// give itself. --SWITCH=true and --SWITCH=false are accepted too, so that a command line can turn off a switch that
/// the file turns on.
class CommandWords {
 public:
  /// Reads the file. Throws nothing: see check().
  CommandWords(int argc, char** argv, const Program& program);
  CommandWords(const CommandWords&) = delete;
  CommandWords& operator=(const CommandWords&) = delete;

  /// Throws the Error that reading the file gave, if any. The constructor keeps it, so that all ranks can agree on it.
  void check() const;
  const std::vector<std::string>& words() const { return words_; }
  /// The name of the verb; "" if there is none.
  std::string verb() const { return words_.size() > 1 ? words_[1] : ""; }
  /// True if the words have this option, alone or as in --ranks=4.
  bool has(std::string_view option) const;
  /// The long names of the switches that the command line or the file turns off. words() leaves them out.
  const std::set<std::string>& switched_off() const { return off_; }
  /// Returns "" or a note about keys of the file that only other verbs have.
  const std::string& note() const { return note_; }
  /// As present_failure(). If an error names an option of the file, the file and the line are added to its first line.
  Failure failure() const;

 private:
  std::string with_place(std::string_view message) const;
  struct Place {
    std::string option, where;
  };
  void expand(const Program& program);

  std::vector<std::string> words_;
  std::vector<Place> places_;
  std::set<std::string> off_;
  std::string error_, note_;
};

}  // namespace partita::cli
