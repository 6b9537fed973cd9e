// The files of curves (CSV and event files), and the choice of the best epoch.
#include "src/cli/verbs/train/best_epoch.hpp"
#include "src/cli/verbs/train/event_file.hpp"
#include "src/cli/verbs/train/step_log.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace partita::cli::curves_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Curves : public testing::Test {
 protected:
  Curves() : folder_(fs::path(testing::TempDir()) / fmt::format("partita-curves-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~Curves() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string text(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

  fs::path folder_;
};

StepRecord step(Index done, double accuracy = 0.5) {
  return {.epoch = 2,
          .step = done,
          .steps = 8,
          .done = done,
          .samples = 4,
          .result = {0.25, accuracy, 1.5},
          .learning_rate = 0.125,
          .seconds = 2};
}

std::string rows(std::initializer_list<Index> steps) {
  std::string text = fmt::format("{}\n", StepLog::header);
  for (const Index each : steps) text += fmt::format("2,{},0.25,0.5,0.125,2,2,1.5\n", each);
  return text;
}

TEST_F(Curves, ALogHasARowPerStepAtOnce) {
  StepLog log(path("log.csv"), 0);
  EXPECT_EQ(text(path("log.csv")), rows({}));
  log.add(step(1));
  EXPECT_EQ(text(path("log.csv")), rows({1})) << "while the log is open";
  log.add(step(2, nan));
  EXPECT_EQ(text(path("log.csv")), rows({1}) + "2,2,0.25,,0.125,2,2,1.5\n") << "values have no accuracy";
}

TEST_F(Curves, ALogGoesOnWhereTheCheckpointWas) {
  put(path("log.csv"), rows({1, 2, 3, 4}) + "2,5,0.2");  // killed in the middle of a row, after a checkpoint of step 2
  StepLog(path("log.csv"), 2).add(step(3));
  EXPECT_EQ(text(path("log.csv")), rows({1, 2, 3}));
  StepLog(path("log.csv"), 0).add(step(1));
  EXPECT_EQ(text(path("log.csv")), rows({1})) << "a new training begins anew";
  StepLog(path("other.csv"), 7).add(step(8));
  EXPECT_EQ(text(path("other.csv")), rows({8})) << "a log that did not exist";
}

TEST_F(Curves, ALogReplacesNoOtherFile) {
  put(path("notes.txt"), "do not lose this\n");
  expect_error([&] { StepLog::check(path("notes.txt")); }, {"--log", "notes.txt", "is not a log"});
  put(path("log.csv"), rows({1}));
  StepLog::check(path("log.csv"));
  StepLog::check(path("none.csv"));
  expect_error([&] { StepLog::check(path("nowhere/log.csv")); }, {"nowhere", "cannot be written"});
  expect_error([&] { StepLog::check("/dev/stdout"); }, {"/dev/stdout", "regular file"});
}

TEST(EventFile, HasCastagnolisChecksum) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0U);
}

TEST_F(Curves, EventFilesAreFramedRecords) {
  EventFile(path("tb/new"), 0).add(1, {{"train/loss", 0.5}, {"train/accuracy", nan}});
  const auto file = fs::directory_iterator(path("tb/new"))->path();
  EXPECT_EQ(file.filename().string().rfind("events.out.tfevents.", 0), 0U) << file;
  const std::string all = text(file.string());
  std::size_t at = 0, records = 0;
  for (; at < all.size(); ++records) {
    const auto length = static_cast<unsigned char>(all[at]);  // below 128
    EXPECT_EQ(all.substr(at + 1, 7), std::string(7, '\0'));
    at += 8 + 4 + std::size_t{length} + 4;
  }
  EXPECT_EQ(at, all.size());
  EXPECT_EQ(records, 2U) << "the version and one step";
  EXPECT_NE(all.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(all.find("train/loss"), std::string::npos);
  EXPECT_EQ(all.find("train/accuracy"), std::string::npos) << "what is not a number is left out";
  put(path("file"), "");
  expect_error([&] { EventFile(path("file"), 0); }, {"--tensorboard", "file"});
}

TEST(BestEpoch, IsTheLowestAndPatienceCountsFromIt) {
  BestEpoch best(2);
  EXPECT_TRUE(best.add(1, 3));
  EXPECT_TRUE(best.add(2, 2));
  EXPECT_FALSE(best.add(3, 2)) << "equal is not lower";
  EXPECT_FALSE(best.exhausted());
  BestEpoch resumed(2);
  resumed.restore(best.print());
  for (BestEpoch* each : {&best, &resumed}) {
    EXPECT_EQ(each->epoch(), 2);
    EXPECT_EQ(each->loss(), 2);
    EXPECT_FALSE(each->add(4, nan));
    EXPECT_TRUE(each->exhausted());
    EXPECT_TRUE(each->add(5, 1.5));
    EXPECT_FALSE(each->exhausted());
  }
  BestEpoch endless(0);
  endless.restore("something else");
  for (Index epoch = 1; epoch < 100; ++epoch) endless.add(epoch, 1);
  EXPECT_EQ(endless.epoch(), 1);
  EXPECT_FALSE(endless.exhausted());
}

}  // namespace
}  // namespace partita::cli::curves_test
