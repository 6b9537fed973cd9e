// Equal layers share their binding. It is the binding that each layer would have without sharing: on one stage and on
// several, with recomputation, with microbatches of two sizes and with both replicas.
#include "partita/model/builtin/builtin.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/placed.hpp"

#include <algorithm>
#include <set>

namespace partita::test::binding_test {
namespace {

/// An operator with a description of its own, so that its layer shares no binding.
class Apart final : public Operator {
 public:
  Apart(std::shared_ptr<const Operator> of, int number) : of_(std::move(of)), number_(number) {}
  std::string_view kind() const override { return of_->kind(); }
  std::string describe() const override { return fmt::format("{} #{}", of_->describe(), number_); }
  int inputs() const override { return of_->inputs(); }
  Shape output(std::span<const Shape> inputs) const override { return of_->output(inputs); }
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override { return of_->weights(inputs); }
  std::vector<Algorithm> algorithms() const override { return of_->algorithms(); }
  int products() const override { return of_->products(); }
  OperatorLayouts layouts(const LayoutRequest& request) const override { return of_->layouts(request); }
  Layout follow(const Layout& x, const Shape& output) const override { return of_->follow(x, output); }
  double flops(std::span<const Shape> inputs, const Shape& output) const override { return of_->flops(inputs, output); }
  Kept keeps() const override { return of_->keeps(); }
  bool overwrites_input() const override { return of_->overwrites_input(); }
  bool output_may_be_overwritten() const override { return of_->output_may_be_overwritten(); }
  std::optional<Activation> activation() const override { return of_->activation(); }
  ActivationFusion activation_fusion(const Activation& f) const override { return of_->activation_fusion(f); }
  bool forwards_gradient() const override { return of_->forwards_gradient(); }
  double dropout_rate() const override { return of_->dropout_rate(); }
  bool drops_input() const override { return of_->drops_input(); }
  bool adds_gradient() const override { return of_->adds_gradient(); }
  HaloOverlap halo_overlap() const override { return of_->halo_overlap(); }
  bool computes_dw_separately() const override { return of_->computes_dw_separately(); }
  MemoryPasses memory_passes(bool training) const override { return of_->memory_passes(training); }
  KernelKind kernel_kind() const override { return of_->kernel_kind(); }
  bool depends_on_microbatches() const override { return of_->depends_on_microbatches(); }
  bool is_loss() const override { return of_->is_loss(); }
  Target target(const Shape& x) const override { return of_->target(x); }

