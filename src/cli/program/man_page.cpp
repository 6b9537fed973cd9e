#include "src/cli/program/man_page.hpp"

#include "src/base/plain_text.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/version.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

constexpr const char* revised = "2026-11-24";  // when the fixed text of the page was last changed

/// Escapes text for troff: backslashes, dashes (which would become hyphens), and a dot or quote that begins a line.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

/// A tagged paragraph for an option: "--batch N (=128)".
std::string print_option(const po::option_description& option) {
  std::string tag = "\\fB\\-\\-" + escaped(option.long_name()) + "\\fR";
  if (!is_switch(option)) tag += " \\fI" + escaped(option.semantic()->name()) + "\\fR";
  return fmt::format(".TP\n{}\n{}\n", tag, escaped(option.description()));
}

std::string print_verb(const VerbOptions& verb, const std::string& program) {
  std::string text = fmt::format(".SS {} {}\nThe verb \\fB{}\\fR {}.\n", escaped(program), verb.entry->name,
                                 verb.entry->name, escaped(verb.entry->summary));
  if (*verb.entry->example != '\0')
    text +=
        fmt::format(".PP\n.nf\n.RS\n{}\n.RE\n.fi\n", escaped(fmt::format(fmt::runtime(verb.entry->example), program)));
  if (verb.passes_to)
    text += fmt::format(".PP\nOptions of \\fB{}\\fR are passed to every run. Its own options are:\n",
                        verb.entry->passes_options);
  for (const auto& option : verb.own.options())
    if (option->long_name() != "help") text += print_option(*option);
  return text;
}

constexpr const char* ending = R"(.SH EXIT STATUS
.TP
0
The command did what it was asked to do.
.TP
1
The program has a bug.
.TP
2
The command was refused before anything ran. One line on standard error says why and what to do.
.TP
3
The command failed while it ran.
.SH FILES
.TP
\fB$XDG_CACHE_HOME/partita\fR, \fB$HOME/.cache/partita\fR
Measured choices of kernels.
.SH ENVIRONMENT
.TP
\fBXDG_CACHE_HOME\fR, \fBHOME\fR
They say where measured choices of kernels are stored.
.TP
\fBTMPDIR\fR
The folder for temporary files of the verb \fBscale\fR.
)";

}  // namespace

std::string print_man_page(const std::string& program, const std::vector<VerbOptions>& verbs) {
  std::string title = program;
  std::transform(title.begin(), title.end(), title.begin(), upper_case);
  std::string text = fmt::format(
      ".\\\" Written by `{0} man`.\n.TH {1} 1 \"{3}\" \"Partita {2}\" \"User Commands\"\n.SH NAME\n{0} \\- trains "
      "neural networks partitioned over many processors, and predicts the cost\n.SH SYNOPSIS\n\\fB{0}\\fR \\fIVERB\\fR "
      "[\\fIoptions\\fR]\n.SH DESCRIPTION\nThe verb says what to do. \\fB{0}\\fR \\fIVERB\\fR \\fB\\-\\-help\\fR "
      "prints its options, \\fB{0} \\-\\-version\\fR the version. A file of options (\\fB\\-\\-options\\fR) is TOML: "
      "its keys are the long names of options, arrays give several values, and true or false sets a switch.\n.SH "
      "VERBS\n",
      escaped(program), escaped(title), version, revised);
  for (const auto& verb : verbs) text += print_verb(verb, program);
  return text + ending;
}

}  // namespace partita::cli
