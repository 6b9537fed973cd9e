#include "src/model/operators.hpp"
#include "src/model/rules.hpp"
#include "src/model/sliding.hpp"

namespace partita {

Shape ResampleOperator::output(std::span<const Shape> inputs) const {
  const Shape& x = inputs[0];
  static_cast<void>(resamplings(x));  // checks the parameters
  Shape y{{'N', x['N']}, {'C', x['C']}};
  for (int d = first_spatial; d < x.dims(); ++d)
    y.push_back({x.name(d), outputs(static_cast<std::size_t>(d - first_spatial), x.extent(d), x.name(d))});
  return y;
}

// y[N@a C@b H@c] = resample(x[N@a C@b H@c] with halo); the gradient of the halo is sent back to its owner and summed.
OperatorLayouts ResampleOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout x = basis(request);
  const Layout y = x.onto(request.output.shape());
  const auto dims = resamplings(x.shape());
  const auto reads = [dims](const Box& out, const Box& within) {  // no input between two that are read is skipped
    Box in = within;
    in[0] = intersect(in[0], out[0]);
    for (int d = first_spatial; d < in.dims(); ++d)
      in[d] = out.empty() ? Interval{} : intersect(in[d], dims[d - first_spatial].inputs_of(out[d]));
    return in;
  };
  return {.x = {x}, .y = y, .dx = {x}, .x_halo = Halo(x, y, reads)};
}

std::string UpsampleOperator::describe() const {
  std::string text = "x";
  for (std::size_t i = 0; i < upsample_.scale.values(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ",", upsample_.scale[i]);
  return text + (upsample_.interpolation == Interpolation::linear ? " linear" : " nearest");
}

std::vector<Resampling> UpsampleOperator::resamplings(const Shape& x) const {
  const std::size_t dims = spatial_dims(x);
  upsample_.scale.check(dims, "scale", 1);
  const auto kind =
      upsample_.interpolation == Interpolation::linear ? Resampling::Kind::linear : Resampling::Kind::nearest;
  std::vector<Resampling> all;
  for (std::size_t i = 0; i < dims; ++i)
    all.push_back(
        {.kind = kind, .inputs = x.extent(first_spatial + static_cast<int>(i)), .factor = upsample_.scale[i]});
  return all;
}

Index UpsampleOperator::outputs(std::size_t i, Index n, char name) const { return scaled(n, upsample_.scale[i], name); }

std::string CropOperator::describe() const {
  std::string text = "by";
  for (std::size_t i = 0; i < margins_.values(); ++i)
    text += fmt::format("{}{}+{}", i == 0 ? " " : " x ", margins_[i].lo, margins_[i].hi);
  return text;
}

std::vector<Resampling> CropOperator::resamplings(const Shape& x) const {
  const std::size_t dims = spatial_dims(x);
  margins_.check(dims, "margin");
  std::vector<Resampling> all;
  for (std::size_t i = 0; i < dims; ++i)
    all.push_back({.kind = Resampling::Kind::crop,
                   .inputs = x.extent(first_spatial + static_cast<int>(i)),
                   .first = margins_[i].lo});
  return all;
}

Index CropOperator::outputs(std::size_t i, Index n, char name) const {
  const Index left = n - margins_[i].lo - margins_[i].hi;
  if (left < 1)
    fail("margins {} and {} leave nothing of dimension {} with extent {}", margins_[i].lo, margins_[i].hi, name, n);
  return left;
}

std::string SpaceToDepthOperator::describe() const {
  std::string text = "blocks of ";
  for (std::size_t i = 0; i < block_.values(); ++i) text += fmt::format("{}{}", i == 0 ? "" : "x", block_[i]);
  return text;
}

std::vector<Window> SpaceToDepthOperator::windows(const Shape& x) const {
  const std::size_t dims = spatial_dims(x);
  block_.check(dims, "block", 1);
  std::vector<Window> windows;
  for (std::size_t i = 0; i < dims; ++i) windows.push_back({.kernel = block_[i], .stride = block_[i]});
  return windows;
}

Shape SpaceToDepthOperator::output(std::span<const Shape> inputs) const {
  const Shape& x = inputs[0];
  const auto blocks = windows(x);
  Index channels = x['C'];
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const int d = first_spatial + static_cast<int>(i);
    if (x.extent(d) % blocks[i].kernel != 0)
      fail("blocks of {} do not divide dimension {} with extent {}", blocks[i].kernel, x.name(d), x.extent(d));
    channels *= blocks[i].kernel;
  }
  return slide(x, channels, blocks);
}

// y[N@a C H@b] = blocks(x[N@a C H@b] with halo); the shards of y split no block
OperatorLayouts SpaceToDepthOperator::layouts(const LayoutRequest& request) const {
  refuse_partial(request.output);
  const Layout at = basis(request), x = at.with(at.shape().find('C'), {});
  const Layout y = x.onto(request.output.shape());
  return {.x = {x}, .y = y, .dx = {x}, .x_halo = halo_of_inputs(x, y, windows(x.shape()))};
}

Layout SpaceToDepthOperator::follow(const Layout& x, const Shape& output) const {
  return Operator::follow(x, output).with(output.find('C'), {});
}

}  // namespace partita
