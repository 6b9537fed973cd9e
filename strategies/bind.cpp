#include "partita/base/error.hpp"
#include "partita/layouts/notation.hpp"
#include "partita/strategies/balance.hpp"
#include "partita/strategies/plan.hpp"
#include "rule_layout.hpp"
#include "stages.hpp"

#include <algorithm>

namespace partita {

namespace {

class Binder {
 public:
  Binder(const Model& model, const Strategy& strategy, const Workload& workload, int replica = 0)
      : model_(model),
        strategy_(strategy),
        shapes_(model.shapes(workload.batch)),
        groups_(groups_of_layers(model, strategy)) {
    plan_.model = model.name();
    plan_.grids = strategy.grids();
    plan_.places = replica == 0 ? strategy.places() : mirrored(strategy.places());
    plan_.workload = workload;
  }

  /// All layers for a batch that runs as one.
  Plan bind() && {
    check_rules();
    plan_.layers.reserve(model_.layers().size());
    for (std::size_t i = 0; i < model_.layers().size(); ++i) {
      const auto& layer = model_.layers()[i];
      try {
        plan_.layers.push_back(bind_layer(static_cast<int>(i)));
      } catch (const Error& error) {
        fail("layer '{}' ({}): {}", layer.name, layer.op->kind(), error.what());
      }
    }
    if (plan_.workload.training) mark_recomputed();
    note_readers();
    return std::move(plan_);
  }

 private:
  void check_rules() const {
    std::vector<std::string> names;
    for (const auto& layer : model_.layers()) names.push_back(layer.name);
    for (const auto& rule : strategy_.rules()) {
      const auto matches = [&](const std::string& name) { return rule.matches(name); };
      if (std::none_of(names.begin(), names.end(), matches))
        fail("{}: match = \"{}\" is no layer of the model '{}'{}; it has {}", rule.place, rule.match, model_.name(),
             did_you_mean(rule.match, names), quoted_list(names));
      if (!rule.exact()) check_pattern(rule);
    }
  }

  /// A dimension that none of a pattern's layers has is a slip, and so is an axis that the grid lacks, even where the
  /// dimension before it is dropped.
  void check_pattern(const Strategy::Rule& rule) const {
    check_pattern(rule, "output", rule.rule.output, [&](std::size_t i) { return std::vector{shapes_[i]}; });
    check_pattern(rule, "input", rule.rule.input,
                  [&](std::size_t i) { return model_.inputs_of(static_cast<int>(i), shapes_); });
    check_pattern(rule, "weights", rule.rule.weights, [&](std::size_t i) {
      std::vector<Shape> shapes;
      for (const auto& weight : model_.layers()[i].op->weights(model_.inputs_of(static_cast<int>(i), shapes_)))
        shapes.push_back(weight.shape);
      return shapes;
    });
  }

  /// `shapes_of(i)` are those that the key speaks of in layer i.
  template <class ShapesOf>
  void check_pattern(const Strategy::Rule& rule, std::string_view key, const std::optional<std::string>& text,
                     ShapesOf&& shapes_of) const {
    if (!text) return;
    const auto any_has = [&](char dim) {
      for (std::size_t i = 0; i < shapes_.size(); ++i)
        if (rule.matches(model_.layers()[i].name))
          for (const Shape& shape : shapes_of(i))
            if (shape.has(dim)) return true;
      return false;
    };
    try {
      for (const auto& [dim, axes] : parse_notation(*text)) {
        for (const auto& axis : axes)
          if (std::none_of(plan_.grids.begin(), plan_.grids.end(),
                           [&](const Grid& grid) { return grid.find(axis.text) >= 0; }))
            fail_notation(*text, axis.column,
                          fmt::format("the grid \"{}\" has no axis '{}'{}", plan_.grid().print(), axis.text,
                                      did_you_mean(axis.text, plan_.grid().names())));
        if (!axes.empty() && is_dim(dim.text) && !any_has(dim.text[0]))
          fail_notation(*text, dim.column,
                        fmt::format("no layer that \"{}\" matches has a dimension {}", rule.match, dim.text));
      }
    } catch (const Error& error) {
      fail("{}: {} = {}", rule.place, key, error.what());
    }
  }

