#include "src/cli/support/progress.hpp"

#include "partita/base/clock.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace partita::cli {

namespace {

constexpr double seconds_between_lines = 10;
constexpr double seconds_between_bars = 0.1;

}  // namespace

std::string print_result(double loss, double accuracy) {
  return std::isnan(accuracy) ? fmt::format("loss {:.4f}", loss)
                              : fmt::format("loss {:.4f}  accuracy {:.2f}%", loss, 100 * accuracy);
}

// The launcher of Open MPI always gives a rank a terminal for standard output, even if its own output goes to a file.
// It gives a pipe for standard error. So there is a terminal only if both are terminals.
ProgressBar::ProgressBar(bool shown)
    : shown_(shown), terminal_(isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {}

void ProgressBar::step(const char* what, Index epoch, Index step, Index steps, const StepResult& result, Index batch) {
  if (!shown_) return;
  const double time = now();
  const bool begins = step <= last_ || last_ == 0;
  last_ = step;
  if (begins) {  // a resumed epoch does not begin with step 1
    first_ = step;
    started_ = time;
    printed_ = time;
    return;
  }
  if (time - printed_ < (terminal_ ? seconds_between_bars : seconds_between_lines)) return;
  printed_ = time;
  const double rate = static_cast<double>((step - first_) * batch) / (time - started_);
  if (terminal_) {
    constexpr Index width = 30;
    const auto filled = static_cast<std::size_t>(width * step / steps);
    const std::string bar = std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '.');
    fmt::print("\r{} {} [{}] {}/{}  {}  {:.0f} images/s\x1b[K", what, epoch, bar, step, steps,
               print_result(result.loss, result.accuracy), rate);
  } else {
    fmt::print("{} {}  step {}/{}  {}  {:.0f} images/s\n", what, epoch, step, steps,
               print_result(result.loss, result.accuracy), rate);
  }
  std::fflush(stdout);
}

void ProgressBar::measuring(Index done, Index all) {
  const double time = now();
  if (!shown_ || time - printed_ < (terminal_ ? seconds_between_bars : seconds_between_lines)) return;
  if (printed_ > 0)
    fmt::print(fmt::runtime(terminal_ ? "\rmeasuring kernels {}/{}\x1b[K" : "measuring kernels {}/{}\n"), done, all);
  std::fflush(stdout);
  printed_ = time;
  if (terminal_ && done == all) clear();
}

void ProgressBar::clear() {
  if (shown_ && terminal_) fmt::print("\r\x1b[K");
}

}  // namespace partita::cli
