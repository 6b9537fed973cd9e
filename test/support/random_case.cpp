#include "test/support/random_case.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace partita::test {

namespace {

/// Draws a case.
class Drawing {
 public:
  Drawing(std::uint64_t seed, Index width)
      : random_(seed),
        width_(width),
        third_(seed % 3 == 0),
        fourth_(seed % 4 == 0),
        eighth_(seed % 8 == 0),
        segments_(seed % 16 == 4 && seed % 7 != 4),
        tables_(seed % 10 == 6),
        tied_(seed % 7 == 4) {
    strategy =
        Strategy(pick(std::vector<std::string>{"", "a=2", "a=3", "a=4", "a=2 b=2", "a=6", "a=3 b=2", "a=2 b=3", "a=8",
                                               "a=2 b=4", "a=4 b=2", "a=2 b=2 c=2", "a=1 b=2", "a=2 b=1 c=3"}));
    batch = pick(std::vector<Index>{1, 2, 3, 5, 7});
    model = tables_ ? draw_model_with_tables() : tied_ ? draw_tied_model() : draw_model();
    if (chance(0.3)) draw_stages();
    const auto shapes = model.shapes(batch);
    for (std::size_t i = 0; i < model.layers().size(); ++i) draw_rule(model.layers()[i], shapes, i);
    if (seed % 6 == 1) strategy.shard_weights();
    if (seed % 2 == 0) rest_weights(seed);
    draw_optimizer();
    if (seed % 5 == 0) optimizer.clip_norm = seed % 2 == 0 ? 0.02 : 2;  // gradients are larger, or some are
    if (chance(0.5)) draw_schedule();
  }

  Model model;
  Strategy strategy;
  Index batch = 1;
  Optimizer optimizer;

 private:
  Index between(Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[between(0, static_cast<Index>(from.size()) - 1)];
  }

  /// Returns true for the errors that a drawn rule may cause: it shards within a group of channels, or its layouts do
  /// not fit its algorithm. Any other error is a bug.
  static bool may_be_refused(const std::string& message) {
    if (message.find("cannot run \"auto\"") != std::string::npos) return false;  // "auto" must always find an algorithm
    for (const char* reason :
         {"splits a group of channels", "a layer cannot split its", "does not fit the input", "cannot run",
          "must be sharded like the output's C", "asks for a pending sum", "cut both alike", "they are the table of",
          "before these axes", "cut these further", "leave them out: they follow it"})
      if (message.find(reason) != std::string::npos) return true;
    return false;
  }

  /// Draws two to four groups with random boundaries, on grids with the same axes and other extents.
  void draw_stages() {
    const auto& layers = model.layers();
    const auto last = static_cast<Index>(layers.size()) - 1;
    const bool equal_grids = tied_ || chance(0.4);  // then schedules with two groups per stage are possible
    std::string grid;
    for (Index first = 0; first <= last;) {
      const Index end = strategy.groups().size() == 3 ? last : between(first, last);
      if (!equal_grids) grid.clear();
      if (grid.empty())
        for (const auto& axis : strategy.grid().names()) grid += fmt::format("{}={} ", axis, between(1, 2));
      strategy.group({layers[first].name, layers[end].name, Grid::parse(grid)});
      first = end + 1;
    }
  }

