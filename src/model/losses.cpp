#include "partita/base/philox.hpp"
#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

/// x's shape without its channels.
Shape places(const Shape& x) {
  Shape shape;
  for (int d = 0; d < x.dims(); ++d)
    if (x.name(d) != 'C') shape.push_back({x.name(d), x.extent(d)});
  return shape;
}

/// The layouts of a loss that runs on x. Its results, two doubles or four, are summed over all axes that shard x.
OperatorLayouts loss_of(const Layout& x, const LayoutRequest& request, const Target& target) {
  OperatorLayouts layouts{.x = {x}, .y = x.onto(request.output.shape()), .dx = {x}};
  layouts.y = layouts.y.with_partial(0);
  const Layout number(Shape{{'L', 1}}, x.grid());
  if (x.sharding() != 0)
    layouts.collectives.push_back({Collective::When::forward, "loss", x.sharding(), number, target.results()});
  return layouts;
}

/// The layout of a loss's input: the strategy's if it gives one, else the layout in which the input arrives, with
/// samples sharded like the output's.
Layout input_of(const LayoutRequest& request) {
  if (request.input[0]) return request.input[0]->with_partial(0);
  Layout x = request.arriving[0].with_partial(0);
  const auto& samples = request.output.axes(0);
  if (x.axes(0) == samples) return x;
  for (int d = 0; d < x.shape().dims(); ++d)
    if (d == 0 || (x.sharding(d) & request.output.sharding(0)) != 0) x = x.with(d, {});
  return x.with(0, samples);
}

std::string text_of_ignored(std::optional<Index> label) { return label ? fmt::format("ignored {}", *label) : ""; }

Layout with_whole_channels(const Layout& x) { return x.with(x.shape().find('C'), {}); }

}  // namespace

Shape LossOperator::output(std::span<const Shape> inputs) const {
  if (!inputs[0].has('C')) fail("a loss needs an input N C ..., not {}", inputs[0].print());
  return {{'N', inputs[0]['N']}};
}

std::string CrossEntropyOperator::describe() const {
  std::string text = text_of_ignored(labels_.ignored);
  const auto& weights = labels_.weights;
  constexpr std::size_t few = 8;
  if (const std::string all = fmt::format("{}", fmt::join(weights, ",")); weights.size() > few)
    text += fmt::format(" {} weights #{:x}", weights.size(), hash_text(all));
  else if (!weights.empty())
    text += " weights " + all;
  if (labels_.smoothing > 0) text += fmt::format(" smoothing {}", labels_.smoothing);
  return text.starts_with(' ') ? text.substr(1) : text;
}

Shape CrossEntropyOperator::output(std::span<const Shape> inputs) const {
  const Shape y = LossOperator::output(inputs);
  const auto& weights = labels_.weights;
  if (!(labels_.smoothing >= 0 && labels_.smoothing < 1))
    fail("smoothing is {}; it must be at least 0 and less than 1", labels_.smoothing);
  if (!weights.empty() && std::ssize(weights) != inputs[0]['C'])
    fail("there are {} weights of classes for {} classes; give one for each, or none", weights.size(), inputs[0]['C']);
  const auto wrong = std::find_if_not(weights.begin(), weights.end(),
                                      [](double weight) { return weight >= 0 && std::isfinite(weight); });
  if (wrong != weights.end())
    fail("the weight of class {} is {}; it must be a number from 0 on", wrong - weights.begin(), *wrong);
  return y;
}

Target CrossEntropyOperator::target(const Shape& x) const {
  return {places(x), true, labels_.ignored, labels_.ignored.has_value() || !labels_.weights.empty()};
}

namespace {

/// True if a gather of the scores moves more than the two reductions of four doubles for each row that stand in for it.
/// An evaluation counts predictions, and a prediction is written whole.
bool cuts_channels(const Layout& x, const LayoutRequest& request) {
  constexpr Index bytes_of_row = 2 * 4 * sizeof(double);
  return request.training && x.shape()['C'] * size_of(request.dtype) > bytes_of_row;
}

Index rows_of(const Layout& x, int rank) {
  const Box mine = x.owned(rank);
  Index rows = 1;
  for (int d = 0; d < mine.dims(); ++d)
    if (x.shape().name(d) != 'C') rows *= mine.extent(d);
  return rows;
}

}  // namespace

HeldNumbers CrossEntropyOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  return {.forward = row_numbers() * rows_of(x, rank) + std::ssize(labels_.weights)};
}

// loss = sum over a, b of cross-entropy(x[N@a C@c H@b]) / (samples * places), with the maximum and the sums of each row
// over c (Shoeybi et al. 2019)
OperatorLayouts CrossEntropyOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const bool cut = request.training && request.input[0] && request.input[0]->sharding('C') != 0;
  Layout x = input_of(request);
  if (!cut && (request.input[0] || !cuts_channels(x, request))) x = with_whole_channels(x);
  OperatorLayouts layouts = loss_of(x, request, target(x.shape()));
  const AxisSet channels = x.sharding('C');
  if (channels == 0) return layouts;
  const Layout rows = x.onto(places(x.shape()));
  layouts.collectives.insert(layouts.collectives.begin(),
                             {{Collective::When::forward, "largest scores", channels, rows, 1},
                              {Collective::When::forward, "sums of scores", channels, rows, row_numbers() - 1}});
  return layouts;
}

Shape DiceOperator::output(std::span<const Shape> inputs) const {
  if (inputs[0].dims() <= first_spatial)
    fail("it needs an input N C ... with spatial dimensions, not {}", inputs[0].print());
  return LossOperator::output(inputs);
}

std::string DiceOperator::describe() const { return text_of_ignored(labels_.ignored); }

Target DiceOperator::target(const Shape& x) const {
  return {places(x), true, labels_.ignored, labels_.ignored.has_value()};
}

// Two sums for each sample and channel.
HeldNumbers DiceOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  const Box mine = x.owned(rank);
  return {.forward = 2 * mine.extent(0) * mine.extent(1)};
}

// sums[N@a C] = over b: the overlap of softmax(x[N@a C H@b]) and the labels, and the total of both
OperatorLayouts DiceOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  if (request.input[0]) refuse_channels(*request.input[0], "input");
  const Layout x = with_whole_channels(input_of(request));
  OperatorLayouts layouts = loss_of(x, request, target(x.shape()));
  const AxisSet space = x.sharding() & ~x.sharding('N');
  if (space == 0) return layouts;
  const Layout sums = x.onto(Shape{{'N', x.shape()['N']}, {'C', x.shape()['C']}});
  layouts.collectives.insert(layouts.collectives.begin(), {Collective::When::forward, "overlaps", space, sums, 2});
  return layouts;
}

// loss = sum over a, b, c of difference(x[N@a C@b H@c]) / elements
OperatorLayouts DifferenceOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = input_of(request);
  return loss_of(x, request, target(x.shape()));
}

}  // namespace partita
