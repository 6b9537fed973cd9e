// The list of operations of a step (StepProgram) of small plans, action by action, against lists written by hand.
#include "strategies/plan/step.hpp"

#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

#include <map>

namespace partita::test::step_test {

namespace {

using Kind = StepOp::Kind;

Strategy two_groups(const std::string& kind, int microbatches) {
  Strategy strategy;
  return strategy.group({"in", "a"}).group({"b", "loss"}).schedule(kind, microbatches);
}

/// Prints an operation with its layer, e.g. "forward a"; a recomputed one as "forward a again".
std::string print(const Plan& plan, const StepOp& op) {
  std::string text(name(op.kind));
  if (op.layer >= 0) text += " " + plan.layers[op.layer].name;
  return text + (op.recompute ? " again" : "");
}

/// Prints operations one per line, without progress and without redistributions, which these plans leave empty.
std::string print(const Plan& plan, std::span<const StepOp> ops) {
  std::string text;
  for (const StepOp& op : ops)
    if (op.kind != Kind::progress && op.kind != Kind::redistribute_input && op.kind != Kind::redistribute_output &&
        op.kind != Kind::redistribute_dy && op.kind != Kind::redistribute_dx)
      text += print(plan, op) + "\n";
  return text;
}

/// The operations of a stage's actions by the action's text, e.g. "0F0".
std::map<std::string, std::string> by_action(const Plan& plan, int stage) {
  const StepProgram program(plan, stage);
  std::map<std::string, std::string> ops;
  for (std::size_t i = 0; i < program.actions().size(); ++i)
    ops[program.actions()[i].print()] = print(plan, program.ops(i));
  return ops;
}

/// Counts operations of one kind in a whole step of a stage.
int count(const Plan& plan, int stage, Kind kind) {
  const StepProgram program(plan, stage);
  int count = 0;
  for (std::size_t i = 0; i < program.actions().size(); ++i)
    for (const StepOp& op : program.ops(i)) count += op.kind == kind ? 1 : 0;
  return count;
}

}  // namespace

TEST(Step, OneMicrobatchOnOneStage) {
  const Plan plan = bound(two_convolutions(), Strategy(), 4);
  auto ops = by_action(plan, 0);
  ASSERT_EQ(ops.size(), 4U);
  EXPECT_EQ(ops["0F0"],
            "wait_inputs\nread_batch\n"
            "forward in\nrelease_work in\nrelease_kept in\n"
            "forward a\nrelease_work a\nrelease_output in\n"
            "forward b\nrelease_work b\nrelease_output a\n"
            "forward loss\nrelease_work loss\nrelease_output b\n");
  EXPECT_EQ(ops["0B0"],
            "wait_gradients\n"
            "start_backward loss\nbackward_data loss\nrelease_work loss\nrelease_dy loss\n"
            "sum_gradients loss\nrelease_layer loss\n"
            "start_backward b\nbackward_filter b\nbackward_data b\nrelease_work b\nrelease_dy b\n"
            "sum_gradients b\nrelease_layer b\n"
            "start_backward a\nbackward_filter a\nrelease_dy a\nsum_gradients a\nrelease_layer a\n"
            "sum_gradients in\nrelease_layer in\nrelease_images in\nrelease_target\n")
      << "nothing before a has weights, so a computes no dx";
  EXPECT_EQ(ops["0reduce"], "finish_sums\n");
  EXPECT_EQ(ops["0step"], "wait_sent_gradients\nupdate\n");
  const StepProgram program(plan, 0);
  EXPECT_TRUE(program.first_ops().empty());
  EXPECT_TRUE(program.last_ops().empty()) << "one stage has its loss already";
}

TEST(Step, RedistributionsSurroundTheWork) {
  const Plan plan = bound(two_convolutions(), Strategy(), 4);
  const StepProgram program(plan, 0);
  std::string b;
  for (std::size_t i = 0; i < 2; ++i)
    for (const StepOp& op : program.ops(i))
      if (op.layer == 2) b += std::string(name(op.kind)) + "\n";
  EXPECT_EQ(b,
            "redistribute_input\nforward\nredistribute_output\nrelease_work\nprogress\n"
            "release_output\n"  // when the loss has read it
            "redistribute_dy\nstart_backward\nbackward_filter\nbackward_data\nredistribute_dx\nrelease_work\n"
            "release_dy\nsum_gradients\nrelease_layer\nprogress\n");
}

TEST(Step, RecomputedLayersRunAgainInTheirBackward) {
  Strategy strategy;
  strategy.layer("a", {.recompute = true}).layer("b", {.recompute = true});
  const Plan plan = bound(two_convolutions(), strategy, 4);
  auto ops = by_action(plan, 0);
  EXPECT_EQ(ops["0F0"],
            "wait_inputs\nread_batch\n"
            "forward in\nrelease_work in\nrelease_kept in\n"
            "forward a\nrelease_work a\nrelease_kept a\n"  // a runs again, and so the output of in stays
            "forward b\nrelease_work b\nrelease_kept b\nrelease_output a\n"
            "forward loss\nrelease_work loss\nrelease_output b\n");
  EXPECT_EQ(ops["0B0"],
            "wait_gradients\n"
            "start_backward loss\nbackward_data loss\nrelease_work loss\nrelease_dy loss\n"
            "sum_gradients loss\nrelease_layer loss\n"
            "release_output a\nforward a again\nrelease_work a again\n"  // b needs the output of a
            "release_output b\nforward b again\nrelease_work b again\nrelease_output a\nrelease_output b\n"
            "start_backward b\nbackward_filter b\nbackward_data b\nrelease_work b\nrelease_dy b\n"
            "sum_gradients b\nrelease_layer b\n"
            "start_backward a\nbackward_filter a\nrelease_dy a\nsum_gradients a\nrelease_layer a\n"
            "sum_gradients in\nrelease_layer in\nrelease_images in\nrelease_target\n");
}

TEST(Step, SplitBackwardComputesGradientsOfWeightsLater) {
  const Plan plan = bound(two_convolutions(), two_groups("zb-h1", 2), 4);
  auto first = by_action(plan, 0), second = by_action(plan, 1);
  EXPECT_EQ(second["1I0"],
            "wait_gradients\n"
            "start_backward loss\nbackward_data loss\nrelease_work loss\nrelease_layer loss\n"
            "start_backward b\nbackward_data b\nrelease_work b\n"
            "release_output a\n")
      << "b keeps what its dw needs; the output of a, of the other stage, was kept by b";
  EXPECT_EQ(second["1W0"], "release_layer loss\nbackward_filter b\nrelease_layer b\nrelease_target\n");
  EXPECT_EQ(second["1W1"],
            "sum_gradients loss\nrelease_layer loss\nbackward_filter b\nsum_gradients b\nrelease_layer b\n"
            "release_target\n")
      << "sums begin in the last microbatch";
  EXPECT_EQ(first["0I0"], "wait_gradients\nstart_backward a\nrelease_layer in\n");
  EXPECT_EQ(first["0W1"],
            "backward_filter a\nsum_gradients a\nrelease_layer a\nsum_gradients in\nrelease_layer in\n"
            "release_images in\n");
}

// Weights in shards travel one layer ahead, and two layers' are gathered at a time.
TEST(Step, GathersWeightsOneLayerAhead) {
  Strategy strategy = all_as("data=2", "N@data");
  const Plan plan = bound(two_convolutions(), strategy.shard_weights(), 4);
  auto ops = by_action(plan, 0);
  EXPECT_EQ(ops["0F0"],
            "wait_inputs\nread_batch\n"
            "forward in\nrelease_work in\nrelease_kept in\n"
            "gather_weights a\ngather_weights b\nwait_weights a\nforward a\nrelease_weights a\nrelease_work a\n"
            "release_output in\n"
            "wait_weights b\nforward b\nrelease_weights b\nrelease_work b\nrelease_output a\n"
            "forward loss\nrelease_work loss\nrelease_output b\n");
  EXPECT_EQ(ops["0B0"],
            "wait_gradients\n"
            "start_backward loss\nbackward_data loss\nrelease_work loss\nrelease_dy loss\n"
            "sum_gradients loss\nrelease_layer loss\n"
            "gather_weights b\nwait_weights b\nstart_backward b\nbackward_filter b\nscatter_gradients b\n"
            "backward_data b\nrelease_weights b\nrelease_work b\nrelease_dy b\nadd_gradients b\n"
            "sum_gradients b\nrelease_layer b\n"
            "start_backward a\nbackward_filter a\nscatter_gradients a\nrelease_dy a\nadd_gradients a\n"
            "sum_gradients a\nrelease_layer a\n"
            "sum_gradients in\nrelease_layer in\nrelease_images in\nrelease_target\n")
      << "a computes no dx, so it needs no weights";
}

TEST(Step, StagesSendOutputsAndGradients) {
  const Plan plan = bound(two_convolutions(), two_groups("gpipe", 2), 4);
  auto first = by_action(plan, 0), second = by_action(plan, 1);
  EXPECT_EQ(first["0SEND_F0"], "send_output a\n");
  EXPECT_EQ(first["0RECV_B0"], "receive_gradient a\n");
  EXPECT_EQ(second["1RECV_F0"], "receive_input a\n");
  EXPECT_EQ(second["1SEND_B0"], "send_gradient a\n");
  EXPECT_EQ(second["1reduce"], "finish_sums\n") << "which stage 0 need not delay";
  EXPECT_EQ(second["1step"], "wait_sent_gradients\nupdate\n");
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(print(plan, StepProgram(plan, stage).last_ops()), "finish_outputs\nshare_loss loss\n");
    EXPECT_EQ(count(plan, stage, Kind::sum_gradients), 2) << "once for each layer of the stage";
  }
}

