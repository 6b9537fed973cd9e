#include "bench/support/oracle_case.hpp"
#include "partita/base/error.hpp"
#include "partita/layouts/algorithm.hpp"
#include "partita/strategies/plan/bind.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace partita::bench {

namespace {

/// Draws a case. `image` is the input, as in the cases of images, and `first` the layer behind it. Its gradient checks
/// the dx of the layer under test.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed), segments_(seed % 3 == 1) {}

  OracleCase operator()() {
    c_.batch = between(1, 3);
    length_ = pick(std::vector<Index>{1, 2, 3, 5, 7, 11});
    const auto [kind, add] = kinds[between(0, std::ssize(kinds) - 1)];
    kind_ = kind;
    c_.described["kind"] = kind;
    const Value y = (this->*add)();
    const bool labels = kind_ == "cross_entropy" || chance(0.15);
    c_.described["labels"] = labels;
    labels ? c_.model.softmax_cross_entropy("loss", y) : c_.model.mean_squared_error("loss", y);
    c_.strategy = Strategy(
        pick(std::vector<std::string>{"", "a=2", "a=3", "a=4", "a=5", "a=6", "a=2 b=2", "a=2 b=3", "a=3 b=2"}));
    if (c_.strategy.grid().axes() > 0)
      for (std::size_t i = 0; i < c_.model.layers().size(); ++i) draw_rule(i);
    return std::move(c_);
  }

 private:
  Index between(Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[between(0, static_cast<Index>(from.size()) - 1)];
  }

  /// A sequence, or an image, and a layer that makes `channels` of it.
  Value first(Index channels, bool image = false) {
    const bool tables = kind_ == "tables" || (kind_ == "interaction" && chance(0.5));
    const bool tokens = !image && (kind_ == "embedding" || tables || chance(0.25));
    Input input{.channels = tables ? between(1, 4) : tokens ? 1 : 2};
    input.tokens = tokens;
    if (image)
      for (Index d = between(1, 3); d > 0; --d) input.spatial.push_back(between(1, 5));
    else
      input.length = length_;
    const Value x = c_.model.input("image", input);
    const Index vocabulary = tokens ? between(1, 7) : 0;
    c_.described["vocabulary"] = vocabulary;
    if (tables) {
      const bool mean = chance(0.5);
      c_.described["bags"] = mean ? "mean" : "sum";
      return c_.model.tables("first", x, {.rows = vocabulary, .features = channels, .mean = mean, .deviation = 1});
    }
    if (tokens) return c_.model.embedding("first", x, {.vocabulary = vocabulary, .features = channels, .deviation = 1});
    return c_.model.linear("first", x, {.features = channels, .per_place = true});
  }
  /// As above, for layers that also take images.
  Value first_of_any(Index channels) { return first(channels, chance(0.25)); }

  Value layer_norm() {
    c_.described["epsilon"] = 1e-3;
    // of one channel all gradients but the shift's are zero, and PyTorch's rounding errors
    return c_.model.layer_norm("layer", first_of_any(between(2, 7)), {.epsilon = 1e-3, .per_place = true});
  }

  Value rms_norm() {
    c_.described["epsilon"] = 1e-3;
    return c_.model.rms_norm("layer", first_of_any(between(1, 7)), {.epsilon = 1e-3});
  }

  Value positions() { return c_.model.positions("layer", first(between(1, 7))); }

  Value places() { return c_.model.places("layer", first(between(1, 7), true)); }

  Activation draw_activation() {
    const auto activations = Activation::kinds();
    const Activation f{activations[between(0, std::ssize(activations) - 1)], 0.3};
    c_.described["activation"] = name(f.kind);
    c_.described["parameter"] = f.parameter;
    return f;
  }

  Value gated() {
    const Activation f = draw_activation();
    return c_.model.gated("layer", first_of_any(2 * between(1, 5)), f);
  }

  /// The layer of the kinds that check what stands before or behind it, too.
  Value linear() {
    const Linear linear{.features = between(1, 12), .bias = chance(0.5), .per_place = true};
    const Value t = kind_ == "place_linear" ? first_of_any(between(1, 7)) : first(between(1, 7));
    const Value y = c_.model.linear("layer", t, linear);
    return kind_ == "place_linear" && chance(0.4) ? c_.model.activation("act", y, draw_activation()) : y;
  }

