#include "src/cli/verbs/plan/files.hpp"

#include "partita/base/error.hpp"
#include "src/cli/files/text_file.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace partita::cli {

namespace {

std::string file_name(const std::string& prefix, int number) { return fmt::format("{}-{}.toml", prefix, number); }

/// The prefixes of all files, one for each number of ranks.
std::vector<std::string> prefixes(const PlanOptions& options) {
  const std::string prefix = plan_prefix(options);
  if (options.rank_counts.size() == 1) return {prefix};
  std::vector<std::string> all;
  for (const int ranks : options.rank_counts) all.push_back(fmt::format("{}-{}", prefix, ranks));
  return all;
}

}  // namespace

std::string plan_prefix(const PlanOptions& options) { return options.out.empty() ? "plan" : options.out; }

void check_files(const PlanOptions& options) {
  constexpr int most = 1000;  // larger numbers are refused later
  for (const auto& prefix : prefixes(options)) {
    for (int i = 1; options.out.empty() && i <= std::min(options.best, most); ++i)
      if (std::error_code error; std::filesystem::exists(file_name(prefix, i), error))
        fail("{} exists; give another prefix with --out PREFIX, or replace it with --out {}", file_name(prefix, i),
             plan_prefix(options));
    check_writable({{"--out", file_name(prefix, 1)}});
  }
}

std::vector<std::string> write_strategies(const std::string& prefix, const std::vector<Planned>& found) {
  std::vector<std::string> names;
  for (const Planned& each : found)
    write_text("--out", names.emplace_back(file_name(prefix, static_cast<int>(names.size()) + 1)),
               each.strategy.print());
  return names;
}

void print_machine(const MachineFiles& files, const std::vector<std::string>& notes) {
  fmt::print("machine  {}\n", files.machine.name);
  if (!files.note.empty()) fmt::print("note     {}\n", files.note);
  for (const auto& note : notes) fmt::print("note     {}\n", note);
}

}  // namespace partita::cli
