#include "src/model/attention_operators.hpp"

#include "src/model/rules.hpp"

#include <algorithm>
#include <array>

namespace partita {

HeadGroups::HeadGroups(Index heads, Index asked, const Shape& x) : groups(asked == 0 ? heads : asked) {
  if (heads < 1) fail("heads is {}; it must be 1 or more", heads);
  if (asked < 0) fail("groups is {}; it must be 1 or more, or 0 for as many as heads", asked);
  if (heads % groups != 0) fail("{} groups do not divide {} heads", groups, heads);
  in_group = heads / groups;
  const Index all = heads + 2 * groups, channels = x['C'];
  if (channels % all != 0)
    fail("its input has {} channels; {} heads of queries with {} of keys and {} of values need a multiple of {}",
         channels, heads, groups, groups, all);
  dim = channels / all;
}

std::string RotaryOperator::describe() const {
  return fmt::format("{} heads {} groups base {:g}", rotary_.heads, rotary_.groups, rotary_.base);
}

Shape RotaryOperator::output(std::span<const Shape> inputs) const {
  check_places(inputs[0], kind());
  if (!(rotary_.base > 1)) fail("base is {}; it must be more than 1", rotary_.base);
  if (const Index dim = heads(inputs[0]).dim; dim % 2 != 0)
    fail("a head has {} channels; pairs of them are turned, so the number must be even", dim);
  return inputs[0];
}

// y[N@a C@c L@b] = x[N@a C@c L@b] turned, if each shard of C holds whole groups.
OperatorLayouts RotaryOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Index step = heads(request.output.shape()).step();
  return by_pieces(basis(request), request.output.shape(), step, step);
}

std::string AttentionOperator::describe() const {
  return fmt::format("{} heads {} groups{}{}{}{}", attention_.heads, attention_.groups,
                     attention_.causal ? " causal" : "", segments_ ? " segments" : "",
                     attention_.dropout > 0 ? fmt::format(" dropout {:g}", attention_.dropout) : "",
                     form_ == Form::continued ? " continued"
                     : whole()                ? " whole"
                                              : "");
}

Shape AttentionOperator::output(std::span<const Shape> inputs) const {
  check_places(inputs[0], kind());
  const HeadGroups all = heads(inputs[0]);
  if (segments_ && !(inputs[1] == with_channels(inputs[0], 1)))
    fail("its segments are {} for the sequence {}; give one number for each place, {}", inputs[1].print(),
         inputs[0].print(), with_channels(inputs[0], 1).print());
  if (!(attention_.dropout >= 0 && attention_.dropout < 1))
    fail("dropout is {}; it must be in [0, 1)", attention_.dropout);
  return with_channels(inputs[0], all.groups * all.in_group * all.dim);
}

std::shared_ptr<const Operator> AttentionOperator::running(Algorithm chosen) const {
  return chosen == Algorithm::whole ? std::make_shared<AttentionOperator>(attention_, segments_, Form::whole) : nullptr;
}

// y[N@a C@c L@b] = attention of x[N@a C@c L@b], if each shard of C holds whole groups; else C is whole.
OperatorLayouts AttentionOperator::around_ring(const Layout& x, const Shape& output, bool balanced) const {
  const HeadGroups all = heads(x.shape());
  OperatorLayouts way = by_pieces(x, output, all.step(), all.in_group * all.dim);
  const Layout blocks = way.x[0].onto(with_channels(x.shape(), all.groups * 2 * all.dim));
  way.algorithm = Algorithm::ring;
  way.ring = Ring{blocks, 2 * all.dim, attention_.causal, balanced, all.in_group * all.dim, all.in_group};
  return way;
}

namespace {

/// The bytes that a rank sends or receives in all, whichever are more.
double most(const RingTraffic& traffic) {
  Index sent = 0, received = 0;
  for (const PeerTraffic& peer : traffic.peers) {
    sent += peer.sent.bytes;
    received += peer.received.bytes;
  }
  return static_cast<double>(std::max(sent, received));
}

Shape local_shape(const Layout& layout, int rank) {
  const Box box = layout.owned(rank);
  Shape shape;
  for (int d = 0; d < box.dims(); ++d) shape.push_back({layout.shape().name(d), box.extent(d)});
  return shape;
}

}  // namespace

/// The cost on the rank with the most work: the last one of a causal ring, else the first one.
Alternative AttentionOperator::cost(const OperatorLayouts& way, const LayoutRequest& request) const {
  const int rank = way.ring && attention_.causal ? way.ring->last(0) : 0;
  const auto other = running(*way.algorithm);
  const Operator& runs = other != nullptr ? *other : *this;
  Alternative cost{way.algorithm, runs.flops(std::array{local_shape(way.x[0], rank)}, local_shape(way.y, rank)), 0};
  cost.balanced = way.ring && way.ring->balanced;
  if (way.ring) cost.flops *= way.ring->work(rank);
  const auto add = [&](const Layout& from, const Layout& to) {
    for (const auto& step : plan_redistribution(from, to)) cost.words += wire_elements(step, rank);
  };
  const Index element = size_of(request.dtype), sum = std::max<Index>(element, 4);  // f32 or f64
  const auto add_ring = [&](bool back) {
    if (!way.ring) return;
    const double bytes =
        most(way.ring->traffic(rank, back, element, sum)) + most(way.ring->result_traffic(rank, back, sum));
    cost.words += bytes / static_cast<double>(element);
  };
  add_ring(false);
  add(request.arriving[0], way.x[0]);
  add(way.y, request.output);
  if (!request.training || !request.needs_dx) return cost;
  add(request.output.dual(), way.y.dual());
  add(way.dx[0], request.arriving[0].dual());
  add_ring(true);
  return cost;
}

