#include "src/model/attention_operators.hpp"
#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

#include <algorithm>
#include <array>

// Layers of sequences x[N C L]. Most of them take any other dimensions in the place of L.

namespace partita {

namespace {

/// y with as many channels as `features`.
Shape with_channels(const Shape& x, Index features) {
  Shape y;
  for (int d = 0; d < x.dims(); ++d) y.push_back({x.name(d), x.name(d) == 'C' ? features : x.extent(d)});
  return y;
}

/// Layouts in which each rank computes its channels of y from its channels of x, which are whole pieces. Where `x` cuts
/// pieces, the channels are whole on every rank.
OperatorLayouts by_pieces(Layout x, const Shape& output, Index of_x, Index of_y) {
  if (!keeps_pieces(x, of_x, x.onto(output), of_y)) x = x.with(x.shape().find('C'), {});
  return {.x = {x}, .y = x.onto(output), .dx = {x}};
}

void check_places(const Shape& x, std::string_view what) {
  if (!x.has('L')) fail("its input {} is no sequence; {} needs places, the dimension L", x.print(), what);
}

}  // namespace

std::string PlaceNormOperator::describe() const { return fmt::format("epsilon {:g}", epsilon_); }

Shape PlaceNormOperator::output(std::span<const Shape> inputs) const {
  if (!(epsilon_ > 0)) fail("epsilon is {}; it must be more than 0", epsilon_);
  return inputs[0];
}

std::vector<WeightSpec> PlaceNormOperator::weights(std::span<const Shape> inputs) const {
  const Shape channels{{'C', inputs[0]['C']}};
  std::vector<WeightSpec> specs{{.name = "scale", .shape = channels, .init = Init::ones, .decay = false}};
  if (centered_) specs.push_back({.name = "shift", .shape = channels, .init = Init::zeros, .decay = false});
  return specs;
}

// y[N@a C L@b] = normalized x[N@a C L@b]; dscale and dshift are partial over a and b.
OperatorLayouts PlaceNormOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  need_whole_weights(request);
  Layout x = basis(request);
  x = x.with(x.shape().find('C'), {});
  const Layout channels = x.onto(Shape{{'C', x.shape()['C']}}), gradient = channels.with_partial(sample_axes(x));
  OperatorLayouts layouts{.x = {x}, .y = x, .dx = {x}, .w = {channels}, .dw = {gradient}};
  if (centered_) {
    layouts.w.push_back(channels);
    layouts.dw.push_back(gradient);
  }
  return layouts;
}

std::string EmbeddingOperator::describe() const {
  return fmt::format("{} of {} tokens deviation {:g}", embedding_.features, embedding_.vocabulary,
                     embedding_.deviation);
}

Shape EmbeddingOperator::output(std::span<const Shape> inputs) const {
  if (embedding_.vocabulary < 1) fail("vocabulary is {}; it must be 1 or more", embedding_.vocabulary);
  if (embedding_.features < 1) fail("features is {}; it must be 1 or more", embedding_.features);
  if (inputs[0]['C'] != 1) fail("its input {} has {} channels; tokens have 1", inputs[0].print(), inputs[0]['C']);
  return with_channels(inputs[0], embedding_.features);
}

std::vector<WeightSpec> EmbeddingOperator::weights(std::span<const Shape> /*inputs*/) const {
  return {{"table", {{'V', embedding_.vocabulary}, {'C', embedding_.features}}, Init::normal, embedding_.deviation}};
}

// y[N@a C@c L@b sum@v] = table[V@v C@c] at x[N@a L@b]; the table's gradient is partial over a and b. Axes that cut the
// vocabulary cut nothing else: what they cut of the output, the sum over them is scattered to.
OperatorLayouts EmbeddingOperator::layouts(const LayoutRequest& request) const {
  const Shape& tokens = request.arriving[0].shape();
  const Shape table = weights({})[0].shape;
  const AxisSet vocabulary = request.weights ? request.weights->sharding('V') : 0;
  const Layout y = without_axes(request.output, vocabulary);
  if (request.weights && request.weights->sharding('C') != y.sharding('C'))
    fail("weights \"{}\" cut dimension C over {}, but the output is cut over {}; cut both alike",
         request.weights->print(), request.weights->grid().print(request.weights->sharding('C')),
         request.output.grid().print(y.sharding('C')));
  const Layout x = y.with(y.shape().find('C'), {}).onto(tokens);
  Layout w = y.onto(table);
  if (request.weights) w = w.with(table.find('V'), request.weights->axes(0));
  return {.x = {x}, .y = y.with_partial(vocabulary), .dx = {x}, .w = {w}, .dw = {w.with_partial(sample_axes(y))}};
}