  LayerPlan bind_layer(int index) {
    const auto& layer = model_.layers()[static_cast<std::size_t>(index)];
    LayerPlan bound;
    bound.group = groups_[static_cast<std::size_t>(index)];
    bound.name = layer.name;
    bound.op = layer.op;
    bound.inputs = layer.inputs;
    bound.input_shapes = model_.inputs_of(index, shapes_);
    bound.shape = shapes_[static_cast<std::size_t>(index)];
    bound.weights = layer.op->weights(bound.input_shapes);
    const LayoutRequest request = read_request(bound);
    bound.at = layouts(bound, request);
    bound.y = bound.op->is_loss() ? bound.at.y : request.output;
    for (std::size_t i = 0; i < bound.inputs.size(); ++i) cross(bound, i);
    connect(bound);
    return bound;
  }

  /// What the operator answers to a request. Choosing among products takes long, so repeated blocks ask once, on whatever stage.
  OperatorLayouts layouts(const LayerPlan& bound, const LayoutRequest& request) {
    if (bound.op->algorithms().empty()) return bound.op->layouts(request);
    const Grid& grid = request.output.grid();
    const std::string text = fmt::format("{} {}", bound.op->kind(), bound.op->describe());
    for (const auto& [index, other, asked] : asked_) {
      const LayerPlan& earlier = plan_.layers[static_cast<std::size_t>(index)];
      if (earlier.input_shapes == bound.input_shapes && other == text && asked.output.grid().same_axes(grid) &&
          asked.on(grid) == request)
        return earlier.at.on(grid);
    }
    asked_.push_back({static_cast<int>(plan_.layers.size()), text, request});
    return bound.op->layouts(request);
  }

  LayoutRequest read_request(LayerPlan& bound) const {
    LayoutRequest request;
    request.dtype = plan_.workload.dtype;
    request.training = plan_.workload.training;
    request.needs_dx = false;
    const Grid& grid = grid_of(bound);
    const Setting input = setting(strategy_, bound.name, &LayerRule::input);
    const Setting weights = setting(strategy_, bound.name, &LayerRule::weights);
    if (bound.inputs.empty()) drop_key(input, "input", "inputs", bound);
    if (bound.weights.empty()) drop_key(weights, "weights", "weights", bound);
    for (const int producer : bound.inputs) {
      request.arriving.push_back(arriving(bound, producer));
      request.needs_dx = request.needs_dx || trains(producer);
      const auto& shape = shapes_[static_cast<std::size_t>(producer)];
      request.input.push_back(
          input.text == nullptr ? std::nullopt : std::optional(read_layout(input, shape, grid, "input", bound.notes)));
    }
    const Setting output = setting(strategy_, bound.name, &LayerRule::output);
    if (output.text != nullptr)
      request.output = read_layout(output, bound.shape, grid, "output", bound.notes);
    else if (!bound.inputs.empty())
      request.output = bound.op->follow(request.arriving[0], bound.shape);
    else
      request.output = Layout(bound.shape, grid);
    if (weights.text != nullptr && !bound.weights.empty())
      request.weights = read_layout(weights, bound.weights[0].shape, grid, "weights", bound.notes);
    request.algorithm = read_algorithm(bound);
    return request;
  }

  /// A key that a layer has no use for: refused where the rule names the layer, dropped from a pattern.
  static void drop_key(const Setting& setting, std::string_view key, std::string_view lacks, LayerPlan& bound) {
    if (setting.text == nullptr) return;
    if (setting.rule->exact())
      fail("{}: {} = \"{}\": the layer has no {}", setting.rule->place, key, *setting.text, lacks);
    bound.notes.push_back(fmt::format("{} of \"{}\": it has no {}", key, setting.rule->match, lacks));
  }

  /// "auto" where nothing is said, or where a pattern names what this kind of layer lacks.
  std::string read_algorithm(LayerPlan& bound) const {
    const Setting algorithm = setting(strategy_, bound.name, &LayerRule::algorithm);
    if (algorithm.text == nullptr || *algorithm.text == "auto") return "auto";
    auto names = bound.op->algorithms();
    if (!algorithm.rule->exact() && names.empty()) {
      bound.notes.push_back(fmt::format("algorithm of \"{}\": it has one", algorithm.rule->match));
      return "auto";
    }
    names.insert(names.begin(), "auto");
    const auto asked = named_algorithms(*algorithm.text);
    if (static_cast<int>(asked.size()) > bound.op->products())
      fail("{}: algorithm = \"{}\": a {} takes up to {} names, not {}", algorithm.rule->place, *algorithm.text,
           bound.op->kind(), bound.op->products(), asked.size());
    for (const auto& one : asked)
      if (std::find(names.begin(), names.end(), one) == names.end())
        fail("{}: algorithm = \"{}\": there is no \"{}\"; a {} has {}{}", algorithm.rule->place, *algorithm.text, one,
             bound.op->kind(), quoted_list(names), did_you_mean(one, names));
    return *algorithm.text;
  }

