// Schedules as files: they read back as they were written, and errors name file, line and cell.
#include "partita/strategies/schedule/generators.hpp"
#include "partita/strategies/schedule/validate.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

namespace partita::test::csv_test {
namespace {

using Kind = Action::Kind;

TEST(Csv, ComesBack) {
  ScheduleRequest request;
  request.stages = 4;
  request.microbatches = 6;
  for (const ScheduleKind kind : pipeline_kinds()) {
    request.kind = kind;
    const Schedule schedule = generate(request);
    EXPECT_EQ(parse_csv(print_csv(schedule), "x").stages, schedule.stages) << name(kind);
  }
  EXPECT_EQ(parse_csv("0F0,,0I0,\"0W0\"\r\n,1F0,(1B0;1F1)OVERLAP_F_B\n\n", "x").stages,
            (std::vector<std::vector<Action>>{
                {{Kind::forward, 0, 0}, {Kind::backward_data, 0, 0}, {Kind::backward_filter, 0, 0}},
                {{Kind::forward, 1, 0}, {Kind::backward, 1, 0}, {Kind::forward, 1, 1}}}));
}

TEST(Csv, IdleStagesAndEditorsMarks) {
  const Schedule idle = parse_csv("0F0,0B0\n,,\n1F0,1B0\n\n", "x");
  ASSERT_EQ(idle.stages.size(), 3U);
  EXPECT_TRUE(idle.stages[1].empty());
  EXPECT_EQ(parse_csv(print_csv(idle), "x").stages, idle.stages);
  EXPECT_EQ(parse_csv("\xEF\xBB\xBF"
                      "0F0,0B0\n",
                      "x")
                .stages,
            parse_csv("0F0,0B0\n", "x").stages);
}

TEST(Csv, SaysWhatIsWrong) {
  const auto error = [](const std::string& csv) { return error_of([&] { parse_csv(csv, "x.csv"); }); };
  EXPECT_EQ(error("0F0\n1F0,1X0\n"),
            "x.csv, line 2, cell 2: \"1X0\": there is no action X; there are F, B, I, W and R");
  EXPECT_EQ(error("0F\n"),
            "x.csv, line 1, cell 1: \"0F\" has no microbatch; write an action as \"2F0\": group, what, microbatch");
  EXPECT_EQ(error("F0\n"),
            "x.csv, line 1, cell 1: \"F0\" is not an action; write one as \"2F0\": group, what, microbatch");
  EXPECT_EQ(error("0SEND_F0\n"), "x.csv, line 1, cell 1: \"0SEND_F0\" is derived from the schedule; remove it");
  EXPECT_EQ(error("0F0,,0WAIT_SEND_F0\n"),
            "x.csv, line 1, cell 3: \"0WAIT_SEND_F0\" is derived from the schedule; remove it");
  EXPECT_EQ(error("\n\n"), "x.csv: it contains no actions");
  for (const std::string empty : {"", " ", "\r", "\n"})
    EXPECT_EQ(error("0F0,0B0\n" + empty + "\n1F0,1B0\n"),
              "x.csv, line 2: an empty line is a stage without actions; remove it, or write commas for a stage that "
              "idles");
  EXPECT_EQ(error("0F99999999999\n"),
            "x.csv, line 1, cell 1: \"0F99999999999\" has no microbatch; write an action as \"2F0\": group, what, "
            "microbatch");
  EXPECT_EQ(
      error("900F9000\n"),
      "x.csv: 901 groups and 9001 microbatches are named, which need 8109901 forwards; there are 1 actions in all");
  EXPECT_EQ(error("-1F0,0F0,0B0\n"), "x.csv, line 1, cell 1: \"-1F0\": group -1; the least is 0");
  EXPECT_EQ(error("(0F0;1B0)\n"),
            "x.csv, line 1, cell 1: \"(0F0;1B0)\" is not a pair; write it as \"(0F1;3B0)OVERLAP_F_B\"");
}

TEST(Csv, CountsCellsAsTheFileHasThem) {
  const auto error = [](const std::string& csv) {
    return error_of([&] { check_schedule(parse_csv(csv, "x.csv"), GroupGraph(2), true); });
  };
  // Idle cells and lines count; a pair is one cell.
  EXPECT_EQ(error("0F0,,0B0,,0F0\n,1F0,1B0\n"),
            "x.csv, line 1, cell 5: stage 0: 0F0 comes twice\n  stage 0: 0F0 0B0 [0F0]\n  stage 1: 1F0 1B0 (done)");
  EXPECT_EQ(error(",\n0F0,0F1,0B0,0B1\n,,1F0,(1F1;1B0)OVERLAP_F_B,1B1,1B0\n"),
            "x.csv, line 3, cell 6: stage 2: 1B0 comes twice\n  stage 0: (done)\n  stage 1: 0F0 0F1 0B0 0B1 (done)\n"
            "  stage 2: 1F0 1F1 1B0 1B1 [1B0]");
  EXPECT_EQ(error("0F0,0F1,0B0,0B1\n,,\n,1F0,(1B0;1B1)OVERLAP_F_B\n"), "x.csv, line 3: stage 2: 1F1 is missing");
  Schedule longer = parse_csv("0F0,0B0\n1F0,1B0\n", "x.csv");
  longer.stages[1].push_back({Kind::forward, 1, 0});  // in no cell
  EXPECT_EQ(error_of([&] { check_complete(longer, GroupGraph(2), true); }),
            "x.csv, line 2: stage 1: 1F0 comes twice\n  stage 0: 0F0 0B0 (done)\n  stage 1: 1F0 1B0 [1F0]");
}

}  // namespace
}  // namespace partita::test::csv_test
