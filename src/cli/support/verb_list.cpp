#include "src/cli/support/verb_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace partita::cli {

namespace {

constexpr VerbText verbs[]{
    {"train", "trains the model on the ranks that mpiexec started, or on --ranks N threads",
     "mpiexec -n 4 {0} train --strategy hybrid.toml"},
    {"evaluate", "prints the loss and accuracy of a saved model on the test set", ""},
    {"explain",
     "prints the layouts, communication and memory of each layer under a strategy; it runs in one process on any "
     "computer, without mpiexec",
     ""},
    {"compare", "predicts the step times of several strategies, and says which is fastest and why",
     "{0} compare --strategies hybrid.toml spatial.toml --machine cluster.toml"},
    {"plan", "searches for the fastest strategies for a number of ranks and writes them to files",
     "{0} plan --model resnet50 --ranks 16 --machine cluster.toml --out best"},
    {"simulate",
     "writes what a step moves as input for SimGrid, and simulates it if SimGrid is installed: a second opinion on the "
     "price",
     "{0} simulate --strategy hybrid.toml --machine cluster.toml --out replay"},
    {"calibrate", "measures the machine that it runs on and writes a machine file",
     "mpiexec -n 2 {0} calibrate --out here.toml --strategies hybrid.toml"},
    {"schedule", "generates or reads a pipeline schedule, then validates, simulates and draws it",
     "{0} schedule --kind zb-h1 --stages 4 --microbatches 8"},
    {"scale", "measures strong or weak scaling; it starts every run itself",
     "{0} scale --ranks 1 2 4 --out results.json"},
    {"report", "turns JSON results of train, evaluate, scale and compare into one HTML page",
     "{0} report results.json --out page.html"},
    {"info", "prints versions, processor, memory, limits and settings, e.g. for a bug report", ""},
};

/// Breaks a text at spaces into lines of at most `width` columns.
std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    const auto space = text.rfind(' ', width);
    if (space == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

std::span<const VerbText> verb_list() { return verbs; }

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const auto& verb : verbs) names.emplace_back(verb.name);
  return names;
}

std::string print_usage(const std::string& program) {
  constexpr std::size_t column = 13, width = 100;
  std::string text = fmt::format("Usage: {} VERB [options]\n\nVerbs\n", program);
  for (const auto& [name, summary, example] : verbs) {
    const bool shown = *example != '\0';
    std::string left = fmt::format("  {:<{}}", name, column - 2);
    for (const auto& line : wrapped(std::string(summary) + (shown ? ":" : ""), width - column)) {
      text += left + line + "\n";
      left = std::string(column, ' ');
    }
    if (shown) text += fmt::format("{:15}{}\n", "", fmt::format(fmt::runtime(example), program));
  }
  return text +
         fmt::format("\n{0} VERB --help lists the options of a verb; {0} --version prints the version.\n", program);
}

}  // namespace partita::cli