  bool asks_to_recompute(const LayerPlan& bound) const {
    const Strategy::Rule* decides = nullptr;  // the last one that says so
    for (const auto& rule : strategy_.rules())
      if (rule.rule.recompute && rule.matches(bound.name)) decides = &rule;
    if (decides == nullptr || !*decides->rule.recompute) return false;
    const bool cannot = bound.inputs.empty() || bound.op->is_loss();
    if (cannot && decides->exact())
      fail("layer '{}' ({}): {}: recompute: {} cannot be computed once more", bound.name, bound.op->kind(),
           decides->place, bound.inputs.empty() ? "an input" : "a loss");
    return !cannot;
  }

  void note_readers() {
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i)
      for (const int input : plan_.layers[static_cast<std::size_t>(i)].inputs)
        if (auto& readers = plan_.layers[static_cast<std::size_t>(input)].readers;
            readers.empty() || readers.back() != i)  // one that takes it twice is one
          readers.push_back(i);
  }

  /// A layer runs once more if its own backward needs what it kept, or a later one its output to run once more.
  void mark_recomputed() {
    std::vector<bool> feeds(plan_.layers.size(), false);
    for (std::size_t i = plan_.layers.size(); i-- > 0;) {
      LayerPlan& layer = plan_.layers[i];
      layer.recompute = asks_to_recompute(layer) && (layer.has_backward() || feeds[i]);
      for (const int input : layer.inputs)
        if (layer.recompute && plan_.layers[static_cast<std::size_t>(input)].group == layer.group)
          feeds[static_cast<std::size_t>(input)] = true;
    }
  }

  int stage(int group) const { return plan_.places[static_cast<std::size_t>(group)]; }
  const Grid& grid_of(const LayerPlan& bound) const {
    return plan_.grids[static_cast<std::size_t>(stage(bound.group))];
  }

  /// The layout in which a layer finds what `producer` leaves: that one's y, or on another stage what the first reader there
  /// takes. Before there is one, an equal placement on this grid.
  Layout arriving(const LayerPlan& bound, int producer) const {
    const LayerPlan& from = plan_.layers[static_cast<std::size_t>(producer)];
    if (stage(from.group) == stage(bound.group)) return from.y;
    for (const auto& boundary : from.departs)
      if (stage(boundary.group) == stage(bound.group)) return boundary.to;
    return placed_alike(from.y.dual(), grid_of(bound));
  }

  /// The first reader of another stage's layer decides how that arrives here.
  void cross(const LayerPlan& bound, std::size_t i) {
    LayerPlan& from = plan_.layers[static_cast<std::size_t>(bound.inputs[i])];
    if (stage(from.group) == stage(bound.group)) return;
    for (const auto& boundary : from.departs)
      if (stage(boundary.group) == stage(bound.group)) return;
    from.departs.push_back(
        {bound.group, from.y.dual(), bound.at.x[i].dual(), plan_redistribution(from.y, from.y.dual())});
  }

  /// The redistributions on all sides of a layer whose layouts are known.
  void connect(LayerPlan& bound) const {
    for (std::size_t i = 0; i < bound.inputs.size(); ++i) {
      const Layout y = arriving(bound, bound.inputs[i]);
      bound.arrive.push_back(plan_redistribution(y, bound.at.x[i]));
      bound.leave.push_back(plan_redistribution(bound.at.dx[i], y.dual()));
      bound.needs_dx.push_back(trains(bound.inputs[i]));
    }
    bound.finish = plan_redistribution(bound.at.y, bound.y);
    bound.finish_back = plan_redistribution(bound.y.dual(), bound.at.y.dual());
  }

