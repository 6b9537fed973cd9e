// The line of progress, and how often it is shown. Times are given, so nothing waits.
#include "src/cli/verbs/train/progress.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace partita::cli::progress_test {
namespace {

const StepRecord third{.epoch = 3,
                       .step = 120,
                       .steps = 469,
                       .done = 1058,
                       .left = 349,
                       .samples = 128,
                       .result = {.loss = 0.25912, .accuracy = 0.9062},
                       .learning_rate = 0.05,
                       .seconds = 0.05};

TEST(Progress, HasRateLossLearningRateAndTimeLeft) {
  EXPECT_EQ(print_progress("epoch", third, 2643.4, 187),
            "epoch 3  step 120/469  loss 0.2591  accuracy 90.62%  rate 0.05  2643 images/s  3:07 left");
  StepRecord values = third;
  values.result.accuracy = std::numeric_limits<double>::quiet_NaN();
  values.learning_rate = 0;
  EXPECT_EQ(print_progress("test", values, 10, 1), "test 3  step 120/469  loss 0.2591  10 images/s  0:01 left")
      << "an evaluation of values";
}

TEST(Progress, FitsTheTerminal) {
  const std::string wide = print_progress("epoch", third, 2643, 187, 200);
  EXPECT_NE(wide.find("epoch 3 [#######.......................] 120/469  loss 0.2591"), std::string::npos) << wide;
  EXPECT_EQ(print_progress("epoch", third, 2643, 187, 79),
            "epoch 3 120/469  loss 0.2591  acc 90.62%  rate 0.05  2643 img/s  3:07 left");
  EXPECT_EQ(print_progress("epoch", third, 2643, 187, 45), "epoch 3 120/469  loss 0.2591  3:07 left");
  for (const int columns : {200, 120, 100, 90, 80, 40, 5, 0}) {
    const std::string line = print_progress("epoch", third, 2643, 187, columns);
    EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    EXPECT_EQ(line.substr(0, 5), std::string("epoch").substr(0, static_cast<std::size_t>(columns)));
  }
}

TEST(Progress, PrintsDurations) {
  EXPECT_EQ(print_duration(0), "0:00");
  EXPECT_EQ(print_duration(41.2), "0:42");
  EXPECT_EQ(print_duration(187), "3:07");
  EXPECT_EQ(print_duration(3729), "1:02:09");
  EXPECT_EQ(print_duration(100000), "27:46:40");
}

/// The steps of an epoch of `steps` steps that are shown, if each takes `seconds`.
std::vector<Index> shown(bool terminal, Index steps, double seconds) {
  ProgressPace pace(terminal);
  std::vector<Index> all;
  pace.start(1, seconds);
  for (Index step = 2; step <= steps; ++step)
    if (pace.shows(step, steps, static_cast<double>(step) * seconds)) all.push_back(step);
  return all;
}

TEST(Progress, IsSparseInAFile) {
  EXPECT_TRUE(shown(false, 400, 0.02).empty()) << "an epoch of 8 s";
  EXPECT_EQ(shown(false, 100, 0.5), (std::vector<Index>{21, 41, 61, 81})) << "every 10 s, not every tenth of 50 s";
  EXPECT_EQ(shown(false, 100, 5), (std::vector<Index>{11, 21, 31, 41, 51, 61, 71, 81, 91})) << "every tenth";
  EXPECT_EQ(shown(false, 100000, 1).front(), 601) << "every 10 minutes of a long epoch";
}

TEST(Progress, MovesOnATerminal) {
  EXPECT_EQ(shown(true, 41, 0.0625).size(), 20U) << "at most 10 times a second: every second step";
  EXPECT_EQ(shown(true, 5, 0.3), (std::vector<Index>{2, 3, 4, 5}));
}

}  // namespace
}  // namespace partita::cli::progress_test
