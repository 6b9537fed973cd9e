#include "src/cli/verbs/train/kept_checkpoints.hpp"

#include "partita/base/error.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"
#include "src/system/real_path.hpp"

#include <charconv>
#include <filesystem>
#include <string_view>

namespace partita::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view mark = ".step";

/// Returns the step in the name of a checkpoint that was kept, or -1.
Index step_of(std::string_view kept, const fs::path& path) {
  const std::string prefix = path.stem().string() + std::string(mark), suffix = path.extension().string();
  if (!kept.starts_with(prefix) || !kept.ends_with(suffix) || kept.size() <= prefix.size() + suffix.size()) return -1;
  const std::string_view digits = kept.substr(prefix.size(), kept.size() - prefix.size() - suffix.size());
  Index step = -1;
  const auto [rest, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return problem == std::errc() && rest == digits.data() + digits.size() ? step : -1;
}

}  // namespace

KeptCheckpoints::KeptCheckpoints(const std::string& path, Index count, Index there)
    : path_(real_path(path)), count_(count) {
  const fs::path folder = fs::path(path_).parent_path();
  std::error_code problem;  // of a folder that cannot be listed: then what is there stays
  for (fs::directory_iterator file(folder.empty() ? "." : folder, problem), end; !problem && file != end;
       file.increment(problem))
    if (const Index step = step_of(file->path().filename().string(), path_);
        step >= 0 && step < there && same_run(path_, file->path().string()))
      steps_.insert(step);
}

std::string KeptCheckpoints::name(Index step) const {
  const fs::path path(path_);
  return (path.parent_path() / fmt::format("{}{}{}{}", path.stem().string(), mark, step, path.extension().string()))
      .string();
}

std::string KeptCheckpoints::keep(Index step) {
  const std::string to = name(step);
  std::error_code problem;
  if (fs::exists(to, problem)) {
    if (!same_run(path_, to)) return to + " is there, and is no checkpoint of this run; move it away";
    fs::remove(to, problem);
  }
  fs::create_hard_link(path_, to, problem);
  if (problem)
    return fmt::format("it cannot get the second name {} ({}); save to a file system with hard links", to,
                       problem.message());
  steps_.insert(step);
  return "";
}

void KeptCheckpoints::drop_oldest() {
  while (std::ssize(steps_) >= count_) {
    std::error_code ignored;  // somebody else has removed it
    fs::remove(name(*steps_.begin()), ignored);
    steps_.erase(steps_.begin());
  }
}

}  // namespace partita::cli
