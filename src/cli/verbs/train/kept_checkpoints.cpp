#include "src/cli/verbs/train/kept_checkpoints.hpp"

#include "partita/base/error.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"

#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

namespace partita::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view mark = ".step";

/// Returns the step in the name of a checkpoint that was kept, or -1.
Index step_of(const fs::path& kept, const fs::path& path) {
  const std::string stem = kept.stem().string(), prefix = path.stem().string() + std::string(mark);
  if (kept.extension() != path.extension() || !stem.starts_with(prefix)) return -1;
  Index step = -1;
  const char *begin = stem.data() + prefix.size(), *end = stem.data() + stem.size();
  const auto [rest, problem] = std::from_chars(begin, end, step);
  return problem == std::errc() && rest == end && *begin != '-' ? step : -1;
}

}  // namespace

KeptCheckpoints::KeptCheckpoints(std::string path, Index count, bool continues)
    : path_(std::move(path)), count_(count) {
  const fs::path folder = fs::path(path_).parent_path();
  if (!continues) return;
  for (const auto& file : fs::directory_iterator(folder.empty() ? "." : folder))
    if (const Index step = step_of(file.path(), path_); step >= 0 && same_run(path_, file.path().string()))
      steps_.insert(step);
}

std::string KeptCheckpoints::name(Index step) const {
  const fs::path path(path_);
  return (path.parent_path() / fmt::format("{}{}{}{}", path.stem().string(), mark, step, path.extension().string()))
      .string();
}

void KeptCheckpoints::keep(Index step) {
  const std::string to = name(step);
  std::error_code problem;
  if (fs::exists(to, problem)) {
    if (!same_run(path_, to))
      fail("--keep {}: {} is there, and is no checkpoint of this run; move it away, or save to another name", count_,
           to);
    fs::remove(to, problem);
  }
  fs::create_hard_link(path_, to, problem);
  if (problem)
    fail("--keep {}: {} cannot get the second name {} ({}); save to another file system, or leave the option out",
         count_, path_, to, problem.message());
  steps_.insert(step);
}

void KeptCheckpoints::drop_oldest() {
  while (std::ssize(steps_) >= count_) {
    std::error_code ignored;  // somebody else has removed it
    fs::remove(name(*steps_.begin()), ignored);
    steps_.erase(steps_.begin());
  }
}

}  // namespace partita::cli
