// Schedules as data: what the generators make, what the checks refuse, and that the simulator reproduces published
// numbers.
#include "partita/strategies/schedule/generators.hpp"
#include "partita/strategies/schedule/validate.hpp"
#include "strategies/schedule/simulation_order.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace partita::test::schedule_test {
namespace {

using Kind = Action::Kind;

ScheduleRequest request(const std::string& kind, int stages, int microbatches) {
  ScheduleRequest r;
  r.kind = parse_schedule_kind(kind);
  r.stages = stages;
  r.microbatches = microbatches;
  return r;
}

/// The kinds that support this number of stages.
std::vector<std::string> kinds_for(int stages) {
  std::vector<std::string> names;
  for (const ScheduleKind kind : pipeline_kinds())
    if (kind != ScheduleKind::chimera || stages % 2 == 0) names.emplace_back(name(kind));
  return names;
}

Simulation run(const ScheduleRequest& r) {
  const Schedule schedule = generate(r);
  const int groups = schedule.groups();
  return simulate(schedule, GroupGraph(groups),
                  equal_times(groups, default_groups_per_stage(r.kind), r.times, r.transfer));
}

std::vector<double> peaks(const std::string& kind, int stages, int microbatches) {
  const Schedule schedule = generate(request(kind, stages, microbatches));
  return peak_memory(schedule, std::vector<GroupMemory>(static_cast<std::size_t>(schedule.groups())));
}

TEST(Generators, EverySchedulePassesRendezvousIncluded) {
  for (const int stages : {1, 2, 3, 4, 5, 7, 8, 16})
    for (const auto& kind : kinds_for(stages))
      for (const int microbatches : {1, 2, 3, 4, 5, 8, 13, 16, 33}) {
        SCOPED_TRACE(fmt::format("{} of {} stages, {} microbatches", kind, stages, microbatches));
        const Schedule schedule = generate(request(kind, stages, microbatches));
        EXPECT_EQ(schedule.microbatches(), microbatches);
        EXPECT_EQ(static_cast<int>(schedule.stages.size()), stages);
        check_schedule(schedule, GroupGraph(schedule.groups()), true);
      }
}

TEST(Generators, UnequalTimesToo) {
  for (const int stages : {2, 3, 4, 8})
    for (const auto& kind : kinds_for(stages))
      for (const int microbatches : {2, 7, 12}) {
        auto r = request(kind, stages, microbatches);
        r.times = {3.0, 1.0, 0.3};
        r.transfer = 0.7;
        const Schedule schedule = generate(r);
        check_schedule(schedule, GroupGraph(schedule.groups()), true);
      }
}

// Qi et al. 2023, table 5 (arXiv 2401.10241).
TEST(Simulator, PublishedBubbleRates) {
  const auto rate = [](const std::string& kind, int stages, int microbatches, GroupTimes times, double transfer) {
    auto r = request(kind, stages, microbatches);
    r.times = times;
    r.transfer = transfer;
    r.filter_memory = 0.44;  // what a transformer layer of hidden size 5120, 40 heads and 1024 tokens keeps
    return run(r).bubble_rate();
  };
  const GroupTimes small{18.522, 18.086, 9.337}, large{11.347, 11.248, 8.132};
  EXPECT_NEAR(rate("1f1b", 8, 24, small, 0.601), 0.2431, 5e-5);
  EXPECT_NEAR(rate("zb-h1", 8, 24, small, 0.601), 0.1585, 5e-5);
  EXPECT_NEAR(rate("zb-h2", 8, 24, small, 0.601), 0.1083, 5e-5);
  EXPECT_LE(rate("zb-2p", 8, 24, small, 0.601), 0.0433 + 5e-5);
  EXPECT_NEAR(rate("1f1b", 16, 48, large, 0.377), 0.2552, 5e-5);
  EXPECT_NEAR(rate("zb-h1", 16, 48, large, 0.377), 0.1397, 5e-5);
  EXPECT_NEAR(rate("zb-h2", 16, 48, large, 0.377), 0.0672, 5e-5);
  EXPECT_LE(rate("zb-2p", 16, 48, large, 0.377), 0.0066);
  EXPECT_LE(rate("zb-1p", 8, 24, small, 0.601), 0.1585 + 5e-5);
  EXPECT_LE(rate("zb-1p", 16, 48, large, 0.377), 0.1397 + 5e-5);
}

TEST(Simulator, BubblesInClosedForm) {
  for (const int n : {2, 3, 4, 8})
    for (const int k : {1, 2, 3, 12}) {
      EXPECT_DOUBLE_EQ(run(request("gpipe", n, k)).bubble_rate(), (n - 1.0) / (n + k - 1.0));
      if (k >= n) {  // 1f1b is the same; zb-h1 has (p-1)(F+B-W) and zb-h2 none
        EXPECT_DOUBLE_EQ(run(request("1f1b", n, k)).bubble_rate(), (n - 1.0) / (n + k - 1.0));
        EXPECT_DOUBLE_EQ(run(request("zb-h1", n, k)).cost, 3.0 * k + n - 1);
      }
      if (k >= 2 * n) {
        EXPECT_NEAR(run(request("zb-v", n, k)).bubble_rate(), 0, 1e-12);
      }
    }
  for (const int n : {2, 4, 8, 16})  // Li and Hoefler 2021; forward and backward take equal time
    for (const int m : {n, 2 * n, 5 * n}) {
      auto r = request("chimera", n, m);
      r.times = {1, 0.5, 0.5};
      EXPECT_NEAR(run(r).bubble_rate(), (n - 2.0) / (2.0 * m + n - 2.0), 1e-12);
      const auto held = peaks("chimera", n, m);
      EXPECT_LE(*std::max_element(held.begin(), held.end()), n);
    }
  // At most a half and two thirds of 1f1b's bubble, and a little more if there are few stages.
  for (const int n : {4, 8, 16, 32}) {
    const auto bubble = [&](const std::string& kind) {
      const double rate = run(request(kind, n, 3 * n)).bubble_rate();
      return rate / (1 - rate);
    };
    EXPECT_LE(bubble("v-half"), 0.5 * bubble("1f1b")) << n;
    EXPECT_LE(bubble("v-min"), 0.72 * bubble("1f1b")) << n;
  }
  auto v4 = request("interleaved", 4, 16);
  v4.groups_per_stage = 4;
  const Schedule schedule = generate(v4);
  EXPECT_DOUBLE_EQ(simulate(schedule, GroupGraph(16), equal_times(16, 4, {}, 0)).cost, 3 * 16 + 3 * 3 / 4.0);
}

// The table of kinds in docs/pipelines.md: the bubble, and from which number of microbatches on it holds.
TEST(Simulator, BubblesFromSoManyMicrobatchesOn) {
  for (const int p : {2, 3, 4, 5, 8}) {
    const auto bubble = [&](const std::string& kind, int m) { return run(request(kind, p, m)).cost - 3.0 * m; };
    const auto expect = [&](const std::string& kind, double expected, int from) {
      for (int m = from; m <= from + 2 * p; ++m)
        EXPECT_NEAR(bubble(kind, m), expected, 1e-9) << kind << " " << p << " " << m;
      if (from > 1) {
        EXPECT_GT(bubble(kind, from - 1), expected + 1e-9) << kind << " " << p;
      }
    };
    expect("gpipe", 3 * (p - 1), 1);
    expect("1f1b", 3 * (p - 1), 1);
    expect("zb-h1", p - 1, p);
    expect("zb-1p", p - 1, p);
    for (const std::string kind : {"zb-h2", "zb-2p", "zb-v"}) expect(kind, 0, 2 * p - 1);
    expect("dualpipe-v", (p - 1) / 2.0, 2 * p);
    for (int m = p; m <= 3 * p; ++m) {
      EXPECT_LE(bubble("v-half", m), 1.5 * (p - 1)) << p << " " << m;
      EXPECT_NEAR(bubble("v-min", m), 2 * (p - 1), 0.5) << p << " " << m;
    }
  }
}

TEST(Simulator, PeakActivations) {
  EXPECT_EQ(peaks("gpipe", 4, 8), (std::vector<double>{8, 8, 8, 8}));
  EXPECT_EQ(peaks("1f1b", 4, 8), (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(peaks("zb-h1", 4, 8), (std::vector<double>{4, 3, 2, 1}));
  EXPECT_EQ(peaks("zb-h2", 4, 8), (std::vector<double>{7, 5, 3, 1}));
  EXPECT_EQ(peaks("interleaved", 4, 8), (std::vector<double>{11, 9, 7, 5}));  // in halves of a stage
  const auto most = [](const std::string& kind, int stages) {
    const auto all = peaks(kind, stages, 4 * stages);
    return *std::max_element(all.begin(), all.end()) / 2;
  };
  for (const int p : {4, 8, 16, 32}) {
    EXPECT_LE(most("zb-v", p), p);
    EXPECT_LE(most("v-half", p), p / 2.0 + 1);
    EXPECT_LE(most("v-min", p), p / 3.0 + 1.5);
    EXPECT_LE(most("dualpipe-v", p), p + 1);
  }
}

TEST(Simulator, MemoryLimitIsKept) {
  for (const std::string kind : {"zb-1p", "zb-v"})
    for (const int p : {2, 3, 4, 8})
      for (const double limit : {1.0, 2.0, 3.0, 5.0, 2.0 * p})
        for (const double filter : {0.0, 0.4, 1.0}) {
          auto r = request(kind, p, 9);
          r.memory_limit = limit;
          r.filter_memory = filter;
          const Schedule schedule = generate(r);
          const double share = schedule.groups() == p ? 1 : 0.5;
          check_schedule(schedule, GroupGraph(schedule.groups()), true,
                         std::vector<GroupMemory>(static_cast<std::size_t>(schedule.groups()), {share, filter * share}),
                         limit);
        }
}

TEST(Simulator, TransfersWithoutLengthHoldUpNoEqualStages) {
  for (const auto& kind : kinds_for(4)) {
    const Schedule schedule = generate(request(kind, 4, 8));
    const GroupGraph graph(schedule.groups());
    const auto times = equal_times(graph.groups(), 1, {}, 0);
    const Schedule whole = with_communication(schedule, graph, false);  // without gradient sums
    const Simulation with = simulate(whole, graph, times), without = simulate(schedule, graph, times);
    EXPECT_DOUBLE_EQ(with.makespan, without.makespan) << kind;
    EXPECT_DOUBLE_EQ(with.bubble_rate(), without.bubble_rate()) << kind;
    EXPECT_NEAR(with.idle(1), without.idle(1), 1e-9) << kind;
  }
}

// A stage may come late to a gradient that another one has sent, and hold that up.
TEST(Simulator, TransfersMakeNoScheduleFaster) {
  std::mt19937 random(5);
  for (const auto& kind : kinds_for(4))
    for (int i = 0; i < 5; ++i) {
      const Schedule schedule = generate(request(kind, 4, 8));
      const GroupGraph graph(schedule.groups());
      auto times = equal_times(graph.groups(), 1, {}, 0.25 * i);
      for (auto& each : times.groups)
        each = {1.0 + static_cast<double>(random() % 8), 1.0 + static_cast<double>(random() % 4), 1};
      const Schedule whole = with_communication(schedule, graph, false);
      EXPECT_GE(simulate(whole, graph, times).makespan, simulate(schedule, graph, times).makespan - 1e-9) << kind;
    }
}

// The second stage is slow. It receives the second microbatch after its first action, as its list says, although the
// first stage sends earlier.
TEST(Simulator, ATransferStartsWhenBothEndsHavePostedIt) {
  const GroupGraph graph(2);
  const Schedule whole{
      "one",
      {{{Kind::forward, 0, 0}, {Kind::send_output, 0, 0, 0, 1}, {Kind::forward, 0, 1}, {Kind::send_output, 0, 1, 0, 1}},
       {{Kind::receive_input, 1, 0, 0, 0},
        {Kind::forward, 1, 0},
        {Kind::receive_input, 1, 1, 0, 0},
        {Kind::forward, 1, 1}}}};
  const ScheduleTimes times{{{1, 0, 0}, {5, 0, 0}}, 2};
  const Simulation run = simulate(whole, graph, times);
  EXPECT_EQ(run.makespan, 1 + 2 + 5 + 2 + 5);
  const auto& last = run.stages[1].back();
  EXPECT_EQ(last.start, 1 + 2 + 5 + 2) << "sent at 2, but received from 8 on";
  EXPECT_EQ(run.critical, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {1, 3}}));
}

/// Three stages in a row. The first sends one output to each of the others, both at once.
struct ThreeStages {
  GroupGraph graph{3, {{0, 1}, {0, 2}, {1, 2}}};
  Schedule whole{"three",
                 {{{Kind::forward, 0, 0}, {Kind::send_output, 0, 0, 0, 1}, {Kind::send_output, 0, 0, 0, 2}},
                  {{Kind::receive_input, 1, 0, 0, 0}, {Kind::forward, 1, 0}, {Kind::send_output, 1, 0, 0, 2}},
                  {{Kind::receive_input, 2, 0, 0, 0}, {Kind::receive_input, 2, 0, 0, 1}, {Kind::forward, 2, 0}}}};
};

TEST(Simulator, TransfersOverTheSameLinksLeaveOneAfterTheOther) {
  const ThreeStages three;
  const auto seconds = [&](TransferTime first, TransferTime second) {
    return makespan(three.whole, three.graph,
                    {{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, 0, {{first, {}}, {second, {}}, {{1}, {}}}});
  };
  EXPECT_EQ(seconds({4}, {3}), 1 + 4 + 3 + 1) << "the second output leaves when the first one has left";
  EXPECT_EQ(seconds({4, 2}, {3, 2}), 1 + 4 + 1 + 1 + 1) << "without their latencies they leave in 2 + 1";
  EXPECT_EQ(seconds({4, 0, 1}, {6, 0, 0}), 1 + 6 + 1 + 0.) << "different links; the path by way of stage 1 takes 7 too";
}

TEST(Simulator, ABackwardWaitsForGradientsThatItsStageHasSent) {
  const GroupGraph graph(2);
  const Schedule whole{"two",
                       {{{Kind::forward, 0, 0},
                         {Kind::send_output, 0, 0, 0, 1},
                         {Kind::forward, 0, 1},
                         {Kind::send_output, 0, 1, 0, 1},
                         {Kind::receive_gradient, 0, 0, 0, 1},
                         {Kind::backward, 0, 0},
                         {Kind::receive_gradient, 0, 1, 0, 1},
                         {Kind::backward, 0, 1},
                         {Kind::reduce, 0, 0},
                         {Kind::step, 0, 0}},
                        {{Kind::receive_input, 1, 0, 0, 0},
                         {Kind::forward, 1, 0},
                         {Kind::receive_input, 1, 1, 0, 0},
                         {Kind::forward, 1, 1},
                         {Kind::backward, 1, 0},
                         {Kind::send_gradient, 1, 0, 0, 0},
                         {Kind::backward, 1, 1},
                         {Kind::send_gradient, 1, 1, 0, 0},
                         {Kind::reduce, 1, 0},
                         {Kind::step, 1, 0}}}};
  // Stage 1 has sent its second gradient at 2 + 4 x 1; stage 0 takes it after its own backward of 10.
  const std::vector<GroupTimes> groups{{1, 10, 0}, {1, 1, 0, 2, 5}};
  const Simulation run = simulate(whole, graph, {groups, 0, {{{0}, {1}}}});
  const auto ends = [&](std::size_t stage, std::size_t i) { return run.stages[stage][i].end; };
  EXPECT_EQ(ends(1, 4), 4) << "the first backward";
  EXPECT_EQ(ends(1, 6), 5 + 1) << "the second waits until the first gradient has arrived";
  EXPECT_EQ(ends(1, 8), 6 + 2) << "the sums wait for nothing";
  EXPECT_EQ(ends(0, 5), 5 + 10);
  EXPECT_EQ(ends(1, 9), 15 + 1 + 5) << "the update waits until the second gradient has arrived";
}

TEST(Simulator, TheSecondReplicaHasItsOwnTimes) {
  const GroupGraph graph(2);
  const Schedule both{
      "both",
      {{{Kind::forward, 0, 0, 0}, {Kind::forward, 1, 1, 1}}, {{Kind::forward, 0, 1, 1}, {Kind::forward, 1, 0, 0}}}};
  ScheduleTimes times{{{1, 0, 0}, {1, 0, 0}}, 0, {{{0.5}, {0.5}}}};
  EXPECT_EQ(makespan(both, graph, times), 2.5);
  times.second_groups = {{2, 0, 0}, {4, 0, 0}};
  times.second_edges = {{{3}, {3}}};
  EXPECT_EQ(makespan(both, graph, times), 2 + 3 + 4);
}

TEST(Simulator, AnOrderServesAllTimes) {
  const GroupTimes slow{3, 5, 4, 1, 2};
  for (const auto& kind : kinds_for(4)) {
    const Schedule schedule = generate(request(kind, 4, 6));
    const GroupGraph graph(schedule.groups());
    const Schedule whole = with_communication(schedule, graph, true);
    const SimulationOrder order(whole, graph);
    for (const double transfer : {0.0, 0.5, 2.0})
      for (const GroupTimes& stage : {GroupTimes{}, slow}) {
        const ScheduleTimes times = equal_times(schedule.groups(), schedule.groups() / 4, stage, transfer);
        const Simulation fresh = simulate(whole, graph, times);
        EXPECT_EQ(order.makespan(times), fresh.makespan) << kind;
        EXPECT_EQ(order.simulate(times).critical, fresh.critical) << kind;
      }
  }
}

TEST(Simulator, CriticalPathHasNoSlack) {
  for (const auto& kind : kinds_for(4)) {
    auto r = request(kind, 4, 6);
    r.transfer = 0.25;
    const Simulation s = run(r);
    double end = 0;
    for (const auto& [stage, position] : s.critical) {
      const auto& span = s.stages[stage][position];
      EXPECT_TRUE(span.start == end || std::abs(span.start - end - 0.25) < 1e-12) << kind;
      end = span.end;
    }
    EXPECT_EQ(end, s.makespan);
    EXPECT_EQ(s.stages[s.critical.front().first][s.critical.front().second].start, 0);
  }
}

/// Whether the lists can be run in order, found by trying: the slow way, written from the meaning of the actions.
bool can_run(const Schedule& schedule) {
  const int last = schedule.groups() - 1;
  std::set<std::tuple<Kind, int, int>> done;
  const auto did = [&](Kind kind, int group, int m) { return done.count({kind, group, m}) > 0; };
  const auto ready = [&](const Action& a) {
    const int g = a.group, m = a.microbatch;
    if (a.kind == Kind::forward) return g == 0 || did(Kind::forward, g - 1, m);
    if (a.kind == Kind::backward_filter) return did(Kind::backward_data, g, m);
    return did(Kind::forward, g, m) &&
           (g == last || did(Kind::backward, g + 1, m) || did(Kind::backward_data, g + 1, m));
  };
  std::vector<std::size_t> heads(schedule.stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < heads.size(); ++s)
      while (heads[s] < schedule.stages[s].size() && ready(schedule.stages[s][heads[s]])) {
        const Action& a = schedule.stages[s][heads[s]++];
        done.insert({a.kind, a.group, a.microbatch});
        moved = true;
      }
  }
  for (std::size_t s = 0; s < heads.size(); ++s)
    if (heads[s] < schedule.stages[s].size()) return false;
  return true;
}

TEST(Validator, SwapsThatBreakADependencyAreRejected) {
  std::mt19937 random(7);
  int broken = 0, fine = 0;
  for (const auto& kind : kinds_for(4)) {
    const Schedule schedule = generate(request(kind, 4, 5));
    const GroupGraph graph(schedule.groups());
    for (int i = 0; i < 300; ++i) {
      Schedule swapped = schedule;
      auto& list = swapped.stages[random() % swapped.stages.size()];
      const auto a = random() % list.size(), b = random() % list.size();
      std::swap(list[a], list[b]);
      const std::string error = error_of([&] { check_schedule(swapped, graph, true); });
      EXPECT_EQ(error.empty(), can_run(swapped)) << kind << "\n" << swapped.print() << error;
      ++(error.empty() ? fine : broken);
    }
  }
  EXPECT_GT(broken, 1000);
  EXPECT_GT(fine, 100);
}

TEST(Validator, NamesTheFirstWrongAction) {
  const GroupGraph chain(2);
  const auto error = [&](const std::string& csv) {
    return error_of([&] { check_schedule(parse_csv(csv, "x.csv"), chain, true); });
  };
  EXPECT_EQ(error("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(error("0B0,0F0\n1F0,1B0\n"),
            "x.csv, line 1, cell 1: stage 0: 0B0 comes before 0F0, which it needs\n  stage 0: [0B0] 0F0\n  stage 1: "
            "[1F0] 1B0");
  EXPECT_EQ(error("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "x.csv, line 1, cell 2: the stages wait for each other: stage 0 at 0B0 for 1B0, stage 1 at 1F1 for 0F1\n"
            "  stage 0: 0F0 [0B0] 0F1 0B1\n  stage 1: 1F0 [1F1] 1B0 1B1");
  EXPECT_EQ(error("0F0,0B0\n1F0\n"), "x.csv, line 2: stage 1: 1B0 is missing");
  EXPECT_EQ(error("0F0,0I0\n1F0,1B0\n"), "x.csv, line 1: stage 0: 0W0 is missing");
  EXPECT_EQ(error("0F0,0I0,0W0,0B0\n1F0,1B0\n"),
            "x.csv, line 1, cell 4: stage 0: there are 0B0 and 0I0, which is half of it");
  EXPECT_EQ(error("0F1,0B1\n1F1,1B1\n"), "x.csv, line 1: stage 0: 0F0 is missing");
  EXPECT_EQ(error("0F0,0B0\n"), "x.csv: group 1: no stage runs it");
  EXPECT_EQ(error("0F0,0B0,0F0\n1F0,1B0\n"),
            "x.csv, line 1, cell 3: stage 0: 0F0 comes twice\n  stage 0: 0F0 0B0 [0F0]\n  stage 1: 1F0 1B0 (done)");
  EXPECT_EQ(
      error("0F0,0B0\n1F0,1B0,0F1\n"),
      "x.csv, line 2, cell 3: stage 1: 0F1 belongs to a group that stage 0 runs; a group must be on one stage\n  stage "
      "0: 0F0 0B0 (done)\n  stage 1: "
      "1F0 1B0 [0F1]");
  EXPECT_EQ(error("0F0,0B0\n1F0,1B0\n2F0,2B0\n"),
            "x.csv, line 3, cell 1: stage 2: 2F0: there are 2 groups of layers, 0 to 1");
  EXPECT_EQ(
      error_of([&] { check_complete(parse_csv("0F0,0B0\n1F0\n", "x"), chain, false); }),
      "x, line 1, cell 2: stage 0: 0B0 must not be in a schedule without training\n  stage 0: 0F0 [0B0]\n  stage 1: "
      "1F0 (done)");
  EXPECT_EQ(error_of([&] {
              check_peak(generate(request("gpipe", 2, 3)), {{1, 0, 0}, {2, 0, 0}}, 5);
            }),
            "stage 1: it holds up to 6, more than the limit of 5");
  EXPECT_EQ(error_of([&] {
              check_peak(parse_csv("0F0,0F1\n1F0,1F1\n", "x.csv"), {{1, 0, 0}, {2, 0, 0}}, 3);
            }),
            "x.csv, line 2: stage 1: it holds up to 4, more than the limit of 3");
}

TEST(Validator, UnbufferedSendsThatWaitForEachOther) {
  // Both stages send before either receives. Posted together the transfers would pass.
  const GroupGraph chain(2);
  const auto transfer = [](Kind kind, int group, int m) { return Action{kind, group, m, 0, 1 - group}; };
  Schedule s{"x",
             {{{Kind::forward, 0, 0},
               transfer(Kind::send_output, 0, 0),
               {Kind::forward, 0, 1},
               transfer(Kind::send_output, 0, 1),
               {Kind::forward, 0, 2},
               transfer(Kind::receive_gradient, 0, 0),
               transfer(Kind::send_output, 0, 2)},
              {transfer(Kind::receive_input, 1, 0),
               {Kind::forward, 1, 0},
               {Kind::backward, 1, 0},
               transfer(Kind::send_gradient, 1, 0),
               {Kind::backward, 1, 9},
               transfer(Kind::receive_input, 1, 1),
               transfer(Kind::receive_input, 1, 2)}}};
  EXPECT_EQ(error_of([&] { check_rendezvous(s, chain); }),
            "the stages wait for each other: stage 0 at 0SEND_F1 for 1RECV_F1, stage 1 at 1SEND_B0 for 0RECV_B0\n"
            "  stage 0: 0F0 0SEND_F0 0F1 [0SEND_F1] 0F2 0RECV_B0 0SEND_F2\n"
            "  stage 1: 1RECV_F0 1F0 1B0 [1SEND_B0] 1B9 1RECV_F1 1RECV_F2");
  std::swap(s.stages[1][3], s.stages[1][4]);  // now next to the receives
  EXPECT_EQ(error_of([&] { check_rendezvous(s, chain); }), "");
  std::swap(s.stages[1][5], s.stages[1][6]);
  EXPECT_EQ(error_of([&] { check_rendezvous(s, chain); }),
            "stage 0 sends 0SEND_F1 to stage 1, which expects to receive 0SEND_F2");
}

TEST(Communication, SkipsGoStraightFromProducerToConsumer) {
  const GroupGraph unet(4, {{0, 1}, {1, 2}, {2, 3}, {0, 3}});
  for (const auto& kind : {"gpipe", "1f1b", "zb-h1"}) {
    const Schedule schedule = generate(request(kind, 4, 3));
    check_schedule(schedule, unet, true);
    const Schedule whole = with_communication(schedule, unet, true);
    int straight = 0;
    for (const auto& action : whole.stages[0]) straight += action.kind == Kind::send_output && action.peer == 3;
    EXPECT_EQ(straight, 3);
  }
  const Schedule one = with_communication(generate(request("1f1b", 2, 1)), GroupGraph(2), true);
  EXPECT_EQ(one.print(), "0F0 0SEND_F0 0RECV_B0 0B0 0reduce 0step\n1RECV_F0 1F0 1B0 1SEND_B0 1reduce 1step\n");
}

TEST(Generators, SayWhatTheyRefuse) {
  const auto error = [](auto change) {
    auto r = request("1f1b", 4, 8);
    change(r);
    return error_of([&] { generate(r); });
  };
  EXPECT_EQ(error_of([] { parse_schedule_kind("1f1d"); }),
            "there is no schedule '1f1d' (did you mean '1f1b'?); there are 'gpipe', '1f1b', 'interleaved', 'chimera', "
            "'zb-h1', 'zb-h2', 'zb-1p', 'zb-2p', 'zb-v', 'v-half', 'v-min', 'dualpipe-v'");
  EXPECT_EQ(error([](auto& r) { r.kind = ScheduleKind::single; }),
            "the schedule 'single' is one microbatch on one stage; name another kind");
  EXPECT_EQ(error([](auto& r) { r.stages = 0; }), "the number of stages is 0; it must be 1 to 16384");
  EXPECT_EQ(error([](auto& r) { r.kind = ScheduleKind::chimera, r.stages = 3; }),
            "the schedule 'chimera' needs an even number of stages, not 3: only then do the two directions fill "
            "each other's bubbles");
  EXPECT_EQ(error([](auto& r) { r.groups_per_stage = 2; }),
            "the schedule '1f1b' has 1 group per stage, not 2; 'interleaved' takes any number");
  EXPECT_EQ(error([](auto& r) { r.kind = ScheduleKind::zb_1p, r.memory_limit = 0.5; }),
            "the schedule 'zb-1p' has a memory limit of 0.5; one microbatch of a stage needs 1");
  EXPECT_EQ(error([](auto& r) { r.times.forward = 0; }), "the time of an action is 0; it must be more than 0");
}

}  // namespace
}  // namespace partita::test::schedule_test
