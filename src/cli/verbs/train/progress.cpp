#include "src/cli/verbs/train/progress.hpp"

#include "src/system/clock.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace partita::cli {

namespace {

constexpr double seconds_between_lines = 10, most_seconds_between_lines = 600;
constexpr double seconds_between_bars = 0.1;

constexpr int briefest = 4;

/// What follows the number of the step. 1 shortens words, 2 leaves out the learning rate, 3 the speed too, and 4
/// (`briefest`) the accuracy too.
std::string print_state(const StepRecord& step, double images_per_second, double seconds_left, int brief) {
  std::string text = fmt::format("loss {:.4f}", step.result.loss);
  if (!std::isnan(step.result.accuracy) && brief < 4)
    text += fmt::format("  {} {:.2f}%", brief > 0 ? "acc" : "accuracy", 100 * step.result.accuracy);
  if (step.learning_rate > 0 && brief < 2) text += fmt::format("  rate {:.3g}", step.learning_rate);
  if (brief < 3) text += fmt::format("  {:.0f} {}", images_per_second, brief > 0 ? "img/s" : "images/s");
  return text + fmt::format("  {} left", print_duration(seconds_left));
}

/// The width of the terminal; 80 if it is not known.
int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string print_result(double loss, double accuracy) {
  return std::isnan(accuracy) ? fmt::format("loss {:.4f}", loss)
                              : fmt::format("loss {:.4f}  accuracy {:.2f}%", loss, 100 * accuracy);
}

std::string print_duration(double seconds) {
  const auto whole = static_cast<Index>(std::ceil(std::max(seconds, 0.0)));
  const Index hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string print_progress(const char* what, const StepRecord& step, double images_per_second, double seconds_left) {
  return fmt::format("{} {}  step {}/{}  {}", what, step.epoch, step.step, step.steps,
                     print_state(step, images_per_second, seconds_left, 0));
}

std::string print_progress(const char* what, const StepRecord& step, double images_per_second, double seconds_left,
                           int columns) {
  constexpr int widest = 30, narrowest = 5;
  const std::string head = fmt::format("{} {} ", what, step.epoch);
  std::string tail;
  int room = -1;  // beside head and tail
  for (int brief = 0; brief <= briefest && room < 0; ++brief) {
    tail = fmt::format("{}/{}  {}", step.step, step.steps, print_state(step, images_per_second, seconds_left, brief));
    room = columns - static_cast<int>(head.size() + tail.size());
  }
  room -= 3;  // the brackets and the space of the bar
  if (room < narrowest) return (head + tail).substr(0, static_cast<std::size_t>(std::max(columns, 0)));
  const Index width = std::min(room, widest), filled = width * step.step / std::max<Index>(step.steps, 1);
  return fmt::format("{}[{}{}] {}", head, std::string(static_cast<std::size_t>(filled), '#'),
                     std::string(static_cast<std::size_t>(width - filled), '.'), tail);
}

void ProgressPace::start(Index step, double time) {
  step_ = step;
  time_ = time;
}

bool ProgressPace::shows(Index step, Index steps, double time) {
  const double waited = time - time_;
  const bool due = terminal_ ? waited >= seconds_between_bars
                             : (waited >= seconds_between_lines && 10 * (step - step_) >= steps) ||
                                   waited >= most_seconds_between_lines;
  if (due) start(step, time);
  return due;
}

// The launcher of Open MPI always gives a rank a terminal for standard output, even if its own output goes to a file.
// It gives a pipe for standard error. So there is a terminal only if both are terminals.
ProgressBar::ProgressBar(bool shown)
    : shown_(shown), terminal_(isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0), pace_(terminal_) {}

void ProgressBar::step(const char* what, const StepRecord& step) {
  if (!shown_) return;
  const double time = now();
  const bool begins = step.step <= last_ || last_ == 0;
  last_ = step.step;
  if (begins) {  // a resumed epoch does not begin with step 1
    first_ = step.step;
    samples_ = 0;
    started_ = time;
    pace_.start(step.step, time);
    return;
  }
  samples_ += step.samples;
  if (!pace_.shows(step.step, step.steps, time)) return;
  const double spent = time - started_, rate = static_cast<double>(samples_) / spent;
  const double left = spent / static_cast<double>(step.step - first_) * static_cast<double>(step.left);
  if (terminal_)
    fmt::print("\r{}\x1b[K", print_progress(what, step, rate, left, terminal_columns() - 1));
  else
    fmt::print("{}\n", print_progress(what, step, rate, left));
  std::fflush(stdout);
}

void ProgressBar::count(const char* what, Index done, Index all) {
  if (shown_ && terminal_ && done == all) return clear();
  const double time = now();
  if (!shown_ || time - counted_ < (terminal_ ? seconds_between_bars : seconds_between_lines)) return;
  if (counted_ > 0) fmt::print(fmt::runtime(terminal_ ? "\r{} {}/{}\x1b[K" : "{} {}/{}\n"), what, done, all);
  std::fflush(stdout);
  counted_ = time;
}

void ProgressBar::clear() {
  if (shown_ && terminal_) fmt::print("\r\x1b[K");
}

}  // namespace partita::cli