 private:
  std::shared_ptr<const Operator> of_;
  int number_;
};

/// Returns the same model with operators that share no binding.
Model all_apart(const Model& model) {
  Model apart(model.name());
  for (const auto& layer : model.layers()) {
    std::vector<Value> inputs;
    for (const int input : layer.inputs) inputs.push_back(apart.value(apart.layers()[input].name));
    apart.layer(layer.name, std::make_shared<Apart>(layer.op, static_cast<int>(apart.layers().size())), inputs);
  }
  return apart;
}

std::string text_of(const Layout& layout) {
  return fmt::format("{} from {}; ", layout.print(), layout.grid().first_rank());
}

std::string text_of(const LayerPlan::Steps& steps) {
  std::string text;
  for (const auto& step : steps)
    text += fmt::format("{} {} {}{}", name(step.verb), step.axes, text_of(step.from), text_of(step.to));
  return text + "\n";
}

/// Returns everything that is bound of a layer, as text.
std::string text_of(const LayerPlan& layer) {
  std::string text = fmt::format("{} group {} recompute {}\n", layer.name, layer.group, layer.recompute);
  for (const auto& [group, from, to, settle] : layer.sends_to_stages)
    text += fmt::format("to {}: {}{}{}", group, text_of(from), text_of(to), text_of(settle));
  const OperatorLayouts& at = layer->at;
  for (const auto* layouts : {&at.x, &at.dx, &at.w, &at.dw})
    for (const auto& layout : *layouts) text += text_of(layout);
  text += fmt::format("{}{} {} {} {}\n", text_of(at.y), text_of(layer->y), name(at.algorithm), at.x_halo.has_value(),
                      at.dy_halo.has_value());
  for (const auto& product : at.products)
    text += fmt::format("{} {}{}{}", name(product.algorithm), text_of(product.a_used), text_of(product.b_used),
                        text_of(product.c_made));
  for (const auto* all : {&layer->redistribute_input, &layer->redistribute_dx})
    for (const auto& steps : *all) text += text_of(steps);
  return text + text_of(layer->redistribute_output) + text_of(layer->redistribute_dy) +
         fmt::format("{}\n", fmt::join(layer->notes, "; "));
}

std::set<const LayerBinding*> bindings(const std::vector<LayerPlan>& layers) {
  std::set<const LayerBinding*> all;
  for (const auto& layer : layers) all.insert(layer.binding.get());
  return all;
}

void expect_same(const std::vector<LayerPlan>& some, const std::vector<LayerPlan>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(text_of(some[i]), text_of(others[i]));
}

/// Expects that sharing does not change the bindings. At most the fraction `most` of the layers may have a binding of
/// their own, for both sizes of microbatch and in both replicas.
void expect_unchanged(const Model& model, const Strategy& strategy, double most) {
  SCOPED_TRACE(model.name() + "\n" + strategy.print());
  const Strategy closed = test::placed(model, strategy, {.batch = 7, .optimizer = {}});
  const Plan plan = bound(model, closed, 7), apart = bound(all_apart(model), closed, 7);
  const auto check = [&](const std::vector<LayerPlan>& some, const std::vector<LayerPlan>& others) {
    expect_same(some, others);
    EXPECT_EQ(bindings(others).size(), others.size());
    EXPECT_LE(static_cast<double>(bindings(some).size()), most * static_cast<double>(some.size()));
  };
  check(plan.layers, apart.layers);
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i)
    EXPECT_TRUE(std::ranges::equal(plan.all_readers.of(i), apart.all_readers.of(i))) << plan.layers[i].name;
  EXPECT_FALSE(plan.remainder_layers.empty());
  check(plan.remainder_layers, apart.remainder_layers);
  ASSERT_EQ(plan.replicas(), apart.replicas());
  ASSERT_EQ(plan.second_replica.has_value(), strategy.schedule() == ScheduleKind::chimera);
  if (plan.second_replica) {
    check(plan.second_replica->layers, apart.second_replica->layers);
    check(plan.second_replica->remainder_layers, apart.second_replica->remainder_layers);
  }
  EXPECT_EQ(estimate(plan, round_machine()).seconds, estimate(apart, round_machine()).seconds);
}

TEST(Bindings, SharedOrNotAreTheSame) {
  const Model residual = builtin_model("resnet18", {.extent = 33, .classes = 5, .width = 0.05}),
              matrices = builtin_model("mlp", {.extent = 4, .classes = 6, .widths = {12, 12, 12, 12, 12, 12}});
  for (const char* kind : {"gpipe", "1f1b", "chimera"}) {
    Strategy rows("y=2");
    rows.layer("*", {.output = "N H@y"}).stages(kind == std::string("gpipe") ? 1 : 2).schedule(kind, 3);
    expect_unchanged(residual, rows, 0.7);
    rows.layer("*res2*", {.recompute = true}).layer("res3b_1", {.output = "N W@y", .recompute = true});
    expect_unchanged(residual, rows, 0.8);
    Strategy columns("c=2 data=2");
    columns.layer("*", {.output = "N@data C@c"}).stages(kind == std::string("gpipe") ? 1 : 2).schedule(kind, 3);
    expect_unchanged(matrices, columns, 0.9);
    columns.layer("*", {.recompute = true});
    expect_unchanged(matrices, columns, 0.9);
  }
}

TEST(Bindings, AreSharedInAStageWhetherOrNotALayerRunsOnceMore) {
  Model m("chain");
  auto t = m.input("in", {.channels = 4, .spatial = {8, 8}});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"})
    t = m.conv(name, t, {.filters = 4, .kernel = 3, .padding = 1});
  m.mean_squared_error("loss", t);
  Strategy strategy = all_as("y=2", "H@y");
  strategy.layer("b", {.recompute = true}).group({"in", "d"}).group({"e", "loss"});
  const Plan plan = bound(m, strategy, 2);
  EXPECT_NE(plan.layer("a").binding, plan.layer("b").binding) << "images need no gradient";
  EXPECT_EQ(plan.layer("b").binding, plan.layer("c").binding);
  EXPECT_EQ(plan.layer("b").binding, plan.layer("d").binding) << "a binding does not contain transfers to other stages";
  EXPECT_NE(plan.layer("e").binding, plan.layer("f").binding) << "its input arrives from another stage";
  EXPECT_NE(plan.layer("f").binding, plan.layer("b").binding) << "the other stage has different ranks";
  EXPECT_EQ(plan.layer("f").binding, plan.layer("g").binding);
  EXPECT_TRUE(plan.layer("b").recompute);
  EXPECT_FALSE(plan.layer("c").recompute);
  const Cost cost = estimate(plan, round_machine());
  expect_seconds(cost.layers[2].backward_data.compute,
                 cost.layers[3].backward_data.compute + cost.layers[3].forward.compute);
}

}  // namespace
}  // namespace partita::test::binding_test