TEST(Step, ActionsWaitFirst) {
  for (const char* kind : {"gpipe", "zb-h1", "chimera"}) {
    const Plan plan = bound(two_convolutions(), two_groups(kind, 2), 4);
    for (int stage = 0; stage < 2; ++stage) {
      const StepProgram program(plan, stage);
      for (std::size_t i = 0; i < program.actions().size(); ++i) {
        const auto ops = program.ops(i);
        bool works = false;
        for (const StepOp& op : ops) {
          works = works || !is_wait(op.kind);
          EXPECT_FALSE(works && is_wait(op.kind)) << program.actions()[i].print() << " " << name(op.kind);
        }
      }
    }
  }
}

TEST(Step, SecondReplicaAddsGradientsAndStatistics) {
  Model model("norm");
  auto t = model.input("in", {.channels = 2, .spatial = {8, 8}});
  t = model.batch_norm("a", model.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1}));
  model.mean_squared_error("loss", model.conv("b", t, {.filters = 4, .kernel = 3, .padding = 1}));
  Strategy strategy;
  strategy.group({"in", "a"}).group({"b", "loss"}).schedule("chimera", 2);
  const Plan plan = bound(model, strategy, 4);
  ASSERT_EQ(plan.replicas(), 2);
  EXPECT_TRUE(StepProgram(plan, 0).first_ops().empty()) << "stage 0 runs the first replica of a";
  EXPECT_EQ(print(plan, StepProgram(plan, 1).first_ops()), "clear_statistics a\n");
  auto ops = by_action(plan, 0);
  EXPECT_EQ(ops["0reduce"], "wait_sent_gradients\nfinish_sums\nadd_replicas\n");
  EXPECT_EQ(ops["1reduce'"], "wait_sent_gradients\nfinish_sums\nadd_replicas\n");
}

