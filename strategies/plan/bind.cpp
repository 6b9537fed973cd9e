#include "strategies/plan/bind.hpp"

#include "partita/base/error.hpp"
#include "strategies/declare/rules.hpp"
#include "strategies/plan/checks.hpp"
#include "strategies/plan/in_place.hpp"
#include "strategies/plan/resting_weights.hpp"
#include "strategies/plan/stages.hpp"

#include <algorithm>
#include <deque>
#include <forward_list>

namespace partita {

namespace {

class Binder {
 public:
  /// `answers`: the layouts that operators chose; null to ask them.
  Binder(const Model& model, const Strategy& strategy, const Workload& workload, KnownLayouts* answers, int replica = 0)
      : model_(model),
        answers_(answers),
        known_(model.layers().size()),
        groups_(groups_of_layers(model, strategy)),
        shards_weights_(strategy.shards_weights()) {
    plan_.model = model.name();
    plan_.grids = strategy.grids();
    plan_.stage_of_group = replica == 0 ? strategy.stages_of_groups() : reversed_stages(strategy.stages_of_groups());
    plan_.workload = workload;
    settings_ = settings_of_layers(model, strategy, plan_.grids);
  }

  /// Binds all layers for a batch that is one microbatch.
  Plan bind() && {
    plan_.layers.reserve(model_.layers().size());
    leaving_.reserve(model_.layers().size());
    for (std::size_t i = 0; i < model_.layers().size(); ++i) {
      const auto& layer = model_.layers()[i];
      try {
        bind_layer(static_cast<int>(i));
      } catch (const Error& error) {
        throw LayerRefused(fmt::format("layer '{}' ({}): {}", layer.name, layer.op->kind(), error.what()),
                           static_cast<int>(i));
      }
    }
    if (plan_.workload.training) mark_recomputed();
    plan_.all_readers = Readers(plan_.layers);
    mark_in_place(plan_);
    return std::move(plan_);
  }

 private:
  /// The output of a layer, as its readers see it.
  struct Leaving {
    int layout = 0;       // index in layouts_
    bool trains = false;  // the layer or one before it has weights to train
    bool operator==(const Leaving&) const = default;
  };
  /// An input of the layer that is being bound.
  struct Arriving {
    Leaving left;
    int crosses =
        -1;  // index of the first equal input if this layer is its stage's first reader of another stage's layer
    bool operator==(const Arriving&) const = default;
  };
  /// A binding and everything that decided it, apart from the model's operator.
  struct Known {
    int stage = 0;
    LayerSettings settings;
    std::vector<Arriving> arriving;
    std::shared_ptr<const Operator> op;  // that runs in place of the layer's own; may be null
    std::shared_ptr<const LayerBinding> binding;
    Leaving leaving;
  };
  /// The layout that a rule's text gives to tensors of one shape.
  struct Read {
    const std::string* text = nullptr;
    int stage = 0;
    Layout layout;
    std::vector<std::string> notes;
  };

  void bind_layer(int index) {
    const Layer& layer = model_.layers()[index];
    const int group = groups_[index];
    look_at_inputs(layer, group);
    const Known& known = find_or_make(layer, index, stage(group));
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      if (arriving_[i].crosses == static_cast<int>(i)) cross(layer.inputs[i], group, known.binding->at.x[i].dual());
    plan_.layers.push_back({.group = group,
                            .name = layer.name,
                            .op = known.op != nullptr ? known.op : layer.op,
                            .inputs = layer.inputs,
                            .input = layer.inputs.empty() ? inputs_++ : -1,
                            .sends_to_stages = {},
                            .recompute = false,
                            .in_place = false,
                            .next_activation = {},
                            .fusible = false,
                            .computed_by_producer = false,
                            .forwards_gradient = false,
                            .drops = -1,
                            .computed_by_reader = false,
                            .adds_gradient = false,
                            .table = layer.table,
                            .copies_table = layer.table >= 0 && copies_table(layer.table, group, *known.binding),
                            .binding = known.binding});
    leaving_.push_back(known.leaving);
  }

  /// True if a layer holds a copy of its table (LayerPlan::copies_table).
  bool copies_table(int table, int group, const LayerBinding& layer) const {
    const LayerPlan& embedding = plan_.layers[table];
    return embedding.group != group ||
           (plan_.workload.training && layer.rest[0].dw.partial() != embedding->rest[0].dw.partial());
  }

