#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/cost/local_work.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/error_of.hpp"

namespace partita::test::kernel_times_test {

namespace {

constexpr const char* heading =
    "# seconds of kernels (forward, backward, its data half, its filter half), microbatches and those in flight, on ";

KernelTimes some() {
  KernelTimes times("a backend with 1 thread on \"a processor\" (12ab)");
  times.set("conv 3 filters, f32: x 1x2x8x8 w 3x2x3x3 y 1x3x8x8", {4, 2}, {1.5e-5, 3.25e-5, 2e-5, 0.0125});
  times.set("relu: x 1", {}, {0, 0, 0, 0});
  return times;
}

std::string works(const Model& model, const std::string& grid, const std::string& output, int layer, Index batch,
                  int rank) {
  const Plan plan = bound(model, all_as(grid, output), batch);
  return local_work(plan.layers[layer], rank, plan.workload);
}

}  // namespace

TEST(KernelTimes, ReadsWhatItPrints) {
  const KernelTimes times = some(), again = KernelTimes::parse(times.print(), "t.times");
  EXPECT_EQ(again.print(), times.print());
  EXPECT_EQ(again.where(), times.where());
  ASSERT_EQ(again.all().size(), 2U);
  const auto found = again.find("conv 3 filters, f32: x 1x2x8x8 w 3x2x3x3 y 1x3x8x8", {4, 2});
  ASSERT_TRUE(found.has_value());
  EXPECT_DOUBLE_EQ(found->forward, 1.5e-5);
  EXPECT_DOUBLE_EQ(found->backward, 3.25e-5);
  EXPECT_DOUBLE_EQ(found->backward_data, 2e-5);
  EXPECT_DOUBLE_EQ(found->backward_filter, 0.0125);
  EXPECT_TRUE(again.has("conv 3 filters, f32: x 1x2x8x8 w 3x2x3x3 y 1x3x8x8", {4, 2}));
  EXPECT_FALSE(again.find("relu", {}).has_value());
  EXPECT_TRUE(KernelTimes::parse(KernelTimes("x").print(), "").empty());
}

TEST(KernelTimes, MergingKeepsWhatIsThere) {
  KernelTimes times = some(), other("b");
  other.set("relu: x 1", {}, {1, 1, 1, 1});
  other.set("tanh: x 1", {}, {2, 2, 2, 2});
  times.merge(other);
  EXPECT_EQ(times.all().size(), 3U);
  EXPECT_EQ(times.find("relu: x 1", {})->forward, 0);
  EXPECT_EQ(times.find("tanh: x 1", {})->forward, 2);
}

TEST(KernelTimes, TheNearestLoopCounts) {
  KernelTimes times("here");
  times.set("relu: x 1", {1, 1}, {11, 0, 0, 0});
  times.set("relu: x 1", {4, 1}, {41, 0, 0, 0});
  times.set("relu: x 1", {4, 4}, {44, 0, 0, 0});
  times.set("relu: x 12", {3, 2}, {0, 0, 0, 0});  // other work whose name starts the same way
  for (const auto& [loop, forward] : {std::pair(Loop{1, 1}, 11),
                                      {{2, 1}, 11},
                                      {{3, 1}, 41},
                                      {{4, 1}, 41},
                                      {{2, 2}, 11},
                                      {{4, 2}, 41},
                                      {{3, 3}, 44},
                                      {{4, 3}, 44},
                                      {{4, 4}, 44}}) {
    EXPECT_EQ(times.find("relu: x 1", loop)->forward, forward) << loop.in_flight << " of " << loop.microbatches;
    EXPECT_EQ(times.has("relu: x 1", loop), *times.nearest("relu: x 1", loop) == loop);
  }
}

// With 1f1b, the first of two stages holds two microbatches at once; with gpipe it holds all of them. Of six
// microbatches the first four are timed.
TEST(KernelTimes, LoopsAreThoseOfTheSchedule) {
  const auto loops = [](const std::string& kind, int microbatches, bool recompute = false, bool training = true) {
    Strategy strategy;
    strategy.layer("*", {.recompute = recompute}).schedule(kind, microbatches);
    if (kind != "gpipe") strategy.group({"in", "a"}).group({"b", "loss"});
    const Plan plan = bound(two_convolutions(), strategy, 12, training);
    std::vector<Loop> all;
    for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) all.push_back(timed_loop(plan, stage));
    return all;
  };
  using Loops = std::vector<Loop>;
  EXPECT_EQ(loops("gpipe", 1), (Loops{{1, 1}}));
  EXPECT_EQ(loops("gpipe", 3), (Loops{{3, 3}}));
  EXPECT_EQ(loops("gpipe", 6), (Loops{{4, 4}}));
  EXPECT_EQ(loops("gpipe", 6, true), (Loops{{1, 1}})) << "with recomputation";
  EXPECT_EQ(loops("gpipe", 6, false, false), (Loops{{1, 1}})) << "without training nothing is kept";
  EXPECT_EQ(loops("1f1b", 6), (Loops{{4, 2}, {4, 1}}));
  EXPECT_EQ(loops("zb-h1", 6), (Loops{{4, 2}, {4, 1}}));
  EXPECT_EQ(loops("chimera", 6), (Loops{{3, 1}, {3, 1}})) << "each replica has half of the microbatches";
}

