// Checks where a model is cut for recomputation: near the best of all cuts, and with less memory.
#include "strategies/planner/checkpointing.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"

#include "partita/base/philox.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "test/support/cases.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace partita::test::checkpointing_test {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Convolutions of different widths; some of them read two earlier outputs side by side.
Model random_model(std::uint64_t seed) {
  const Random random(seed, 3);
  Index at = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.bits(at++) % n); };
  Model m("random");
  std::vector<Value> outputs{m.input("in", {.channels = 2, .spatial = {8, 8}})};
  const std::size_t layers = 2 + below(6);
  for (std::size_t i = 0; i < layers; ++i) {
    Value t = outputs.back();
    if (outputs.size() > 2 && below(3) == 0)
      t = m.concatenate(fmt::format("cat{}", i), {t, outputs[below(outputs.size() - 1)]});
    outputs.push_back(m.conv(fmt::format("c{}", i), t, {.filters = 1 + static_cast<Index>(below(40)), .kernel = 1}));
  }
  m.softmax_cross_entropy("loss", m.linear("last", outputs.back(), {.features = 3}));
  return m;
}

/// The memory held with some cuts, as layers_to_keep() defines it, and the layers that keep their data.
struct Held {
  double bytes = 0;
  std::set<std::string> kept;
};

double bytes_of(const Plan& plan, int layer) {
  const MemoryUse use = layer_memory(plan, layer, 0);
  return static_cast<double>(use[MemoryClass::activations] + use[MemoryClass::halos]);
}

Held held(const Plan& plan, unsigned cuts) {
  Held held;
  double largest = 0, stretch = 0;
  const auto layers = static_cast<int>(plan.layers.size());
  for (int first = 0, end = 1; end <= layers; ++end) {
    if (end < layers && (cuts >> (end - 1) & 1U) == 0) continue;
    stretch = 0;
    for (int i = first; i < end; ++i) {
      const double bytes = bytes_of(plan, i);
      const auto readers = plan.all_readers.of(i);
      const bool crosses = readers.size() > 0 && readers.back() >= end;
      double inputs = 0;  // a layer that keeps its own data may keep its inputs too
      if (plan.layers[i].op->keeps().x)
        for (const int input : plan.layers[i].inputs) inputs += bytes_of(plan, input);
      crosses ? held.bytes += bytes + inputs : stretch += bytes;
      if (crosses && !plan.layers[i].inputs.empty()) held.kept.insert(plan.layers[i].name);
    }
    largest = std::max(largest, stretch);
    first = end;
  }
  held.bytes += largest;
  return held;
}

TEST(Recompute, KeepsWhatTheBestOfAllCutsWould) {
  int with_cuts = 0;
  const std::uint64_t count = cases(200);
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const Plan plan = bind(random_model(seed), Strategy(), {.batch = 3, .optimizer = {}});
    const auto names = layers_to_keep(plan);
    const std::set<std::string> kept(names.begin(), names.end());
    double best = never, found = never;
    for (unsigned cuts = 0; cuts < 1U << (plan.layers.size() - 1); ++cuts) {
      const Held each = held(plan, cuts);
      best = std::min(best, each.bytes);
      if (each.kept == kept) found = std::min(found, each.bytes);
    }
    EXPECT_LE(found, 1.1 * best) << "seed " << seed;
    with_cuts += kept.empty() ? 0 : 1;
  }
  EXPECT_GT(with_cuts, static_cast<int>(count / 2));
}

TEST(Recompute, HoldsMuchLessOfDeepModels) {
  struct Case {
    const char* model;
    double part;  // upper limit on the share of the activations
  };
  for (const auto& [name, part] : {Case{"resnet50", 0.4}, Case{"resnet18", 0.8}, Case{"googlenet", 0.7},
                                   Case{"mesh-tangling", 0.95}, Case{"unet3d", 0.8}, Case{"vgg16", 0.8}}) {
    const Model model = builtin_model(name, {.extent = 64, .width = 0.25});
    const Workload workload{.batch = 4, .optimizer = {}};
    const Plan plain = bind(model, Strategy(), workload);
    const Plan again = bind(model, recomputing(Strategy(), layers_to_keep(plain)), workload);
    const auto activations = [](const Plan& plan) {
      return static_cast<double>(peak_memory(plan, 0).each[MemoryClass::activations]);
    };
    EXPECT_LE(activations(again), part * activations(plain)) << name;
  }
}

TEST(Recompute, HoldsNoMoreThanWhatIsKept) {
  Strategy staged, halves;
  staged.schedule("gpipe", 1).group({"image", "tanh1"}).group({"pool1", "loss"});
  halves.schedule("1f1b", 4).stages(2);
  struct Case {
    const char* model;
    Strategy strategy;
  };
  for (const auto& [name, kept] : {Case{"resnet18", {}}, Case{"vgg16", {}}, Case{"mesh-tangling", {}},
                                   Case{"lenet5", staged}, Case{"resnet18", halves}, Case{"vgg16", halves}}) {
    const Model model = builtin_model(name, {.extent = name == std::string("lenet5") ? 0 : 64, .width = 0.25});
    const Workload workload{.batch = 8, .optimizer = {}};
    const Strategy each = place_stages(model, kept, workload, default_machine(), {});
    Strategy all = each;
    all.layer("*", {.recompute = true});
    // On the rank that holds most. A stage keeps its input from the previous stage, which may be a little more than
    // what its first layers keep.
    const auto held = [&](const Strategy& strategy) {
      return static_cast<double>(estimate(bind(model, strategy, workload), default_machine()).memory.total);
    };
    EXPECT_LE(held(all), (each.groups().empty() ? 1 : 1.01) * held(each)) << name;
  }
}

TEST(Recompute, StagesAreStretchesThemselves) {
  Strategy strategy;
  strategy.stages(2).schedule("1f1b", 2);
  const Model model = builtin_model("resnet18", {.extent = 32, .width = 0.25});
  strategy.stages(1).group({"image", "res2b"}).group({"res3a_1", "loss"});
  EXPECT_TRUE(layers_to_keep(bind(model, strategy, {.batch = 4, .optimizer = {}})).empty());
  EXPECT_EQ(recompute_text({}), "recompute = true in all layers");
  EXPECT_EQ(recompute_text({"a", "b"}), "recompute = true in all layers but a, b");
}

}  // namespace
}  // namespace partita::test::checkpointing_test