  /// The products of the vectors with each other, and with one of another input.
  Value interaction() {
    const Index channels = between(1, 6);
    const Value vectors = first(channels);
    const Value dense = c_.model.linear("bottom", c_.model.input("dense", {.channels = 3}), {.features = channels});
    return c_.model.interaction("layer", vectors, dense);
  }

  /// Draws heads of a width that is a multiple of `step`, and returns their channels.
  Index draw_heads(Index step) {
    const Index groups = between(1, 4), in_group = between(1, 3), dim = step * between(1, step > 1 ? 3 : 5);
    heads_ = groups * in_group;
    groups_ = in_group == 1 && chance(0.5) ? 0 : groups;
    c_.described["heads"] = heads_;
    c_.described["groups"] = groups;
    return (heads_ + 2 * groups) * dim;
  }

  Rotary draw_rotary() {
    const double base = pick(std::vector<double>{1.5, 100, 10000});
    c_.described["base"] = base;
    return {.heads = heads_, .groups = groups_, .base = base};
  }

  Value rotary() {
    const Value t = first(draw_heads(2));
    return c_.model.rotary("layer", t, draw_rotary());
  }

  Value attention() {
    const bool turned = chance(0.4), causal = chance(0.5);
    if (chance(0.08)) length_ = pick(std::vector<Index>{131, 521});  // more than one block of queries, and of keys
    c_.described["causal"] = causal;
    Value t = first(draw_heads(turned ? 2 : 1));
    if (turned) t = c_.model.rotary("turned", t, draw_rotary());
    const Attention attention{.heads = heads_, .groups = groups_, .causal = causal};
    if (!segments_) return c_.model.attention("layer", t, attention);
    c_.described["numbers of segments"] = between(1, 4);
    const Value segments = c_.model.input("segments", {.length = length_, .tokens = true});
    return c_.model.attention("layer", t, segments, attention);
  }

  /// Experts of one linear layer each, and often an activation.
  Value experts() {
    const Index count = between(1, 6), features = count * between(1, 5);
    const Experts experts{.experts = count,
                          .chosen = between(1, count),
                          .capacity = pick(std::vector<double>{0.3, 0.7, 1, 1.25, 6}),
                          .normalized = chance(0.5),
                          .balance = pick(std::vector<double>{0, 0.25})};
    c_.described["experts"] = count;
    c_.described["chosen"] = experts.chosen;
    c_.described["capacity"] = experts.capacity;
    c_.described["normalized"] = experts.normalized;
    c_.described["balance"] = experts.balance;
    const auto linear = [&](const char* name, const Value& x, Index to, Index groups) {
      return c_.model.linear(name, x, {.features = to, .bias = chance(0.5), .per_place = true, .groups = groups});
    };
    const Value x = first(between(1, 7)), scores = linear("router", x, count, 1);
    Value slots = linear("layer", c_.model.dispatch("dispatch", x, scores, experts), features, count);
    if (chance(0.5)) slots = c_.model.activation("act", slots, draw_activation());
    return c_.model.combine("combine", scores, slots, experts);
  }

  /// Draws a layout: each axis cuts any dimension, or none.
  std::string draw_layout(const Shape& shape) {
    std::vector<std::string> axes = c_.strategy.grid().names();
    std::shuffle(axes.begin(), axes.end(), random_);
    std::vector<std::vector<std::string>> by_dim(static_cast<std::size_t>(shape.dims()) + 1);  // the last: none
    for (const auto& axis : axes) by_dim[between(0, shape.dims())].push_back(axis);
    std::vector<std::string> cuts;
    for (int d = 0; d < shape.dims(); ++d)
      if (!by_dim[d].empty()) cuts.push_back(fmt::format("{}@({})", shape.name(d), fmt::join(by_dim[d], ",")));
    return fmt::format("{}", fmt::join(cuts, " "));
  }