  /// True if a layer or anything before it has weights to train.
  bool trains(int index) const {
    const auto& bound = plan_.layers[static_cast<std::size_t>(index)];
    return bound.trains() || bound.needs_any_dx();
  }

  const Model& model_;
  const Strategy& strategy_;
  std::vector<Shape> shapes_;
  std::vector<int> groups_;  // by layer
  struct Asked {
    int layer = 0;
    std::string op;
    LayoutRequest request;
  };
  std::vector<Asked> asked_;  // unlike requests
  Plan plan_;
};

/// One input, whose samples a batch brings; and every layer but the loss feeds another one: what nobody uses has no
/// gradient.
void check_uses(const Model& model) {
  for (std::size_t i = 0; i < model.layers().size(); ++i)
    if ((model.layers()[i].inputs.empty()) != (i == 0))
      fail("layer '{}': a model begins with its input, its only layer without inputs", model.layers()[i].name);
  std::vector<bool> used(model.layers().size(), false);
  for (const auto& layer : model.layers())
    for (const int input : layer.inputs) used[static_cast<std::size_t>(input)] = true;
  for (std::size_t i = 0; i + 1 < used.size(); ++i)
    if (!used[i])
      fail("layer '{}': nobody uses its output; connect it to the loss or take it out", model.layers()[i].name);
}

/// The second replica, for a schedule that has one.
void bind_mirror(Plan& plan, const Model& model, const Strategy& strategy, Workload one) {
  if (plan.schedule.replicas() < 2) return;
  check_mirrored(strategy);
  const Strategy same = settled(strategy, plan);
  plan.mirror.emplace();
  Plan second = Binder(model, same, one, 1).bind();
  plan.mirror->places = second.places;
  plan.mirror->layers = std::move(second.layers);
  --one.batch;
  if (!plan.smaller.empty()) plan.mirror->smaller = Binder(model, same, one, 1).bind().layers;
  plan.mirror->takes.assign(static_cast<std::size_t>(plan.microbatches), false);
  for (const auto& actions : plan.schedule.stages)
    for (const auto& action : actions)
      if (action.replica == 1 && action.is_compute())
        plan.mirror->takes[static_cast<std::size_t>(action.microbatch)] = true;
}

}  // namespace

Plan bind_run(const Model& model, const Strategy& strategy, const Workload& workload) {
  return Binder(model, strategy, workload).bind();
}

Plan bind(const Model& model, const Strategy& strategy, const Workload& workload) {
  if (workload.batch < 1) fail("the batch is {}; it must be 1 or more", workload.batch);
  workload.optimizer.check();
  const auto losses = std::count_if(model.layers().begin(), model.layers().end(),
                                    [](const Layer& layer) { return layer.op->is_loss(); });
  if (losses != 1 || !model.layers().back().op->is_loss())
    fail("the model '{}' has {} losses; it must end with one, its last layer", model.name(), losses);
  check_uses(model);
  if (strategy.stage_count() > 1)
    return bind(model, balanced(model, strategy, workload, default_machine(), {}), workload);
  const auto microbatches = static_cast<int>(std::min<Index>(strategy.microbatches(), workload.batch));
  Workload one = workload;
  one.batch = (workload.batch + microbatches - 1) / microbatches;
  Plan plan = bind_run(model, strategy, one);
  if (workload.batch % microbatches != 0) {
    Workload less = one;
    --less.batch;
    plan.smaller = Binder(model, settled(strategy, plan), less).bind().layers;
  }
  plan.workload = workload;
  plan.microbatches = microbatches;
  plan.schedule = bind_schedule(strategy, plan.places, graph_of(plan), microbatches, workload.training);
  bind_mirror(plan, model, strategy, one);
  plan.distributed = strategy.update() == Strategy::Update::distributed;
  if (workload.training)
    plan.buckets = plan_buckets(plan.layers, strategy.bucket_bytes(), size_of(master_dtype(workload.dtype)),
                                workload.optimizer.needs_norms());
  return plan;
}

Strategy settled(Strategy strategy, const Plan& plan) {
  if (strategy.stage_count() > 1) strategy = with_boundaries(strategy, plan.layers);
  for (const auto& layer : plan.layers)
    if (!layer.op->algorithms().empty()) strategy.layer(layer.name, {.weights = layer.at.w[0].print()}, "the plan");
  return strategy;
}

}  // namespace partita