  /// Returns the layout of a layer's table at rest: that of the embedding, on a grid with the same axes.
  Layout layout_of_table(int table, int stage) const {
    const LayerPlan& embedding = plan_.layers[table];
    const Layout& w = embedding->rest[0].w;
    if (!w.grid().same_axes(grid(stage)))
      fail("its weights are the table of '{}', but the grids of the two are \"{}\" and \"{}\"; give both the same grid",
           embedding.name, grid(stage).print(), w.grid().print());
    return same_placement(w, grid(stage));
  }

  /// Returns the axes over which an embedding's table is gathered before each use.
  AxisSet gathered_of_table(int table) const {
    const LayerPlan& embedding = plan_.layers[table];
    return embedding->rest[0].w.sharding() & ~embedding->at.w[0].sharding();
  }

  /// Finds the layouts of a layer's inputs. An input from another stage arrives in the layout that its first reader on
  /// this stage needs. For that first reader it has the same placement on this stage's grid.
  void look_at_inputs(const Layer& layer, int group) {
    arriving_.clear();
    for (const int producer : layer.inputs) {
      arriving_.push_back({leaving_[producer]});
      const LayerPlan& from = plan_.layers[producer];
      if (stage(from.group) == stage(group)) continue;
      auto& [left, crosses] = arriving_.back();
      const auto same_stage = [&](const StageBoundary& boundary) { return stage(boundary.group) == stage(group); };
      const auto known = std::find_if(from.sends_to_stages.begin(), from.sends_to_stages.end(), same_stage);
      left.layout =
          number(known != from.sends_to_stages.end() ? known->to : same_placement(from->y.dual(), grid(stage(group))));
      if (known == from.sends_to_stages.end())
        crosses =
            static_cast<int>(std::find(layer.inputs.begin(), layer.inputs.end(), producer) - layer.inputs.begin());
    }
  }

  /// Returns the index of an equal layout in layouts_.
  int number(const Layout& layout) {
    const auto found = std::find(layouts_.begin(), layouts_.end(), layout);
    if (found != layouts_.end()) return static_cast<int>(found - layouts_.begin());
    layouts_.push_back(layout);
    return static_cast<int>(layouts_.size()) - 1;
  }
  const Layout& layout(const Leaving& left) const { return layouts_[left.layout]; }

  /// Returns the binding of a layer. Equal layers with equal settings and equal inputs are bound only once.
  const Known& find_or_make(const Layer& layer, int index, int stage) {
    const LayerSettings& settings = settings_[index];
    auto& known = known_[layer.like];
    for (const Known& each : known)
      if (each.stage == stage && each.arriving == arriving_ && each.settings.same(settings)) return each;
    const auto binding = std::make_shared<LayerBinding>();
    LayerBinding& made = *binding;
    for (const auto& [left, crosses] : arriving_) {
      made.input_shapes.push_back(layout(left).shape());
      made.needs_dx.push_back(left.trains);
    }
    made.shape = model_.shape(index, made.input_shapes, plan_.workload.batch);
    made.weights = layer.op->weights(made.input_shapes);
    check_countable(made.shape);
    for (const auto& weight : made.weights) check_countable(weight.shape);
    LayoutRequest request = read_request(*layer.op, settings, stage, made);
    if (layer.table >= 0) {
      const Layout table = layout_of_table(layer.table, stage);
      if (request.weights && !(*request.weights == table))
        fail("{}: weights = \"{}\": they are the table of '{}', which is \"{}\"; leave the key out",
             settings.weights.rule->place, *settings.weights.text, plan_.layers[layer.table].name, table.print());
      request.weights = table;
    }
    const std::optional<Layout> asked = request.weights;
    const AxisSet gathered = !asked             ? 0
                             : layer.table >= 0 ? gathered_of_table(layer.table)
                                                : gathered_axes(*layer.op, request, *asked);
    if (gathered != 0) request.weights = without_gathered(*asked, gathered);
    const std::optional<Layout> computing = gathered != 0 ? request.weights : std::nullopt;
    if (computing && layer.op->algorithms().empty() && !layer.op->reads_integers(0)) request.weights.reset();
    made.at = answers_ == nullptr ? layer.op->layouts(request) : answers_->of(*layer.op, layer.like, request);
    check_layouts(made, grid(stage), plan_.workload.training);
    if (computing && !(*computing == made.at.w[0]))
      fail("weights \"{}\": the layer computes with weights \"{}\"; cut these further over {}", asked->print(),
           made.at.w[0].print(), grid(stage).print(gathered));
    if (!made.weights.empty()) {
      const Layout w = gathered != 0 ? *asked : made.at.w[0];
      const bool fully = shards_weights_ && layer.table < 0;
      rest_weights(made, fully ? fully_sharded(*layer.op, request, w) : w, plan_.workload.training);
    }
    made.y = layer.op->is_loss() ? made.at.y : request.output;
    connect(made);
    const Leaving leaving{number(made.y), made.trains() || made.needs_any_dx()};
    auto op = made.at.algorithm ? layer.op->running(*made.at.algorithm) : nullptr;
    known.push_front({stage, settings, arriving_, std::move(op), binding, leaving});
    return known.front();
  }

