#include "src/cli/program/completion.hpp"

#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "src/base/plain_text.hpp"
#include "src/cli/options/command_line.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

/// The words that an option takes; none if its value is free.
std::vector<std::string> choices(const std::string& option) {
  if (option == "model") return builtin_models();
  if (option == "dtype") return {"f64", "f32", "bf16", "f16"};
  if (option == "backend") return {"auto", "onednn", "reference"};
  if (option == "device") return {"cpu", "cuda", "cuda:0"};
  if (option == "transport") return {"staged", "nccl"};
  if (option == "data") return {"fashion-mnist", "hdf5", "text", "synthetic"};
  if (option == "decay") return {"none", "linear", "cosine"};
  if (option == "optimizer") return {"sgd", "adagrad", "rmsprop", "adam", "adamw", "lars", "lamb"};
  if (option != "kind" && option != "kinds") return {};
  std::vector<std::string> kinds;
  for (const ScheduleKind kind : pipeline_kinds()) kinds.emplace_back(name(kind));
  return kinds;
}

/// What the value of an option is called in its help, e.g. "FILE"; "" for a switch.
std::string value_of(const po::option_description& option) {
  const std::string text = is_switch(option) ? "" : option.semantic()->name();
  const auto end = std::find_if(text.begin(), text.end(), [](char c) { return !is_letter(c) && !is_digit(c); });
  return {text.begin(), end};
}

/// The program's name as part of a shell function's name.
std::string function_name(const std::string& program) {
  std::string text = "_" + program;
  for (char& c : text)
    if (!is_letter(c) && !is_digit(c)) c = '_';
  return text;
}

std::vector<std::string> dashed_options(const VerbOptions& verb) {
  std::vector<std::string> words{"--help"};
  for (const auto* option : verb.listed()) words.push_back("--" + option->long_name());
  return words;
}

/// Options of all verbs that take the words of choices() or a folder, each once.
std::string bash_values(const std::vector<VerbOptions>& verbs) {
  std::vector<std::string> done;
  std::string text;
  for (const auto& verb : verbs)
    for (const auto* option : verb.listed()) {
      const std::string& name = option->long_name();
      const auto words = is_switch(*option) ? std::vector<std::string>{} : choices(name);
      const bool folder = value_of(*option) == "DIR";
      if ((words.empty() && !folder) || std::find(done.begin(), done.end(), name) != done.end()) continue;
      done.push_back(name);
      const std::string generator = folder ? "-d" : fmt::format("-W \"{}\"", fmt::join(words, " "));
      text += fmt::format("    --{}) mapfile -t COMPREPLY < <(compgen {} -- \"$word\"); return ;;\n", name, generator);
    }
  return text;
}

std::string print_bash(const std::string& program, const std::vector<VerbOptions>& verbs) {
  std::string names, options;
  for (const auto& verb : verbs) {
    names += fmt::format("{} ", verb.entry->name);
    options += fmt::format("    {}) words=\"{}\" ;;\n", verb.entry->name, fmt::join(dashed_options(verb), " "));
  }
  return fmt::format(R"(# bash completion of {program}: written by `{program} completion bash`.
{function}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "{names}--help --version" -- "$word")
    return
  fi
  case $before in
{values}  esac
  case ${{COMP_WORDS[1]}} in
{options}  esac
  case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
  esac
}}
complete -o default -F {function} {program}
)",
                     fmt::arg("program", program), fmt::arg("function", function_name(program)),
                     fmt::arg("names", names), fmt::arg("values", bash_values(verbs)), fmt::arg("options", options));
}

/// Quotes a text for a specification of zsh's _arguments inside single quotes.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      quoted += std::string("\\") + c;
    else
      quoted += c;
  }
  return quoted;
}

/// The specification of one option, e.g. '--dtype[data type]:TYPE:(f64 f32)'.
std::string zsh_option(const po::option_description& option) {
  const std::string& name = option.long_name();
  const std::string value = value_of(option), text = zsh_text(option.description());
  if (is_switch(option)) return fmt::format("'--{}[{}]'", name, text);
  const auto words = choices(name);
  std::string action = " ";
  if (!words.empty())
    action = fmt::format("({})", fmt::join(words, " "));
  else if (value == "DIR")
    action = "_files -/";
  else if (value == "FILE" || value == "PAGE" || value == "PREFIX")
    action = "_files";
  const bool list = option.semantic()->max_tokens() > 1;
  return fmt::format("'{}--{}[{}]{}:{}:{}'", takes_several(option) ? "*" : "", name, text, list ? ":*-*" : "", value,
                     action);
}

std::string print_zsh(const std::string& program, const std::vector<VerbOptions>& verbs) {
  std::string names, options;
  for (const auto& verb : verbs) {
    names += fmt::format("    '{}:{}'\n", verb.entry->name, zsh_text(verb.entry->summary));
    options += fmt::format("    {})\n      _arguments \\\n        '--help[this text]' \\\n", verb.entry->name);
    for (const auto* option : verb.listed()) options += fmt::format("        {} \\\n", zsh_option(*option));
    options += "        '*:FILE:_files'\n      ;;\n";
  }
  return fmt::format(R"(#compdef {program}
# zsh completion of {program}: written by `{program} completion zsh`.
{function}() {{
  local -a verbs
  verbs=(
{names}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{options}  esac
}}
if [ "$funcstack[1]" = "{function}" ]; then
  {function} "$@"
else
  compdef {function} {program}
fi
)",
                     fmt::arg("program", program), fmt::arg("function", function_name(program)),
                     fmt::arg("names", names), fmt::arg("options", options));
}

}  // namespace

std::string print_completion(std::string_view shell, const std::string& program,
                             const std::vector<VerbOptions>& verbs) {
  if (shell == "bash") return print_bash(program, verbs);
  if (shell == "zsh") return print_zsh(program, verbs);
  fail("there is no completion for the shell '{}'; write `{} completion bash` or `{} completion zsh`", shell, program,
       program);
}

}  // namespace partita::cli