  /// Draws a schedule, with two groups per stage if the groups allow it.
  void draw_schedule() {
    const auto microbatches = static_cast<int>(between(1, 5));
    strategy.schedule(pick(std::vector<std::string>{"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}),
                      microbatches);
    if (strategy.groups().size() < 2 || chance(0.2)) return;
    Strategy folded = strategy;
    folded.schedule(pick(std::vector<std::string>{"interleaved", "zb-v", "v-half", "v-min", "dualpipe-v", "chimera"}),
                    microbatches);
    try {
      static_cast<void>(bind(model, folded, {.batch = batch, .optimizer = {}}));
      strategy = folded;
    } catch (const Error& error) {  // an odd number of groups, or different grids
      const std::string_view what = error.what();
      for (const auto* allowed :
           {"a multiple of", "even number", "grid is", "grids are", "with two replicas, it shares"})
        if (what.find(allowed) != what.npos) return;
      throw;
    }
  }

  /// Draws a rule for a layer, and draws again if `bind` refuses it. After five refusals the layer has no rule.
  void draw_rule(const Layer& layer, const std::vector<Shape>& shapes, std::size_t i) {
    for (int attempt = 0; attempt < 5; ++attempt) {
      LayerRule rule;
      if (chance(0.85)) rule.output = draw_layout(layer, shapes[i]);
      if (layer.op->kind() == "attention" && chance(0.6)) rule.output = draw_places();
      if (chance(0.15) && !layer.inputs.empty()) rule.input = draw_layout(layer, shapes[layer.inputs[0]]);
      if (chance(0.15) && layer.op->kind() == "linear" && strategy.grid().axes() > 0)
        rule.output = "sum@" + pick(strategy.grid().names());
      if (chance(0.4) &&
          (layer.op->kind() == "linear" || layer.op->kind() == "embedding" || layer.op->kind() == "tables"))
        rule.weights = draw_weights(layer, shapes);
      if (chance(0.5)) rule.algorithm = draw_algorithm(*layer.op);
      if (chance(0.15) && !layer.inputs.empty() && !layer.op->is_loss()) rule.recompute = true;
      if (!rule.recompute && !rule.output && !rule.input && !rule.weights && !rule.algorithm) return;
      Strategy with_rule = strategy;
      with_rule.layer(layer.name, rule);
      try {
        static_cast<void>(bind(model, with_rule, {.batch = batch, .optimizer = {}}));
      } catch (const Error& error) {
        if (!may_be_refused(error.what())) throw;
        continue;
      }
      strategy = with_rule;
      return;
    }
  }

  /// Cuts the weights of some layers at rest over axes that cut samples or space of their outputs.
  void rest_weights(std::uint64_t seed) {
    std::mt19937_64 random(seed + 77);
    const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
    for (std::size_t i = 0; i < model.layers().size(); ++i) {
      const Plan plan = bind(model, strategy, {.batch = batch, .optimizer = {}});
      const LayerPlan& layer = plan.layers[i];
      if (!layer.trains() || layer.table >= 0 || below(3) == 0) continue;
      Layout w = layer->at.w[0];
      for (int axis = 0; axis < w.grid().axes(); ++axis) {
        if (below(4) == 0 || ((w.sharding() | layer->y.sharding('C')) >> axis & 1U) != 0) continue;
        if ((layer->y.sharding() >> axis & 1U) == 0) continue;
        const int d = below(static_cast<std::size_t>(std::min(w.shape().dims(), 2)));
        AxisList axes = w.axes(d);
        axes.push_back(axis);
        w = w.with(d, axes);
      }
      if (w == layer->at.w[0]) continue;
      Strategy rests = strategy;
      rests.layer(layer.name, {.weights = w.print()});
      try {
        static_cast<void>(bind(model, rests, {.batch = batch, .optimizer = {}}));
        strategy = rests;
      } catch (const Error& error) {
        if (!may_be_refused(error.what())) throw;
      }
    }
  }

  /// Draws a layout in which the places are cut over some axes, in any order.
  std::string draw_places() {
    std::vector<std::string> axes = strategy.grid().names();
    std::shuffle(axes.begin(), axes.end(), random_);
    if (axes.size() > 1 && chance(0.5)) axes.resize(static_cast<std::size_t>(between(1, std::ssize(axes) - 1)));
    return axes.empty() ? "" : fmt::format("L@({})", fmt::join(axes, ","));
  }

  std::string draw_weights(const Layer& layer, const std::vector<Shape>& shapes) {
    const std::array inputs{shapes[layer.inputs[0]]};
    return draw_layout(layer, layer.op->weights(inputs)[0].shape);
  }

  /// Draws one algorithm for each product of the layer, or only for the first ones.
  std::optional<std::string> draw_algorithm(const Operator& op) {
    auto algorithms = names_of(op.algorithms());
    if (algorithms.empty()) return std::nullopt;
    if (op.products() > 1) algorithms.insert(algorithms.end(), 4, "auto");
    std::string text = pick(algorithms);
    for (int i = 1; i < op.products() && chance(0.7); ++i) text += "/" + pick(algorithms);
    return text;
  }

  /// Draws an optimizer that uses every term. Epsilon is so large that a gradient of mere rounding errors does not
  /// become a large step.
  void draw_optimizer() {
    optimizer.method = pick(std::vector<Method>{Method::sgd, Method::sgd, Method::adagrad, Method::rmsprop,
                                                Method::adam, Method::adamw, Method::lars, Method::lamb});
    optimizer.rate = 0.02;
    optimizer.momentum = chance(0.2) ? 0 : 0.9;
    optimizer.nesterov = optimizer.method == Method::sgd && optimizer.momentum > 0 && chance(0.7);
    optimizer.weight_decay = 1e-3;
    optimizer.epsilon = 1e-2;
    optimizer.trust = 0.1;
    if (chance(0.4)) shard_optimizer();
    strategy.bucket_bytes(pick(std::vector<Index>{1, 300, 4000, Index{4} << 20}));
  }

  /// Lets ranks share the update, unless both copies of a tied table are summed over different axes.
  void shard_optimizer() {
    Strategy sharded = strategy;
    sharded.optimizer_state(Strategy::OptimizerState::sharded);
    try {
      if (tied_) static_cast<void>(bind(model, sharded, {.batch = batch, .optimizer = {}}));
      strategy = sharded;
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("cut both outputs over the same axes") == std::string_view::npos) throw;
    }
  }

  /// Calls `add`, which draws a layer, until the layer fits the shapes.
  template <class Add>
  Value until_it_fits(Add&& add) {
    for (int attempt = 0; attempt < 10000; ++attempt) try {
        return add();
      } catch (const Error&) {
        continue;
      }
    throw std::logic_error("no drawn layer fits the shapes");
  }

  /// Draws one value for each spatial dimension.
  template <class Each>
  PerDim per_dim(Each&& each) {
    switch (dims_) {
      case 1: return each();
      case 2: return {each(), each()};
      default: return {each(), each(), each()};
    }
  }
  template <class Each>
  Padding sides(Each&& each) {
    switch (dims_) {
      case 1: return {each()};
      case 2: return {each(), each()};
      default: return {each(), each(), each()};
    }
  }

  /// Draws a convolution. The number of groups often divides the channels, and kernels are smaller in 3 dimensions.
  Conv draw_conv(Index channels) {
    const auto kernel = [&] { return between(1, chance(0.5) || dims_ == 3 ? 3 : 7); };
    const auto stride = [&] { return between(1, 3); };
    const auto padding = [&] { return chance(0.3) ? Sides(0) : Sides(between(0, 8), between(0, 8)); };
    const Index groups = chance(0.3) ? pick(std::vector<Index>{channels, 2, 3}) : 1;
    return {.filters = groups > 1 ? groups * between(1, 2) : width_ * between(1, 5),
            .kernel = per_dim(kernel),
            .stride = per_dim(stride),
            .padding = sides(padding),
            .dilation = per_dim(stride),
            .groups = groups,
            .bias = chance(0.5)};
  }

  ConvTranspose draw_transposed(Index channels) {
    const auto kernel = [&] { return between(1, 3); };
    const auto padding = [&] { return Sides(between(0, 2), between(0, 2)); };
    const auto more = [&] { return between(0, 2); };
    const Index groups = chance(0.3) ? pick(std::vector<Index>{channels, 2, 3}) : 1;
    return {.filters = groups > 1 ? groups * between(1, 2) : between(1, 5),
            .kernel = per_dim(kernel),
            .stride = per_dim(kernel),
            .padding = sides(padding),
            .output_padding = per_dim(more),
            .dilation = per_dim(kernel),
            .groups = groups,
            .bias = chance(0.5)};
  }

  Pool draw_pool() {
    const auto window = [&] { return between(1, 4); };
    const auto stride = [&] { return between(1, 3); };
    const auto padding = [&] { return Sides(between(0, 2), between(0, 2)); };
    const auto dilation = [&] { return between(1, 2); };
    return {.window = per_dim(window),
            .stride = per_dim(stride),
            .padding = sides(padding),
            .dilation = per_dim(dilation),
            .count_padding = chance(0.5)};
  }

  Value draw_norm(Model& m, Value t, const std::string& name) {
    switch (between(0, 4)) {
      case 0: return m.layer_norm(name, t);
      case 1: return m.instance_norm(name, t);
      case 2: return until_it_fits([&] { return m.group_norm(name, t, {.groups = between(1, 3)}); });
      default: return m.batch_norm(name, t);
    }
  }

  Activation draw_activation() {
    const auto kinds = Activation::kinds();
    return {kinds[between(0, std::ssize(kinds) - 1)], 0.3};
  }

  Value draw_layer(Model& m, Value t, const std::string& name) {
    const Index channels = channels_of(m, t);
    switch (between(0, 9)) {
      case 0: return m.activation(name, t, draw_activation());
      case 1: return draw_norm(m, t, name);
      case 2:
        return until_it_fits(
            [&] { return chance(0.5) ? m.max_pool(name, t, draw_pool()) : m.average_pool(name, t, draw_pool()); });
      case 3: return m.dropout(name, t, {.rate = 0.3});
      case 4: {
        const Value other = until_it_fits([&] { return m.conv(name + "a", t, same_shape(m, t)); });
        return chance(0.5) ? m.add(name, t, other) : m.concatenate(name, {other, t});
      }
      case 5: return until_small([&] { return m.conv_transpose(name, t, draw_transposed(channels)); }, m, t, name);
      case 6: return draw_resampling(m, t, name);
      default:
        if (sequence_ && chance(0.6)) return draw_layer_of_places(m, t, name);
        return until_it_fits([&] { return m.conv(name, t, draw_conv(channels)); });
    }
  }

  Value draw_layer_of_places(Model& m, Value t, const std::string& name) {
    const auto linear = [&](const std::string& called, Index features) {
      return m.linear(called, t, {.features = features, .bias = chance(0.5), .per_place = true});
    };
    if (eighth_ && chance(0.5)) return draw_experts(m, t, name);
    switch (between(0, 6)) {
      case 0: {
        if (!third_) return m.layer_norm(name, t, {.per_place = true});
        const Value normed = m.layer_norm(name + "a", t, {.per_place = true});
        const Value side = m.linear(name + "b", normed, {.features = channels_of(m, t), .per_place = true});
        return m.add(name, t, m.dropout(name + "c", side, {.rate = 0.3}));
      }
      case 1: return m.rms_norm(name, t);
      case 2:
        return m.positions(name, t,
                           {.places = chance(0.3) ? m.shapes()[t.layer]['L'] + between(1, 3) : 0, .deviation = 1});
      case 3: return m.gated(name, linear(name + "a", 2 * between(1, 4)), draw_activation());
      case 4:
      case 5: return draw_attention(m, t, name);
      default: return linear(name, between(1, 7));
    }
  }

  Value draw_attention(Model& m, Value t, const std::string& name) {
    const Index groups = pick(std::vector<Index>{1, 2, 3, 4, 4, 6}), heads = groups * between(1, 2);
    const Index dim = between(1, 4);
    t = m.linear(name + "a", t, {.features = (heads + 2 * groups) * dim, .bias = chance(0.5), .per_place = true});
    if (dim % 2 == 0 && chance(0.5)) t = m.rotary(name + "b", t, {.heads = heads, .groups = groups});
    const Attention attention{.heads = heads, .groups = groups, .causal = chance(0.5), .dropout = third_ ? 0.3 : 0};
    if (segments_ && m.shapes(1)[t.layer]['L'] == m.shapes(1)[segments_in_.layer]['L'] &&
        (name == "attention" || chance(0.7)))
      return m.attention(name, t, segments_in_, attention);
    return m.attention(name, t, attention);
  }

  /// Draws experts of one or two layers, and often more or fewer of them than ranks.
  Value draw_experts(Model& m, Value t, const std::string& name) {
    const Index count = pick(std::vector<Index>{1, 2, 3, 4, 4, 5, 8}), channels = channels_of(m, t);
    const Experts experts{.experts = count,
                          .chosen = between(1, std::min<Index>(count, 3)),
                          .capacity = pick(std::vector<double>{0.1, 0.5, 1, 1.25, 8}),
                          .normalized = chance(0.5),
                          .balance = chance(0.5) ? 0.5 : 0};
    const auto linear = [&](const std::string& called, Value x, Index features, Index groups) {
      return m.linear(called, x, {.features = features, .bias = chance(0.5), .per_place = true, .groups = groups});
    };
    const Value scores = linear(name + "a", t, count, 1);
    Value slots = m.dispatch(name + "b", t, scores, experts);
    if (chance(0.8)) slots = linear(name + "c", slots, count * between(1, 4), count);
    if (chance(0.5)) slots = linear(name + "d", m.gelu(name + "e", slots), count * channels, count);
    return m.combine(name, scores, slots, experts);
  }

  /// As `until_it_fits`, but also draws again if the output is so large that the reference would take long. After 20
  /// draws it adds an activation instead.
  template <class Add>
  Value until_small(Add&& add, Model& m, Value t, const std::string& name) {
    const Model before = m;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const Value added = until_it_fits(add);
      if (const Shape y = m.shapes(1).back(); y.volume() < 3000 && y['C'] <= 30) return added;
      m = before;
    }
    return m.activation(name, t, draw_activation());
  }