Shape PlacesOperator::output(std::span<const Shape> inputs) const {
  const Shape& x = inputs[0];
  if (x.dims() <= first_spatial || x.has('L'))
    fail("its input {} has no spatial dimensions D H W that could become places", x.print());
  return {{'N', x['N']}, {'C', x['C']}, {'L', x.volume() / (x['N'] * x['C'])}};
}

namespace {

/// A layout of x[N C H ...] whose first spatial dimension is cut as the places are, and y's layout from x's.
Layout of_positions(const Layout& y, const Shape& x) {
  return y.onto(x).with(first_spatial, y.axes(y.shape().find('L')));
}
Layout of_places(const Layout& x, const Shape& y) { return x.onto(y).with(y.find('L'), x.axes(first_spatial)); }

}  // namespace

// y[N@a C@c L@h] = x[N@a C@c H@h W], if each shard of H holds the places of the shard of L; else these are whole.
OperatorLayouts PlacesOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Shape &x = request.arriving[0].shape(), &y = request.output.shape();
  Layout in = request.input[0] ? request.input[0]->with_partial(0) : of_positions(request.output, x);
  for (int d = first_spatial + 1; d < x.dims(); ++d) in = in.with(d, {});
  const Index row = y['L'] / x.extent(first_spatial);
  for (int rank = 0; rank < in.grid().size(); ++rank) {
    const Interval rows = in.owned(rank)[first_spatial], places = of_places(in, y).owned(rank)[first_spatial];
    if (rows.lo * row != places.lo || rows.hi * row != places.hi) in = in.with(first_spatial, {});
  }
  return {.x = {in}, .y = of_places(in, y), .dx = {in}};
}

Layout PlacesOperator::follow(const Layout& x, const Shape& output) const {
  return of_places(x.with_partial(0), output);
}

std::string PositionsOperator::describe() const {
  const std::string table = positions_.places == 0 ? "" : fmt::format("{} places ", positions_.places);
  return fmt::format("{}deviation {:g}", table, positions_.deviation);
}

Shape PositionsOperator::output(std::span<const Shape> inputs) const {
  check_places(inputs[0], kind());
  if (positions_.places != 0 && positions_.places < inputs[0]['L'])
    fail("its table has {} places, but its input {} has {}", positions_.places, inputs[0].print(), inputs[0]['L']);
  return inputs[0];
}

std::vector<WeightSpec> PositionsOperator::weights(std::span<const Shape> inputs) const {
  const Index places = positions_.places == 0 ? inputs[0]['L'] : positions_.places;
  return {{"table", {{'C', inputs[0]['C']}, {'L', places}}, Init::normal, positions_.deviation}};
}

// y[N@a C@c L@b] = x[N@a C@c L@b] + w[C@c L@b]; dw is partial over a. A table with more places than x is whole along
// them, since its places are not cut as those of x, and dw is partial over b too.
OperatorLayouts PositionsOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  Layout w = x.onto(weights(std::array{x.shape()})[0].shape);
  if (positions_.places != 0) w = w.with(w.shape().find('L'), {});
  if (request.weights && !(request.weights->sharding() == w.sharding()))
    fail("weights \"{}\" are not cut as the output \"{}\"; leave them out: they follow it", request.weights->print(),
         x.print());
  return {.x = {x}, .y = x, .dx = {x}, .w = {w}, .dw = {w.with_partial(sample_axes(x) & ~w.sharding('L'))}};
}

Shape GatedOperator::output(std::span<const Shape> inputs) const {
  const Index channels = inputs[0]['C'];
  if (channels % 2 != 0) fail("its input has {} channels; a gate and its value are pairs of channels", channels);
  return with_channels(inputs[0], channels / 2);
}