  /// Makes the request from the settings. Adds a note to `made` for each setting that does not apply.
  /// @pre The shapes in `made` are known.
  LayoutRequest read_request(const Operator& op, const LayerSettings& settings, int stage, LayerBinding& made) {
    LayoutRequest request;
    request.dtype = plan_.workload.dtype;
    request.training = plan_.workload.training;
    request.needs_dx = made.needs_any_dx();
    if (made.input_shapes.empty()) drop_key(settings.input, "input", "inputs", made);
    if (made.weights.empty()) drop_key(settings.weights, "weights", "weights", made);
    for (const auto& [left, crosses] : arriving_) {
      request.arriving.push_back(layout(left));
      request.input.emplace_back();
      if (settings.input.text == nullptr) continue;
      const Shape& shape = layout(left).shape();  // inputs may differ in dimensions
      request.input.back() = request.input.size() == 1 ? read(settings.input, shape, stage, "input", made.notes)
                                                       : request.input.front()->onto(shape);
    }
    if (settings.output.text != nullptr)
      request.output = read(settings.output, made.shape, stage, "output", made.notes);
    else if (!arriving_.empty())
      request.output = op.follow(request.arriving[0], made.shape);
    else
      request.output = Layout(made.shape, grid(stage));
    if (settings.weights.text != nullptr && !made.weights.empty())
      request.weights = read(settings.weights, made.weights[0].shape, stage, "weights", made.notes);
    request.algorithms = read_algorithms(op, settings.algorithm, made);
    return request;
  }

  /// Reads a setting as a layout of a shape. The text is parsed once for all shapes with the same dimensions.
  Layout read(const Setting& from, const Shape& shape, int stage, std::string_view key,
              std::vector<std::string>& notes) {
    auto known = std::find_if(read_.begin(), read_.end(), [&](const Read& each) {
      return each.text == from.text && each.stage == stage && each.layout.shape().names() == shape.names();
    });
    if (known == read_.end()) {
      std::vector<std::string> noted;
      const Layout layout = read_layout(from, shape, grid(stage), key, noted);
      known = read_.insert(read_.end(), {from.text, stage, layout, std::move(noted)});
    }
    notes.insert(notes.end(), known->notes.begin(), known->notes.end());
    return known->layout.onto(shape);
  }

  /// Handles a key that does not apply to a layer. Throws Error if the rule names the layer; adds a note if the rule is
  /// a pattern.
  static void drop_key(const Setting& setting, std::string_view key, std::string_view lacks, LayerBinding& made) {
    if (setting.text == nullptr) return;
    if (setting.rule->exact())
      fail("{}: {} = \"{}\": the layer has no {}", setting.rule->place, key, *setting.text, lacks);
    made.notes.push_back(fmt::format("{} of \"{}\": it has no {}", key, setting.rule->match, lacks));
  }

  /// Returns one algorithm per product. Returns none if no algorithm is set, or if a pattern names one and this kind of
  /// layer has no choice.
  static std::vector<Algorithm> read_algorithms(const Operator& op, const Setting& setting, LayerBinding& made) {
    if (setting.text == nullptr || *setting.text == name(Algorithm::automatic)) return {};
    auto names = names_of(op.algorithms());
    if (!setting.rule->exact() && names.empty()) {
      made.notes.push_back(fmt::format("algorithm of \"{}\": the layer has only one", setting.rule->match));
      return {};
    }
    names.insert(names.begin(), std::string(name(Algorithm::automatic)));
    const auto asked = named_algorithms(*setting.text);
    if (static_cast<int>(asked.size()) > op.products())
      fail("{}: algorithm = \"{}\": a {} takes up to {} names, not {}", setting.rule->place, *setting.text, op.kind(),
           op.products(), asked.size());
    std::vector<Algorithm> algorithms;
    for (const auto& one : asked) {
      if (std::find(names.begin(), names.end(), one) == names.end())
        fail("{}: algorithm = \"{}\": there is no \"{}\"; a {} has {}{}", setting.rule->place, *setting.text, one,
             op.kind(), quoted_list(names), did_you_mean(one, names));
      algorithms.push_back(*algorithm_named(one));
    }
    return algorithms;
  }