  Value draw_resampling(Model& m, Value t, const std::string& name) {
    const auto scale = [&] { return between(1, 3); };
    const auto margin = [&] { return Sides(between(0, 2), between(0, 2)); };
    switch (between(0, 2)) {
      case 0:
        return until_small(
            [&] {
              return m.upsample(name, t,
                                {per_dim(scale), chance(0.5) ? Interpolation::linear : Interpolation::nearest});
            },
            m, t, name);
      case 1: return until_it_fits([&] { return m.crop(name, t, sides(margin)); });
      default: return until_small([&] { return m.space_to_depth(name, t, per_dim(scale)); }, m, t, name);
    }
  }

  static Index channels_of(const Model& m, Value t) { return m.shapes(1)[t.layer]['C']; }

  /// Returns a convolution that keeps the shape, so that its output can be added to its input.
  Conv same_shape(const Model& m, Value t) {
    const Index kernel = between(1, 4);
    bool down = false;  // alternates the side with the larger padding
    const auto padding = [&] {
      down = !down;
      return down ? Sides((kernel - 1) / 2, kernel / 2) : Sides(kernel / 2, (kernel - 1) / 2);
    };
    return {.filters = channels_of(m, t), .kernel = kernel, .padding = sides(padding)};
  }

  /// Draws a loss for an input with spatial dimensions.
  void draw_loss(Model& m, Value t, Index classes) {
    switch (between(0, 3)) {
      case 0: m.softmax_dice("loss", t, third_ && chance(0.5) ? Dice{between(0, 1)} : Dice{}); return;
      case 1: m.mean_squared_error("loss", t); return;
      case 2: m.mean_absolute_error("loss", t); return;
      default: m.softmax_cross_entropy("loss", t, draw_labels(classes));
    }
  }