// y[N@a C@c L@b] = f(gates) * values of x[N@a C@c L@b], if each shard of x holds the pairs of y's shard.
OperatorLayouts GatedOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  return by_pieces(basis(request), request.output.shape(), 2, 1);
}

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
  return fmt::format("{} heads {} groups{}{}", attention_.heads, attention_.groups, attention_.causal ? " causal" : "",
                     form_ == Form::continued ? " continued"
                     : whole()                ? " whole"
                                              : "");
}

Shape AttentionOperator::output(std::span<const Shape> inputs) const {
  check_places(inputs[0], kind());
  const HeadGroups all = heads(inputs[0]);
  return with_channels(inputs[0], all.groups * all.in_group * all.dim);
}

std::shared_ptr<const Operator> AttentionOperator::running(Algorithm chosen) const {
  return chosen == Algorithm::whole ? std::make_shared<AttentionOperator>(attention_, Form::whole) : nullptr;
}

// y[N@a C@c L@b] = attention of x[N@a C@c L@b], if each shard of C holds whole groups; else C is whole.
OperatorLayouts AttentionOperator::around_ring(const Layout& x, const Shape& output) const {
  const HeadGroups all = heads(x.shape());
  OperatorLayouts way = by_pieces(x, output, all.step(), all.in_group * all.dim);
  const Layout blocks = way.x[0].onto(with_channels(x.shape(), all.groups * 2 * all.dim));
  way.algorithm = Algorithm::ring;
  way.ring = Ring{blocks, 2 * all.dim, attention_.causal};
  return way;
}

namespace {

/// The elements that a rank sends or receives in all, whichever are more.
double most(const std::vector<PeerTraffic>& peers) {
  Index sent = 0, received = 0;
  for (const PeerTraffic& peer : peers) {
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
  Alternative cost{way.algorithm, flops(std::array{local_shape(way.x[0], rank)}, local_shape(way.y, rank)), 0};
  if (way.ring) cost.flops *= way.ring->work(rank);
  const auto add = [&](const Layout& from, const Layout& to) {
    for (const auto& step : plan_redistribution(from, to)) cost.words += wire_elements(step, rank);
  };
  const double blocks = way.ring ? most(way.ring->traffic(rank, 1)) : 0;
  cost.words += blocks;
  add(request.arriving[0], way.x[0]);
  add(way.y, request.output);
  if (!request.training || !request.needs_dx) return cost;
  add(request.output.dual(), way.y.dual());
  add(way.dx[0], request.arriving[0].dual());
  const double element = static_cast<double>(size_of(request.dtype)), sum = std::max(element, 4.);  // f32 or f64
  if (way.ring) cost.words += blocks + most(way.ring->gradient_traffic(rank, 1)) * sum / element;
  return cost;
}

// Where the output's places are cut, either their axes cut groups instead, after an all-to-all (Jacobs et al.,
// "DeepSpeed Ulysses", 2023), which takes enough groups; or keys and values travel around a ring. Where keys and values
// are kept, each rank has all places of its groups, or of all groups if there are too few. Whole attention needs all
// places of its groups too.
OperatorLayouts AttentionOperator::layouts(const LayoutRequest& request) const {
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
  if (asked == Algorithm::automatic || asked == Algorithm::ring) ways.push_back(around_ring(x, output));
  if (ways.empty())
    fail(
        "algorithm \"{}\" does not fit the input \"{}\": {} of heads cannot be cut over {} in equal parts; take "
        "\"ring\"",
        name(asked), x.print(), counted(all.groups, "group"), x.grid().print(by_groups.sharding('C')));
  std::vector<Alternative> costs;
  for (const auto& way : ways) costs.push_back(cost(way, request));
  const auto best =
      std::min_element(costs.begin(), costs.end(), [](const auto& a, const auto& b) { return a.total() < b.total(); });
  OperatorLayouts chosen = std::move(ways[static_cast<std::size_t>(best - costs.begin())]);
  std::rotate(costs.begin(), best, best + 1);
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

// The log of the sum of exponentials, for each query; or its weights, and in backward the gradients of one sample's.
HeldNumbers AttentionOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  const HeadGroups all = heads(x.shape());
  const Index queries = x.elements(rank) / all.step() * all.in_group;
  if (!whole()) return {.sums = queries};
  const Index weights = queries * x.shape()['L'], samples = x.owned(rank).extent(0);
  return {.elements = weights, .slopes = weights / std::max<Index>(samples, 1)};
}

}  // namespace partita