TEST(KernelTimes, RefusesWhatItCannotRead) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { static_cast<void>(KernelTimes::parse(text, "t.times")); });
  };
  const std::string head = std::string(heading) + "here\n", line = "1 2 3 4 2 1 relu: x 1\n";
  EXPECT_EQ(refusal(head + line), "");
  EXPECT_EQ(refusal(""), "t.times: the file is empty");
  EXPECT_EQ(refusal(line), "t.times, line 1: this file has no kernel times; its first line must begin with \"" +
                               std::string(heading) + "\"");
  for (const char* wrong : {"1 2 3 1 1 relu: x 1", "1 2 3 -4 1 1 relu", "1 2 3 nan 1 1 relu", "1 2 3 1e6 1 1 relu",
                            "1 2 3 inf 1 1 relu", "1,2,3,4 1 1 relu", "1 2 3 4", "1 2 3 4 1 1", "one 2 3 4 1 1 relu",
                            "", " 1 2 3 4 1 1 relu", "1 2 3 4x 1 1 relu", "1 2 3 4 relu", "1 2 3 4 1 relu",
                            "1 2 3 4 1 2 relu", "1 2 3 4 1 0 relu", "1 2 3 4 1.5 1 relu"})
    EXPECT_EQ(
        refusal(head + line + wrong + "\n"),
        "t.times, line 3: write four times in seconds, a step's microbatches, how many of them were in flight, and the "
        "work that was timed, separated by blanks")
        << wrong;
  EXPECT_EQ(
      refusal("# seconds of kernels (forward, backward, its data half, its filter half) on here\n1 2 3 4 relu\n"),
      "t.times, line 1: these times do not say how many microbatches were in flight; remove the file and calibrate "
      "again");
  EXPECT_EQ(refusal(head + "1 2 3 4 1 1 \n"), "t.times, line 2: it does not say what these times belong to");
  EXPECT_EQ(refusal(head + line + line), "t.times, line 3: relu: x 1 appears twice with 1 of 2 microbatches in flight");
  for (std::size_t length = 1; length < line.size(); ++length)
    EXPECT_NE(refusal(head + line.substr(0, length)), "") << "cut after " << length;
  EXPECT_EQ(refusal(head + "1 2 3 4 1 1 relu: x"), "t.times, line 2: the file is truncated here");
  EXPECT_EQ(refusal(head.substr(0, head.size() - 1)), "t.times, line 1: the file is truncated here");
}

TEST(KernelTimes, EqualBlocksAreEqualWork) {
  const Model model = two_convolutions();
  EXPECT_EQ(works(model, "data=2", "N@data", 1, 4, 0), works(model, "data=2", "N@data", 1, 4, 1));
  EXPECT_EQ(works(model, "data=2", "N@data", 1, 4, 0), works(model, "", "", 1, 2, 0)) << "under any strategy";
  EXPECT_EQ(works(model, "data=3", "N@data", 1, 4, 1), works(model, "data=3", "N@data", 1, 4, 2));
  EXPECT_NE(works(model, "data=3", "N@data", 1, 4, 0), works(model, "data=3", "N@data", 1, 4, 1)) << "2, 1 and 1";
  EXPECT_NE(works(model, "y=4", "H@y", 1, 1, 0), works(model, "y=4", "H@y", 1, 1, 1)) << "one halo or two";
  EXPECT_EQ(works(model, "y=4", "H@y", 1, 1, 1), works(model, "y=4", "H@y", 1, 1, 2));
  EXPECT_NE(works(model, "", "", 1, 1, 0), works(model, "", "", 2, 1, 0));
}

TEST(KernelTimes, OtherTypesPhasesAndGradientsAreOtherWork) {
  const auto work = [](const Model& model, int layer, const Workload& workload) {
    return local_work(bind(model, Strategy(), workload).layers[layer], 0, workload);
  };
  const Workload training{.batch = 2, .dtype = DType::f32, .training = true, .optimizer = {}};
  Workload evaluation = training, exact = training;
  evaluation.training = false;
  exact.dtype = DType::f64;
  const Model model = two_convolutions();
  EXPECT_NE(work(model, 1, training), work(model, 1, evaluation));
  EXPECT_NE(work(model, 1, training), work(model, 1, exact));
  Model alike("alike");  // a and b have equal blocks, but the input of a needs no gradient
  auto t = alike.input("in", {.channels = 4, .spatial = {8, 8}});
  t = alike.conv("a", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = alike.conv("b", t, {.filters = 4, .kernel = 3, .padding = 1});
  alike.mean_squared_error("loss", alike.conv("c", t, {.filters = 4, .kernel = 3, .padding = 1}));
  EXPECT_NE(work(alike, 1, training), work(alike, 2, training));
  EXPECT_EQ(work(alike, 2, training), work(alike, 3, training));
  EXPECT_EQ(work(alike, 1, evaluation), work(alike, 2, evaluation));
  // A dropout, an addition and a normalization that are fused, and the same ones apart.
  const auto block = [](bool fused) {
    Model m("block");
    const auto x = m.input("in", {.channels = 4, .length = 8});
    const auto a = m.linear("a", x, {.features = 4, .per_place = true});
    const auto side = m.dropout("drop", m.linear("b", m.rms_norm("norm", a), {.features = 4, .per_place = true}));
    m.mean_squared_error("loss", m.add("add", fused ? a : m.linear("c", a, {.features = 4, .per_place = true}),
                                       fused ? side : m.dropout("same", side, {.rate = 0})));
    return m;
  };
  Model together = block(true), apart = block(false);
  const auto number = [](const Model& m, std::string_view name) { return m.value(name).layer; };
  for (const char* name : {"drop", "add"})
    EXPECT_NE(work(together, number(together, name), training), work(apart, number(apart, name), training)) << name;
  Workload other = training;
  other.optimizer.method = Method::adam;
  EXPECT_NE(update_work(64, training), update_work(64, other));
  EXPECT_NE(update_work(64, training), update_work(96, training));
}

}  // namespace partita::test::kernel_times_test
