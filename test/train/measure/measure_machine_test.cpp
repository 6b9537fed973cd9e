#include "src/train/measure/measure_machine.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/cost/local_work.hpp"

#include "partita/comm/solo.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "src/comm/threads/threads.hpp"
#include "strategies/cost/representatives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

namespace partita::measure_machine_test {
namespace {

/// A simulated network with `ranks` ranks per node and its own clock, so that other work on this computer does not
/// count. It records which boxes travel between which ranks. A long message to another node takes 3 ms on the node's
/// only link, or on a link of its own for each rank.
struct Nodes {
  int ranks;
  bool shared;
  std::mutex mutex;
  std::set<std::pair<int, int>> pairs;
  std::array<double, 4> busy_until;  ///< each node's link
};

class OnNodes : public Communicator {
 public:
  OnNodes(Communicator& world, Nodes& nodes) : world_(world), nodes_(nodes) {}

  /// The rank's clock, which advances by 0.1 ms at each call.
  double time() { return time_ += 1e-4; }

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    return world_.exchange(sends, recvs, stream);
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    for (const auto& send : boxes.sends) {
      const std::scoped_lock lock(nodes_.mutex);
      nodes_.pairs.insert({rank(), send.peer});
      const int node = rank() / nodes_.ranks;
      if (node == send.peer / nodes_.ranks || send.box.volume() < 1000) continue;
      double& busy_until = nodes_.busy_until.at(static_cast<std::size_t>(node));
      if (nodes_.shared) time_ = std::max(time_, busy_until);
      time_ += 3e-3;
      busy_until = time_;
    }
    return world_.exchange_boxes(boxes, stream);
  }
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    // all ranks leave when the last one has arrived
    world_.all_reduce(&time_, 1, DType::f64, ReduceOp::max, stream).wait();
    return world_.all_reduce(data, count, dtype, op, stream);
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return world_.all_gather(local, all, counts, dtype, stream);
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return world_.reduce_scatter(all, local, counts, dtype, stream);
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    return world_.broadcast(data, count, dtype, root, stream);
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    return world_.all_to_all(send, send_counts, recv, recv_counts, dtype, stream);
  }
  std::shared_ptr<Communicator> split(int color, int key) override { return world_.split(color, key); }

 private:
  Communicator& world_;
  Nodes& nodes_;
  double time_ = 0;
};

/// Returns every rank's levels.
std::vector<std::vector<Level>> levels(int ranks, Nodes& nodes) {
  std::vector<std::vector<Level>> all(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Communicator& comm) {
    OnNodes world(comm, nodes);
    all[comm.rank()] = measure_levels(nodes.ranks, 8192, world, [&] { return world.time(); });
  });
  return all;
}

/// Returns the numbers of ranks among which a verb was measured.
std::vector<int> groups(const Level& level, Verb verb) {
  std::vector<int> sizes;
  for (const auto& [of, curve] : level.verbs)
    if (of.verb == verb) sizes.push_back(of.ranks);
  return sizes;
}

TEST(MeasureLevels, OddNodesKeepToThemselves) {
  Nodes nodes{.ranks = 3, .shared = true, .mutex = {}, .pairs = {}, .busy_until = {}};
  for (const auto& each : levels(6, nodes)) {
    ASSERT_EQ(each.size(), 2U);
    EXPECT_EQ(each[0].name, "node");
    EXPECT_EQ(each[0].ranks.value, 3);
    EXPECT_EQ(groups(each[0], Verb::all_reduce), (std::vector{2, 3}));
    EXPECT_EQ(each[1].name, "network");
    EXPECT_EQ(each[1].ranks.value, 0);
    EXPECT_EQ(groups(each[1], Verb::all_gather), (std::vector{2, 6}));
    EXPECT_TRUE(each[1].verbs.contains({Verb::all_gather, 2, 1})) << "one rank of each node";
    EXPECT_TRUE(each[1].verbs.contains({Verb::all_gather, 6, 3})) << "all ranks of both nodes";
    // all three together take as long as one after the other
    EXPECT_EQ(each[1].links.value, 1);
    EXPECT_NEAR(8192 / each[1].bandwidth.value, 3.1e-3, 1e-9);  // one rank by itself, and a call of the clock
  }
  EXPECT_EQ(nodes.pairs, (std::set<std::pair<int, int>>{
                             {0, 1}, {1, 0}, {3, 4}, {4, 3}, {0, 3}, {3, 0}, {1, 4}, {4, 1}, {2, 5}, {5, 2}}));
}

TEST(MeasureLevels, LinksAreThoseThatAreBusyAtOnce) {
  Nodes nodes{.ranks = 2, .shared = false, .mutex = {}, .pairs = {}, .busy_until = {}};
  for (const auto& each : levels(4, nodes)) EXPECT_EQ(each.at(1).links.value, 2);
}

TEST(MeasureLevels, OneRankANodeHasTheNetworkAlone) {
  Nodes nodes{.ranks = 1, .shared = true, .mutex = {}, .pairs = {}, .busy_until = {}};
  for (const auto& each : levels(3, nodes)) {
    ASSERT_EQ(each.size(), 1U);
    EXPECT_EQ(each[0].name, "network");
    EXPECT_EQ(groups(each[0], Verb::reduce_scatter), (std::vector{2, 3}));
  }
  EXPECT_EQ(nodes.pairs, (std::set<std::pair<int, int>>{{0, 1}, {1, 0}}));
}