  /// Plans the redistributions on all sides of a layer whose layouts are known.
  void connect(LayerBinding& made) const {
    for (std::size_t i = 0; i < arriving_.size(); ++i) {
      const auto& [left, crosses] = arriving_[i];
      const Layout y = crosses < 0 ? layout(left) : made.at.x[crosses].dual();
      made.redistribute_input.push_back(plan_redistribution(y, made.at.x[i]));
      made.redistribute_dx.push_back(plan_redistribution(made.at.dx[i], y.dual()));
    }
    made.redistribute_output = plan_redistribution(made.at.y, made.y);
    made.redistribute_dy = plan_redistribution(made.y.dual(), made.at.y.dual());
  }

  /// Adds the transfer of a layer's output to a group on another stage, which needs the layout `to`.
  void cross(int producer, int group, const Layout& to) {
    LayerPlan& from = plan_.layers[producer];
    from.sends_to_stages.push_back({group, from->y.dual(), to, plan_redistribution(from->y, from->y.dual())});
  }

  bool asks_to_recompute(const LayerPlan& layer, const Strategy::Rule* rule) const {
    if (rule == nullptr || !*rule->rule.recompute) return false;
    const bool cannot = layer.inputs.empty() || layer.op->is_loss();
    if (cannot && rule->exact())
      fail("layer '{}' ({}): {}: recompute: {} cannot be recomputed", layer.name, layer.op->kind(), rule->place,
           layer.inputs.empty() ? "an input" : "a loss");
    return !cannot;
  }

  /// Marks the layers to recompute. A layer whose settings ask for it is recomputed if it has a backward, which needs
  /// the tensors of its forward, or if a recomputed layer of its group reads its output.
  void mark_recomputed() {
    std::vector<bool> feeds(plan_.layers.size(), false);
    for (std::size_t i = plan_.layers.size(); i-- > 0;) {
      LayerPlan& layer = plan_.layers[i];
      layer.recompute = asks_to_recompute(layer, settings_[i].recompute) && (layer.has_backward() || feeds[i]);
      for (const int input : layer.inputs)
        if (layer.recompute && plan_.layers[input].group == layer.group) feeds[input] = true;
    }
  }

  int stage(int group) const { return plan_.stage_of_group[group]; }
  const Grid& grid(int stage) const { return plan_.grids[stage]; }