  /// Draws a class to ignore, weights of classes, and smoothing.
  CrossEntropy draw_labels(Index classes) {
    CrossEntropy labels;
    if (!third_) return labels;
    if (chance(0.6)) labels.ignored = between(0, classes - 1);
    if (chance(0.6))
      for (Index c = 0; c < classes; ++c) labels.weights.push_back(static_cast<double>(between(0, 4)) / 2);
    if (chance(0.6)) labels.smoothing = 0.125;
    return labels;
  }

  Model draw_model() {
    Model m("random");
    dims_ = static_cast<int>(pick(std::vector<Index>{1, 2, 2, 2, 3}));
    if (segments_ || (eighth_ && chance(0.5))) dims_ = 1;
    const std::vector<Index> extents =
        dims_ == 3 ? std::vector<Index>{1, 2, 3, 5, 7} : std::vector<Index>{1, 2, 3, 5, 7, 11, 13};
    std::vector<Index> spatial;
    for (int d = 0; d < dims_; ++d) spatial.push_back(pick(extents));
    sequence_ = dims_ == 1 && fourth_;
    Input input{.channels = between(1, 3)};
    if (sequence_)
      input.length = spatial[0];
    else
      input.spatial = spatial;
    input.tokens = sequence_ && chance(0.4);
    if (input.tokens) input.channels = 1;
    Value t = m.input("in", input);
    if (input.tokens)
      t = m.embedding("embedding", t, {.vocabulary = vocabulary, .features = between(1, 6), .deviation = 1});
    if (segments_) segments_in_ = m.input("segments", {.length = input.length, .tokens = true});
    if (sequence_ && (segments_ || chance(0.5))) t = draw_attention(m, t, "attention");
    if (sequence_ && eighth_ && chance(0.5)) t = draw_experts(m, t, "experts");
    for (Index i = 0, count = between(1, 5); i < count; ++i) t = draw_layer(m, t, fmt::format("layer{}", i));
    if (chance(0.3)) {
      const Index classes = between(2, 4);
      draw_loss(m, m.conv("scores", t, {.filters = classes}), classes);
      return m;
    }
    // The ReLU keeps the mean from following a normalization directly. The mean of values with mean zero has a gradient
    // of rounding errors only, and LARS distinguishes that from 0.
    if (chance(0.2)) t = m.global_average_pool("mean", m.relu("bent", t));
    if (chance(0.5))
      t = m.relu("act", m.linear("hidden", t, {.features = width_ * between(1, 7), .bias = chance(0.5)}));
    if (chance(0.4)) t = m.linear("fused", t, {.features = width_ * between(1, 9), .activation = draw_activation()});
    const Index classes = between(2, 5);
    t = m.linear("fc", t, {.features = classes});
    chance(0.8) ? m.softmax_cross_entropy("loss", t, draw_labels(classes)) : m.mean_squared_error("loss", t);
    return m;
  }