TEST(MeasureLevels, OneRankIsAssumed) {
  Nodes nodes{.ranks = 1, .shared = true, .mutex = {}, .pairs = {}, .busy_until = {}};
  for (const auto& each : levels(1, nodes)) EXPECT_TRUE(each.at(0).latency.source.starts_with("assumed:"));
}

/// Two stages of two ranks, each with different layers.
Plan two_stages() {
  return bind(builtin_model("lenet5", {}),
              Strategy::parse(R"(grid = "y=2"
[schedule]
kind = "gpipe"
microbatches = 3
[[group]]
layers = ["image", "pool1"]
[[group]]
layers = ["conv2", "loss"]
[[layer]]
match = "*"
output = "N H@y"
)",
                              "a test"),
              {.batch = 4, .dtype = DType::f64, .optimizer = {}});
}

/// Everything that the cost estimate of a plan depends on.
std::set<std::pair<std::string, Loop>> all_work(const Plan& plan) {
  std::set<std::pair<std::string, Loop>> all;
  for (const auto* layers : {&plan.layers, &plan.remainder_layers})
    for (const auto& layer : *layers)
      for (const int rank : representatives(plan.grids[plan.stage_running(layer.group)]))
        all.emplace(local_work(layer, rank, plan.workload), timed_loop(plan, plan.stage_running(layer.group)));
  for (std::size_t group = 0; group < plan.stage_of_group.size(); ++group)
    for (const int rank : {0, 1}) {
      Index elements = 0;
      for (const auto& bucket : plan.buckets)
        if (plan.layers[bucket.last()].group == static_cast<int>(group)) elements += plan.share(bucket, rank).extent();
      all.emplace(update_work(elements, plan.workload), timed_loop(plan, plan.stage_running(static_cast<int>(group))));
    }
  return all;
}

TEST(MeasurePlan, FewerRanksThanThePlanMeasureEveryStageOnce) {
  const Plan plan = two_stages();
  run_threads(2, [&](Communicator& world) {
    MeasureOptions options;
    options.most = 3;
    KernelTimes times = measure_plan(plan, options, KernelTimes(), world);
    for (const auto& [work, loop] : all_work(plan)) EXPECT_TRUE(times.has(work, loop)) << work;
    EXPECT_EQ(times.all().size(), all_work(plan).size());
    const KernelTimes again = measure_plan(plan, options, times, world);
    EXPECT_EQ(again.print(), times.print());
    EXPECT_EQ(ranks_to_measure(plan, times), std::vector<int>());
    KernelTimes of_other_loops(times.where());
    for (const auto& [of, each] : times.all()) of_other_loops.set(of.first, {9, 9}, each);
    of_other_loops.use(times.backend());
    EXPECT_FALSE(ranks_to_measure(plan, of_other_loops).empty());
    times.use("another backend");
    EXPECT_FALSE(ranks_to_measure(plan, times).empty());
  });
}

TEST(MeasurePlan, AnUpdateThatIsNotKnownIsMeasured) {
  const Plan plan = two_stages();
  Plan other = plan;
  other.workload.optimizer.method = Method::adam;
  run_threads(1, [&](Communicator& world) {
    MeasureOptions options;
    options.most = 3;
    const KernelTimes times = measure_plan(plan, options, KernelTimes(), world);
    EXPECT_FALSE(ranks_to_measure(other, times).empty());
    const KernelTimes both = measure_plan(other, options, times, world);
    EXPECT_TRUE(ranks_to_measure(other, both).empty());
    EXPECT_TRUE(ranks_to_measure(plan, both).empty());
  });
}

TEST(BroadcastTimes, EveryRankKnowsWhatRank0Knows) {
  run_threads(3, [](Communicator& world) {
    KernelTimes times("here", "this");
    if (world.rank() == 0) times.set("work", {4, 2}, {1, 2, 3, 4});
    const KernelTimes all = broadcast_times(times, world);
    EXPECT_EQ(all.print(),
              "# seconds of kernels (forward, backward, its data half, its filter half), microbatches and those in "
              "flight, on here\n1 2 3 4 4 2 this work\n");
    EXPECT_TRUE(all.has("work", {4, 2}));
  });
}

TEST(Solo, OthersSendZeros) {
  std::vector<StandIn> log;
  const auto comm = make_solo(1, 3, true, &log);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Index> counts{1, 2, 1};
  std::vector<float> all(4, nothing), mine{5, 6};
  comm->all_gather(mine.data(), all.data(), counts, DType::f32, {}).wait();
  EXPECT_EQ(all, (std::vector<float>{0, 5, 6, 0}));
  all = {1, 2, 3, 4};
  comm->reduce_scatter(all.data(), mine.data(), counts, DType::f32, {}).wait();
  EXPECT_EQ(mine, (std::vector<float>{2, 3}));
  comm->broadcast(mine.data(), 2, DType::f32, 0, {}).wait();
  EXPECT_EQ(mine, (std::vector<float>{0, 0}));
  const Tensor to(DType::f32, "F", Box(Shape{{'F', 3}}));
  for (Index i = 0; i < 3; ++i) to.set(i, nothing);
  const std::vector<Transfer> from{{0, Box(Shape{{'F', 2}})}};
  comm->exchange_boxes({to, {}, to, from, false}, {}).wait();
  EXPECT_EQ(to.get(1), 0);
  EXPECT_TRUE(std::isnan(to.get(2)));
  EXPECT_EQ(log.size(), 4U);
}

}  // namespace
}  // namespace partita::measure_machine_test
