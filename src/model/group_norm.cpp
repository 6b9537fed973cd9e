#include "src/model/operators.hpp"
#include "src/model/rules.hpp"

namespace partita {

std::string GroupNormOperator::describe() const {
  return fmt::format("{} groups epsilon {:g}", norm_.groups, norm_.epsilon);
}

Shape GroupNormOperator::output(std::span<const Shape> inputs) const {
  if (!(norm_.epsilon > 0)) fail("epsilon is {}; it must be more than 0", norm_.epsilon);
  if (norm_.groups < 1) fail("groups is {}; it must be 1 or more", norm_.groups);
  if (const Index channels = inputs[0]['C']; channels % norm_.groups != 0)
    fail("{} groups do not divide {} channels", norm_.groups, channels);
  return inputs[0];
}

std::vector<WeightSpec> GroupNormOperator::weights(std::span<const Shape> inputs) const {
  const Shape channels{{'C', inputs[0]['C']}};
  return {{.name = "scale", .shape = channels, .init = Init::ones, .decay = false},
          {.name = "shift", .shape = channels, .init = Init::zeros, .decay = false}};
}

bool GroupNormOperator::keeps_groups(const Layout& x) const {
  const Index channels = x.shape()['C'] / norm_.groups;
  const int c = x.shape().find('C');
  for (int rank = 0; rank < x.grid().size(); ++rank)
    if (const Interval mine = x.owned(rank)[c]; mine.lo % channels != 0 || mine.hi % channels != 0) return false;
  return true;
}

// Three statistics and four moments for each sample and group; two sums for each sample and channel, and for each
// group, in forward only if that has several channels. Where a channel is a group and no rank adds to it, a kernel does
// all.
HeldNumbers GroupNormOperator::numbers(const Layout& x, int rank, bool /*training*/) const {
  const Box mine = x.owned(rank);
  const Index samples = mine.extent(0), channels = mine.extent(1);
  const Index groups = channels / (x.shape()['C'] / norm_.groups);
  const Index sums = 2 * samples * channels, of_groups = 2 * samples * groups;
  const bool at_once = groups == channels && (sample_axes(x) & ~x.sharding('N')) == 0;
  return {.forward = 3 * samples * groups,
          .backward = sums + of_groups,
          .work = at_once ? 0 : 4 * samples * groups + sums + (groups == channels ? 0 : of_groups)};
}

// mean[N@a G@b] = sum over c of x[N@a C@b H@c] / count, if each shard of C holds whole groups; otherwise C is whole on
// every rank. A shard of C that holds whole groups holds exactly those of the shard of G over the same axes.
OperatorLayouts GroupNormOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  need_whole_weights(request);
  Layout x = basis(request);
  if (!keeps_groups(x)) x = x.with(x.shape().find('C'), {});
  const Layout channels = x.onto(Shape{{'C', x.shape()['C']}}), gradient = channels.with_partial(sample_axes(x));
  OperatorLayouts layouts{.x = {x}, .y = x, .dx = {x}, .w = {channels, channels}, .dw = {gradient, gradient}};
  const AxisSet space = sample_axes(x) & ~x.sharding('N');
  if (space == 0) return layouts;
  const Layout groups = x.onto(Shape{{'N', x.shape()['N']}, {'C', norm_.groups}});
  layouts.collectives.push_back({Collective::When::forward, "statistics forward", space, groups, 4});
  if (request.training)
    layouts.collectives.push_back({Collective::When::backward, "statistics backward", space, groups, 2});
  return layouts;
}

}  // namespace partita