  /// Draws a model of tokens whose scores share the table of the embedding.
  Model draw_tied_model() {
    Model m("random");
    dims_ = 1;
    sequence_ = true;
    const Index features = between(1, 6);
    Value t = m.input("in", {.length = pick(std::vector<Index>{1, 2, 3, 5, 7, 11}), .tokens = true});
    t = m.embedding("embedding", t, {.vocabulary = vocabulary, .features = features, .deviation = 1});
    if (chance(0.5)) t = draw_attention(m, t, "attention");
    for (Index i = 0, count = between(0, 2); i < count; ++i) t = draw_layer(m, t, fmt::format("layer{}", i));
    if (channels_of(m, t) != features || chance(0.5))
      t = m.linear("back", t, {.features = features, .per_place = true});
    t = m.linear("scores", t, {.features = vocabulary, .bias = chance(0.5), .per_place = true, .tied_to = "embedding"});
    m.softmax_cross_entropy("loss", t, draw_labels(vocabulary));
    return m;
  }

  /// Draws a model with one or two groups of tables, each with an input of its own, and an input of numbers, in any
  /// order.
  Model draw_model_with_tables() {
    Model m("random");
    const Index features = between(1, 6);
    Value dense, vectors;
    const auto add_dense = [&] {
      Input input{.channels = between(1, 5)};
      for (Index d = between(0, 2); d > 0; --d) input.spatial.push_back(between(1, 4));
      dense = m.input("dense", input);
      if (input.spatial.empty() && chance(0.3)) dense = m.relu("bent", dense);
      dense = m.linear("bottom", dense, {.features = features, .bias = chance(0.5)});
    };
    const auto add_tables = [&](const std::string& group) {
      const Value in = m.input("in" + group, {.channels = between(1, 3), .length = between(1, 5), .tokens = true});
      return m.tables("tables" + group, in,
                      {.rows = pick(std::vector<Index>{1, 2, 3, 7, 11}),
                       .features = features,
                       .mean = chance(0.5),
                       .deviation = 1});
    };
    const bool late = chance(0.5);
    if (!late) add_dense();
    vectors = add_tables("0");
    if (late) add_dense();
    Value t = chance(0.7) ? m.interaction("interaction", vectors, dense)
                          : m.add("sum", dense, m.linear("of_tables", vectors, {.features = features}));
    if (chance(0.5)) t = m.concatenate("all", {t, m.linear("more", add_tables("1"), {.features = between(1, 4)})});
    if (chance(0.5)) t = m.linear("top", t, {.features = width_ * between(1, 9), .activation = draw_activation()});
    const Index classes = between(2, 5);
    t = m.linear("fc", t, {.features = classes});
    chance(0.8) ? m.softmax_cross_entropy("loss", t, draw_labels(classes)) : m.mean_squared_error("loss", t);
    return m;
  }

