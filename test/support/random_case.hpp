#pragma once

#include "partita/base/error.hpp"
#include "partita/strategies/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace partita::test {

/// A model, a strategy and a batch drawn from a seed: extents prime, tiny or smaller than the grid; any kernel, stride,
/// dilation and padding; every grid of 1, 2, 3, 4, 6 and 8 ranks; axes in any order, unused ones too.
class RandomCase {
 public:
  explicit RandomCase(std::uint64_t seed) : random_(seed) {
    strategy =
        Strategy(pick(std::vector<std::string>{"", "a=2", "a=3", "a=4", "a=2 b=2", "a=6", "a=3 b=2", "a=2 b=3", "a=8",
                                               "a=2 b=4", "a=4 b=2", "a=2 b=2 c=2", "a=1 b=2", "a=2 b=1 c=3"}));
    batch = pick(std::vector<Index>{1, 2, 3, 5, 7});
    model = draw_model();
    const auto shapes = model.shapes(batch);
    for (std::size_t i = 0; i < model.layers().size(); ++i) {
      const Layer& layer = model.layers()[i];
      LayerRule rule;
      if (chance(0.85)) rule.output = draw_layout(layer, shapes[i]);
      if (chance(0.15) && !layer.inputs.empty())
        rule.input = draw_layout(layer, shapes[static_cast<std::size_t>(layer.inputs[0])]);
      if (chance(0.3) && layer.op->kind() == "linear") rule.weights = "F";  // whole
      if (rule.output || rule.input || rule.weights) strategy.layer(layer.name, rule);
    }
    draw_optimizer();
  }

  std::string print() const {
    return fmt::format("batch {}\n{}\n{}{}", batch, optimizer.print(), model.describe(), strategy.print());
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
    return from[static_cast<std::size_t>(between(0, static_cast<Index>(from.size()) - 1))];
  }

  /// Every term; epsilon so large that a gradient of rounding errors alone is not blown up to a step of its own.
  void draw_optimizer() {
    optimizer.method = pick(std::vector<Method>{Method::sgd, Method::sgd, Method::adagrad, Method::rmsprop,
                                                Method::adam, Method::adamw, Method::lars, Method::lamb});
    optimizer.rate = 0.02;
    optimizer.momentum = chance(0.2) ? 0 : 0.9;
    optimizer.nesterov = optimizer.method == Method::sgd && optimizer.momentum > 0 && chance(0.7);
    optimizer.weight_decay = 1e-3;
    optimizer.epsilon = 1e-2;
    optimizer.trust = 0.1;
    if (chance(0.4)) strategy.update(Strategy::Update::distributed);
    strategy.bucket_bytes(pick(std::vector<Index>{1, 300, 4000, Index{4} << 20}));
  }

  /// Calls `add` with fresh draws until one fits the shapes.
  template <class Add>
  Value until_it_fits(Add&& add) {
    for (;;) try {
        return add();
      } catch (const Error&) {
        continue;
      }
  }

  Conv draw_conv() {
    const auto kernel = [&] { return between(1, chance(0.5) ? 3 : 7); };
    const auto sides = [&] { return chance(0.3) ? Sides(0) : Sides(between(0, 8), between(0, 8)); };
    return {.filters = between(1, 5),
            .kernel = {kernel(), kernel()},
            .stride = {between(1, 3), between(1, 3)},
            .padding = {sides(), sides()},
            .dilation = {between(1, 3), between(1, 3)},
            .bias = chance(0.5)};
  }

  Pool draw_pool() {
    return {.window = {between(1, 4), between(1, 4)},
            .stride = PerDim{between(1, 3), between(1, 3)},
            .padding = {Sides(between(0, 2), between(0, 2)), Sides(between(0, 2), between(0, 2))},
            .dilation = {between(1, 2), between(1, 2)},
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
    return {static_cast<Activation::Kind>(between(0, static_cast<Index>(Activation::Kind::silu))), 0.3};
  }

  Value draw_layer(Model& m, Value t, const std::string& name) {
    switch (between(0, 6)) {
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
      default: return until_it_fits([&] { return m.conv(name, t, draw_conv()); });
    }
  }

  /// A convolution that keeps the shape, so that its output can be added to its input.
  Conv same_shape(const Model& m, Value t) {
    const auto channels = m.shapes(1)[static_cast<std::size_t>(t.layer)]['C'];
    const Index kernel = between(1, 4);
    return {.filters = channels,
            .kernel = kernel,
            .padding = {Sides((kernel - 1) / 2, kernel / 2), Sides(kernel / 2, (kernel - 1) / 2)}};
  }

  Model draw_model() {
    Model m("random");
    const std::vector<Index> extents{1, 2, 3, 5, 7, 11, 13};
    Value t = m.input("in", {.channels = between(1, 3), .spatial = {pick(extents), pick(extents)}});
    for (Index i = 0, count = between(1, 5); i < count; ++i) t = draw_layer(m, t, fmt::format("layer{}", i));
    // Not right behind a normalisation: the mean of what has mean zero has no gradient but rounding, which LARS tells from 0.
    if (chance(0.2)) t = m.global_average_pool("mean", m.relu("bent", t));
    if (chance(0.5)) t = m.relu("act", m.linear("hidden", t, {.features = between(1, 7), .bias = chance(0.5)}));
    m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = between(2, 5)}));
    return m;
  }

  /// Axes at random places: any dimension for layers that take it, samples and space alone for convolutions.
  std::string draw_layout(const Layer& layer, const Shape& shape) {
    std::vector<std::string> axes = strategy.grid().names();
    std::shuffle(axes.begin(), axes.end(), random_);
    std::vector<std::vector<std::string>> by_dim(static_cast<std::size_t>(shape.dims()));
    const auto kind = layer.op->kind();
    for (const auto& axis : axes) {
      const auto d = static_cast<std::size_t>(between(0, shape.dims()));  // shape.dims(): it replicates
      if (d == by_dim.size() || (shape.name(static_cast<int>(d)) == 'C' && (kind == "conv" || layer.op->is_loss())))
        continue;
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
};

}  // namespace partita::test