TEST(Step, ReplicaWithoutMicrobatchSumsZeros) {
  const Plan plan = bound(two_convolutions(), two_groups("chimera", 1), 4);
  ASSERT_EQ(plan.replicas(), 2);
  for (int stage = 0; stage < 2; ++stage) EXPECT_EQ(count(plan, stage, Kind::sum_zero_gradients), 1) << stage;
}

TEST(Step, RemainderMicrobatchesHaveListsOfTheirOwn) {
  const Plan plan = bound(two_convolutions(), two_groups("gpipe", 4), 6);  // 2, 2, 1 and 1 samples
  ASSERT_FALSE(plan.remainder_layers.empty());
  const StepProgram program(plan, 0);
  std::map<std::string, int> times;
  for (const auto& list : program.lists()) times[list.action.print()] = list.times;
  EXPECT_EQ(times["0F0"], 2);
  EXPECT_EQ(times["0F2"], 2);
  int all = 0;
  for (const auto& [action, n] : times) all += n;
  EXPECT_EQ(static_cast<std::size_t>(all), program.actions().size());
  EXPECT_EQ(count(plan, 0, Kind::backward_filter), 4);
  EXPECT_EQ(count(plan, 0, Kind::sum_gradients), 2) << "only the last microbatch's backward starts sums";
}

TEST(Step, EvaluationFreesThePreviousMicrobatch) {
  const Plan plan = bound(two_convolutions(), two_groups("gpipe", 2), 4, false);
  auto first = by_action(plan, 0), second = by_action(plan, 1);
  EXPECT_EQ(first["0F1"],
            "release_previous\nwait_inputs\nread_batch\n"
            "forward in\nrelease_work in\nrelease_kept in\n"
            "forward a\nrelease_work a\nrelease_kept a\nrelease_output in\n");
  EXPECT_EQ(second["1F1"],
            "release_previous\nwait_inputs\nread_batch\n"
            "forward b\nrelease_work b\nrelease_kept b\nrelease_output a\n"
            "forward loss\nrelease_work loss\nrelease_kept loss\nrelease_output b\n");
  EXPECT_EQ(first.count("0reduce"), 0U);
  EXPECT_EQ(print(plan, StepProgram(plan, 0).last_ops()), "finish_outputs\nshare_loss loss\n");
}

}  // namespace partita::test::step_test