  /// Draws a layout: each axis shards a random dimension that the layer can shard, or replicates.
  std::string draw_layout(const Layer& layer, const Shape& shape) {
    std::vector<std::string> axes = strategy.grid().names();
    std::shuffle(axes.begin(), axes.end(), random_);
    std::vector<std::vector<std::string>> by_dim(static_cast<std::size_t>(shape.dims()));
    for (const auto& axis : axes) {
      const auto d = static_cast<std::size_t>(between(0, shape.dims()));  // shape.dims(): it replicates
      if (d == by_dim.size() || (shape.name(static_cast<int>(d)) == 'C' && layer.op->is_loss())) continue;
      by_dim[d].push_back(axis);
    }
    std::string text;
    for (std::size_t d = 0; d < by_dim.size(); ++d) {
      if (by_dim[d].empty()) continue;
      text +=
          fmt::format("{}{}@({})", text.empty() ? "" : " ", shape.name(static_cast<int>(d)), fmt::join(by_dim[d], ","));
    }
    return text;
  }

  std::mt19937_64 random_;
  Index width_;
  int dims_ = 2;  // number of spatial dimensions
  // whether three, four and eight divide the seed
  bool third_, fourth_, eighth_;
  bool segments_;          // whether attention sees segments, if the model has no tables and is not tied
  Value segments_in_;      // an input
  bool tables_;            // whether the model has tables, and several inputs
  bool tied_;              // whether its scores share the table of an embedding
  bool sequence_ = false;  // whether the dimension is that of places, L
};

}  // namespace

RandomCase::RandomCase(std::uint64_t seed, Index width) {
  Drawing drawn(seed, width);
  model = std::move(drawn.model);
  strategy = std::move(drawn.strategy);
  batch = drawn.batch;
  optimizer = drawn.optimizer;
}

std::string RandomCase::print() const {
  return fmt::format("batch {}\n{}\n{}{}", batch, optimizer.print(), model.describe(), strategy.print());
}

}  // namespace partita::test