  const Model& model_;
  KnownLayouts* answers_;
  std::vector<std::forward_list<Known>> known_;  // by Layer::like
  std::vector<int> groups_;                      // by layer
  bool shards_weights_;                          // those of all layers
  std::vector<LayerSettings> settings_;          // by layer; they refer to the strategy
  std::deque<Layout> layouts_;                   // all different
  std::vector<Read> read_;
  std::vector<Leaving> leaving_;    // by layer
  std::vector<Arriving> arriving_;  // by input of the layer that is being bound
  int inputs_ = 0;                  // the layers so far that receive samples
  Plan plan_;
};

/// Throws Error unless every layer except the loss has a reader. An unused output has no gradient.
void check_uses(const Model& model) {
  std::vector<bool> used(model.layers().size(), false);
  for (const auto& layer : model.layers())
    for (const int input : layer.inputs) used[input] = true;
  for (std::size_t i = 0; i + 1 < used.size(); ++i)
    if (!used[i]) fail("layer '{}': its output is unused; connect it to the loss or remove it", model.layers()[i].name);
}

/// Throws Error if the two copies of a table cannot be updated alike.
void check_copies(const Plan& plan) {
  for (const Bucket& bucket : plan.buckets) {
    const LayerPlan& layer = plan.layers[bucket.last()];
    if (bucket.other_copy < 0 || !layer.copies_table) continue;
    const Grid& grid = plan.grid_of(bucket.last());
    const AxisSet others = plan.buckets[bucket.other_copy].axes;
    if (plan.sharded_optimizer && bucket.axes != others)
      fail(
          "layer '{}': its gradient of the table is summed over {}, that of '{}' over {}, so that ranks cannot share "
          "the "
          "update; cut both outputs over the same axes, or leave the optimizer's state whole",
          layer.name, grid.print(bucket.axes), plan.layers[layer.table].name, grid.print(others));
    if (plan.second_replica && !plan.holds_both_copies(bucket, plan.stage_of(bucket.last())))
      fail(
          "layer '{}': with two replicas, it shares a table with '{}' only if both are in one group, or in groups of "
          "the "
          "same stages, as the first and the last",
          layer.name, plan.layers[layer.table].name);
  }
}

/// Binds the second replica if the schedule has one.
void bind_second_replica(Plan& plan, const Model& model, const Strategy& strategy, Workload one, KnownLayouts* known) {
  if (plan.schedule.replicas() < 2) return;
  check_replica_grids(strategy);
  const Strategy same = pin_weight_layouts(strategy, plan);
  plan.second_replica.emplace();
  Plan second = Binder(model, same, one, known, 1).bind();
  plan.second_replica->stage_of_group = second.stage_of_group;
  plan.second_replica->layers = std::move(second.layers);
  --one.batch;
  if (!plan.remainder_layers.empty())
    plan.second_replica->remainder_layers = Binder(model, same, one, known, 1).bind().layers;
  plan.second_replica->runs_microbatch.assign(static_cast<std::size_t>(plan.microbatches), false);
  for (const auto& actions : plan.schedule.stages)
    for (const auto& action : actions)
      if (action.replica == 1 && action.is_compute()) plan.second_replica->runs_microbatch[action.microbatch] = true;
}

}  // namespace

int microbatches_of(const Strategy& strategy, const Workload& workload) {
  return static_cast<int>(std::min<Index>(strategy.microbatches(), workload.batch));
}

Workload microbatch_of(Workload step, int microbatches) {
  step.batch = (step.batch + microbatches - 1) / microbatches;
  return step;
}

Plan bind_layers(const Model& model, const Strategy& strategy, const Workload& workload) {
  return Binder(model, strategy, workload, nullptr).bind();
}

namespace {

Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, ScheduleCache& made,
          KnownLayouts* known) {
  if (workload.batch < 1) fail("the batch is {}; it must be 1 or more", workload.batch);
  workload.optimizer.check();
  const auto losses = std::count_if(model.layers().begin(), model.layers().end(),
                                    [](const Layer& layer) { return layer.op->is_loss(); });
  if (losses != 1 || !model.layers().back().op->is_loss())
    fail("the model '{}' has {} losses; it must have exactly one, its last layer", model.name(), losses);
  check_uses(model);
  if (strategy.stage_count() > 1)
    fail(
        "the boundaries of the {} stages are open; close them with place_stages(), or name the layers of each "
        "group in [[group]] entries",
        strategy.stage_count());
  const int microbatches = microbatches_of(strategy, workload);
  const Workload one = microbatch_of(workload, microbatches);
  Plan plan = Binder(model, strategy, one, known).bind();
  check_tensor_names(plan);
  if (workload.batch % microbatches != 0) {
    Workload less = one;
    --less.batch;
    plan.remainder_layers = Binder(model, pin_weight_layouts(strategy, plan), less, known).bind().layers;
  }
  plan.workload = workload;
  plan.microbatches = microbatches;
  const bool gathers = std::any_of(plan.layers.begin(), plan.layers.end(),
                                   [](const LayerPlan& layer) { return layer.gathers_weights(); });
  plan.gradient_dtype = strategy.microbatches() > 1 || gathers ? master_dtype(workload.dtype) : workload.dtype;
  plan.schedule = bind_schedule(strategy, plan.stage_of_group, graph_of(plan), microbatches, workload.training, made);
  bind_second_replica(plan, model, strategy, one, known);
  plan.sharded_optimizer = strategy.optimizer_state() == Strategy::OptimizerState::sharded;
  if (workload.training)
    plan.buckets = plan_buckets(plan.layers, strategy.bucket_bytes(), size_of(master_dtype(workload.dtype)));
  check_copies(plan);
  return plan;
}

}  // namespace

// The stages of one plan share answers. To keep them for one stage alone would cost more than it saves.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload) {
  BindCache cache;
  return bind(model, strategy, workload, cache.schedules, strategy.grids().size() > 1 ? &cache.layouts : nullptr);
}

Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, BindCache& cache) {
  return bind(model, strategy, workload, cache.schedules, &cache.layouts);
}

Strategy pin_weight_layouts(Strategy strategy, const Plan& plan) {
  for (const auto& layer : plan.layers)
    if (!layer.op->algorithms().empty() && !layer->weights.empty())
      strategy.layer(layer.name, {.weights = layer->rest[0].w.print()}, "the plan");
  return strategy;
}

}  // namespace partita
