#include "src/cli/verbs/train/step_log.hpp"

#include "partita/base/error.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/system/real_path.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace partita::cli {

namespace {

/// Returns the step of a whole row of a log; 0 for anything else, such as half a row.
Index step_of(const std::string& row) {
  Index step = 0;
  const auto comma = row.find(',');
  if (std::count(row.begin(), row.end(), ',') != std::count(StepLog::header.begin(), StepLog::header.end(), ','))
    return 0;
  std::from_chars(row.data() + comma + 1, row.data() + row.size(), step);
  return step;
}

/// Returns the header and the rows up to step `last` of a log.
std::string rows_up_to(Index last, const std::string& text) {
  std::string kept = fmt::format("{}\n", StepLog::header);
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));  // without half a row that a killed run left
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line))
    if (const Index step = step_of(line); step >= 1 && step <= last) kept += line + "\n";
  return kept;
}

std::string old_text(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) ? read_text("--log", path) : "";
}

}  // namespace

void StepLog::check(const std::string& path) {
  if (path.empty()) return;
  check_writable({{"--log", path}});
  check_no_stream("--log", path);
  std::error_code error;
  if (std::filesystem::exists(path, error) && access(path.c_str(), W_OK) != 0)
    fail("--log {}: it cannot be written: {}", path, reason());
  const std::string text = old_text(path);
  if (!text.empty() && text.substr(0, text.find('\n')) != header)
    fail("--log {}: this file exists and is not a log of a training, so it is not replaced; give another name", path);
}

StepLog::StepLog(const std::string& path, Index steps_done) : path_(real_path(path)), file_(nullptr, std::fclose) {
  write_text("--log", path, rows_up_to(steps_done, steps_done > 0 ? old_text(path) : ""));
  file_.reset(std::fopen(path_.c_str(), "a"));
  if (!file_) fail("--log {}: it cannot be written: {}", path, reason());
}

void StepLog::add(const StepRecord& step) {
  if (!file_) return;
  const auto number = [](double value) { return std::isnan(value) ? "" : fmt::format("{}", value); };
  const std::string row =
      fmt::format("{},{},{},{},{},{},{},{}\n", step.epoch, step.done, fmt::format("{}", step.result.loss),
                  number(step.result.accuracy), step.learning_rate, step.seconds,
                  static_cast<double>(step.samples) / step.seconds, step.result.gradient_norm);
  if (std::fputs(row.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0) return;
  fmt::print(stderr, "note: --log {}: it cannot be written: {}; the training goes on without it\n", path_, reason());
  file_.reset();
}

}  // namespace partita::cli