OperatorLayouts AttentionOperator::layouts(const LayoutRequest& request) const {
  OperatorLayouts layouts = of_x(request);
  if (!segments_) return layouts;
  const Layout& x = layouts.x[0];
  const Layout segments =
      x.onto(request.arriving[1].shape()).with(x.shape().find('C'), {}).with(x.shape().find('L'), {});
  layouts.x.push_back(segments);
  layouts.dx.push_back(segments);  // nothing computes it
  return layouts;
}

// Where the output's places are cut, either their axes cut groups instead, after an all-to-all (Jacobs et al.,
// "DeepSpeed Ulysses", 2023), which takes enough groups; or keys and values travel around a ring. Where keys and values
// are kept, each rank has all places of its groups, or of all groups if there are too few. Whole attention needs all
// places of its groups too.
OperatorLayouts AttentionOperator::of_x(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Shape& output = request.output.shape();
  const int c = x.shape().find('C'), l = x.shape().find('L');
  const HeadGroups all = heads(x.shape());
  const Index of_x = all.step(), of_y = all.in_group * all.dim;
  const Algorithm asked = request.algorithm();
  const bool continues = form_ == Form::continued, whole = asked == Algorithm::whole && !continues;
  if (x.axes(l).empty()) {
    if (asked != Algorithm::automatic && asked != Algorithm::whole)
      fail("algorithm \"{}\" does not fit the input \"{}\", whose places are whole; cut L, or name no algorithm",
           name(asked), x.print());
    OperatorLayouts way = by_pieces(x, output, of_x, of_y);
    if (whole) way.algorithm = Algorithm::whole;
    return way;
  }
  AxisList moved = x.axes(c);
  for (const int axis : x.axes(l)) moved.push_back(axis);
  const Layout by_groups = x.with(l, {}).with(c, moved);
  if (continues) {
    const bool fits = keeps_pieces(by_groups, of_x, by_groups.onto(output), of_y);
    return by_pieces(fits ? by_groups : x.with(l, {}), output, of_x, of_y);
  }
  std::vector<OperatorLayouts> ways;
  if (asked != Algorithm::ring && keeps_pieces(by_groups, of_x, by_groups.onto(output), of_y)) {
    ways.push_back(by_pieces(by_groups, output, of_x, of_y));
    ways.back().algorithm = whole ? Algorithm::whole : Algorithm::all_to_all;
  }
  if (asked == Algorithm::automatic || asked == Algorithm::ring) {
    ways.push_back(around_ring(x, output, false));
    if (attention_.causal && ways.back().ring->moves())
      ways.insert(ways.end() - 1, around_ring(x, output, true));  // of equal costs, the first one is taken
  }
  if (ways.empty())
    fail(
        "algorithm \"{}\" does not fit the input \"{}\": {} of heads cannot be cut over {} in equal parts; take "
        "\"ring\"",
        name(asked), x.print(), counted(all.groups, "group"), x.grid().print(by_groups.sharding('C')));
  std::vector<Alternative> costs;
  for (const auto& way : ways) costs.push_back(cost(way, request));
  const auto cheaper = [](const Alternative& a, const Alternative& b) { return a.total() < b.total(); };
  const auto best = std::min_element(costs.begin(), costs.end(), cheaper) - costs.begin();
  OperatorLayouts chosen = std::move(ways[static_cast<std::size_t>(best)]);
  std::stable_sort(costs.begin(), costs.end(), cheaper);
  chosen.alternatives = std::move(costs);
  return chosen;
}

// Two products of each query with each key that it sees: s = q k' and y = p v. Whole attention multiplies with all
// keys.
double AttentionOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  const auto places = static_cast<double>(inputs[0]['L']);
  return 4 * static_cast<double>(output.volume()) * (causal() && !whole() ? (places + 1) / 2 : places);
}

Index AttentionOperator::narrowest(std::span<const Shape> inputs) const {
  return std::max<Index>(1, std::min(inputs[0]['L'], heads(inputs[0]).dim));
}

Index AttentionOperator::kept_channels(const Layout& x, int rank) const {
  const HeadGroups all = heads(x.shape());
  return x.owned(rank).extent(1) / all.step() * 2 * all.dim;
}

// For each query the log of the sum of exponentials; or, for whole attention, all its weights, also after dropout, and
// in backward the gradients of those of one sample.
HeldNumbers AttentionOperator::numbers(const Layout& x, int rank, bool training) const {
  const HeadGroups all = heads(x.shape());
  const Index queries = x.elements(rank) / all.step() * all.in_group;
  if (!whole()) return {.sums = queries};
  const Index weights = queries * x.shape()['L'], samples = x.owned(rank).extent(0);
  return {.elements = (drops(training) ? 2 : 1) * weights, .slopes = weights / std::max<Index>(samples, 1)};
}

}  // namespace partita