  LayerRule draw_settings(const Layer& layer, const std::vector<Shape>& shapes, const Shape& output) {
    LayerRule rule;
    const bool multiplies = layer.op->kind() == "linear";
    if (chance(layer.name == "layer" ? 0.9 : 0.6)) rule.output = draw_layout(output);
    if (layer.inputs.empty()) return rule;
    const std::array inputs{shapes[layer.inputs[0]]};
    if (chance(layer.op->is_loss() ? 0.6 : 0.25)) rule.input = draw_layout(inputs[0]);
    const bool compared = layer.name == c_.model.layers()[c_.model.layers().size() - 2].name;  // so needs its sum
    if (multiplies && !compared && chance(0.2)) rule.output = "sum@" + pick(c_.strategy.grid().names());
    if ((multiplies && chance(0.3)) ||
        ((layer.op->kind() == "embedding" || layer.op->kind() == "tables") && chance(0.6)))
      rule.weights = draw_layout(layer.op->weights(inputs)[0].shape);
    if (const auto algorithms = names_of(layer.op->algorithms()); !algorithms.empty() && chance(0.3))
      rule.algorithm = pick(algorithms);
    if (!layer.op->is_loss() && chance(0.1)) rule.recompute = true;
    return rule;
  }

  /// True for the errors that a drawn rule may cause. Any other error is a fault.
  static bool may_be_refused(const std::string& message) {
    for (const char* reason :
         {"does not fit the input", "cannot run", "must be sharded like the output's C", "asks for a pending sum",
          "cut both alike", "splits a group of channels", "a layer cannot split its"})
      if (message.find(reason) != std::string::npos) return true;
    return false;
  }

  /// Draws a rule for a layer, and draws again if it is refused. After eight refusals the layer has no rule.
  void draw_rule(std::size_t i) {
    const auto shapes = c_.model.shapes(c_.batch);
    const Layer& layer = c_.model.layers()[i];
    for (int attempt = 0; attempt < 8; ++attempt) {
      const LayerRule rule = draw_settings(layer, shapes, shapes[i]);
      Strategy with_rule = c_.strategy;
      with_rule.layer(layer.name, rule);
      try {
        static_cast<void>(bind(c_.model, with_rule, {.batch = c_.batch, .dtype = DType::f64, .optimizer = {}}));
      } catch (const Error& error) {
        if (!may_be_refused(error.what())) throw;
        continue;
      }
      c_.strategy = with_rule;
      describe(layer.name, rule);
      return;
    }
  }

  void describe(const std::string& layer, const LayerRule& rule) {
    std::string text;
    const auto add = [&](const char* what, const std::optional<std::string>& value) {
      if (value) text += fmt::format(" {}={}", what, value->empty() ? "whole" : *value);
    };
    add("output", rule.output);
    add("input", rule.input);
    add("weights", rule.weights);
    if (rule.algorithm) add("algorithm", rule.algorithm->text());
    if (rule.recompute) text += " recomputed";
    if (!text.empty()) c_.layout += fmt::format("{}{}:{}", c_.layout.empty() ? "" : "; ", layer, text);
  }

  using Add = Value (Draw::*)();
  static constexpr std::array<std::pair<const char*, Add>, 15> kinds{{{"layer_norm", &Draw::layer_norm},
                                                                      {"rms_norm", &Draw::rms_norm},
                                                                      {"positions", &Draw::positions},
                                                                      {"places", &Draw::places},
                                                                      {"gated", &Draw::gated},
                                                                      {"place_linear", &Draw::linear},
                                                                      {"embedding", &Draw::linear},
                                                                      {"tables", &Draw::linear},
                                                                      {"interaction", &Draw::interaction},
                                                                      {"cross_entropy", &Draw::linear},
                                                                      {"rotary", &Draw::rotary},
                                                                      {"attention", &Draw::attention},
                                                                      {"attention", &Draw::attention},
                                                                      {"experts", &Draw::experts},
                                                                      {"experts", &Draw::experts}}};

  std::mt19937_64 random_;
  bool segments_;  // of attention
  OracleCase c_;
  std::string kind_;
  Index length_ = 1;
  Index heads_ = 1, groups_ = 1;  // as asked of the layer
};

}  // namespace

OracleCase draw_sequence(std::uint64_t seed) { return Draw(seed)(); }

}  // namespace partita::bench
