#include "src/model/expert_operators.hpp"
#include "src/model/rules.hpp"

#include <algorithm>
#include <cmath>

// Experts: dispatch moves the places of sequences to the slots of experts, combine moves them back. Experts are groups
// of channels, and slots are places, so that layers between the two know nothing of experts.

namespace partita {

std::string RoutedOperator::describe() const {
  std::string text =
      fmt::format("{} top {} capacity {}", counted(experts_.experts, "expert"), experts_.chosen, experts_.capacity);
  if (experts_.normalized) text += " normalized";
  if (experts_.balance > 0) text += fmt::format(" balance {}", experts_.balance);
  return text;
}

void RoutedOperator::check(const Shape& scores) const {
  const Experts& e = experts_;
  if (!scores.has('L')) fail("its scores {} are no sequence; experts need places, the dimension L", scores.print());
  if (e.experts < 1) fail("experts is {}; it must be 1 or more", e.experts);
  if (e.chosen < 1 || e.chosen > e.experts)
    fail("a place chooses {} of {}; it must choose 1 to {}", e.chosen, counted(e.experts, "expert"), e.experts);
  if (!(e.capacity > 0) || !std::isfinite(e.capacity))
    fail("capacity is {:g}; it must be more than 0: 1 gives each expert its even share of the places", e.capacity);
  if (!(e.balance >= 0) || !std::isfinite(e.balance)) fail("balance is {:g}; it must be 0 or more", e.balance);
  if (scores['C'] != e.experts)
    fail("its scores {} have {} channels for {}; give one score for each expert", scores.print(), scores['C'],
         counted(e.experts, "expert"));
}

Routing RoutedOperator::routing(Index places) const {
  // An even share of the places may be a whole number that rounding makes a little larger.
  constexpr double rounding = 1e-12;
  const double share = experts_.capacity * static_cast<double>(experts_.chosen * places) /
                       static_cast<double>(experts_.experts) * (1 - rounding);
  const Index slots = share >= static_cast<double>(places) ? places : static_cast<Index>(std::ceil(share));
  return {experts_.experts, experts_.chosen, slots, experts_.normalized};
}

PlaceUse RoutedOperator::place_use() const {
  const double most = static_cast<double>(experts_.experts) / static_cast<double>(experts_.chosen);
  return experts_.capacity >= most ? PlaceUse::same : PlaceUse::any;
}

Layout RoutedOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

// Both inputs and the output: N@a. Samples are cut as those of the output. Where these are whole over some axes because
// channels are cut over them, as experts are, the samples stay as they arrive, so that an all-to-all moves the slots.
// Axes that cut places cut samples instead if there are enough, after an all-to-all; else the places are gathered.
OperatorLayouts RoutedOperator::by_samples(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout& x = request.arriving[0];
  const bool keeps = (request.output.sharding('N') & ~x.sharding('N')) == 0;
  const Layout& samples = request.input[0] ? *request.input[0] : keeps ? x : request.output;
  AxisList axes = samples.axes(0), with_places = axes;
  AxisSet all = samples.sharding('N');
  for (const int axis : x.axes(x.shape().find('L')))
    if ((all & AxisSet{1} << axis) == 0) {
      with_places.push_back(axis);
      all |= AxisSet{1} << axis;
    }
  if (!request.input[0] && x.shape()['N'] >= x.grid().group_size(all)) axes = with_places;
  const auto cut = [&](const Shape& shape) { return Layout(shape, x.grid()).with(0, axes); };
  OperatorLayouts layouts{.y = cut(request.output.shape())};
  for (const Layout& each : request.arriving) layouts.x.push_back(cut(each.shape()));
  layouts.dx = layouts.x;
  return layouts;
}

Shape DispatchOperator::output(std::span<const Shape> inputs) const {
  const Shape &x = inputs[0], &scores = inputs[1];
  check(scores);
  if (x.names() != scores.names() || x['L'] != scores['L'])
    fail("its scores {} have other places than {}; give the scores of the same places", scores.print(), x.print());
  return {{'N', x['N']}, {'C', experts().experts * x['C']}, {'L', routing(x['L']).slots}};
}

HeldNumbers DispatchOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  const Index places = x.shape()['L'];
  return {.forward = x.owned(rank).extent(0) * routing(places).numbers(places) / 2};  // two of i32 are one of f64
}

Shape CombineOperator::output(std::span<const Shape> inputs) const {
  const Shape &scores = inputs[0], &x = inputs[1];
  check(scores);
  const Index slots = routing(scores['L']).slots;
  if (x.names() != scores.names() || x['L'] != slots)
    fail("its slots {} are not the {} of each expert; give what layers make of the output of dispatch", x.print(),
         counted(slots, "slot"));
  if (x['C'] % experts().experts != 0)
    fail("{} do not divide the {} channels of its slots {}", counted(experts().experts, "expert"), x['C'], x.print());
  return {{'N', x['N']}, {'C', x['C'] / experts().experts}, {'L', scores['L']}};
}

double CombineOperator::flops(std::span<const Shape> /*inputs*/, const Shape& output) const {
  return 2 * static_cast<double>(experts().chosen) * static_cast<double>(output.volume());
}

HeldNumbers CombineOperator::numbers(const Layout& scores, int rank, bool /*training*/) const {
  const Index places = scores.shape()['L'];
  return {.forward = scores.owned(rank).extent(0) * (routing(places).numbers(places) / 2 + places * experts().chosen)};
}

}  // namespace partita
