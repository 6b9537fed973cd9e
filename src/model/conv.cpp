#include "partita/layouts/interior.hpp"
#include "src/model/contraction.hpp"
#include "src/model/operators.hpp"
#include "src/model/rules.hpp"
#include "src/model/sliding.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

/// The windows of either kind of convolution; checks their parameters.
template <class Parameters>
std::vector<Window> windows_of(const Parameters& p, std::size_t dims) {
  p.kernel.check(dims, "kernel", 1);
  p.stride.check(dims, "stride", 1);
  p.dilation.check(dims, "dilation", 1);
  p.padding.check(dims);
  std::vector<Window> windows;
  windows.reserve(dims);
  for (std::size_t i = 0; i < dims; ++i)
    windows.push_back({p.kernel[i], p.stride[i], p.dilation[i], p.padding[i].lo, p.padding[i].hi});
  return windows;
}

template <class Parameters>
std::string describe(const Parameters& p) {
  std::string text = fmt::format("{} filters", p.filters);
  const std::size_t values = std::max({p.kernel.values(), p.stride.values(), p.padding.values(), p.dilation.values()});
  const auto windows = windows_of(p, values);
  for (std::size_t i = 0; i < values; ++i) text += fmt::format("{}{}", i == 0 ? " " : " x ", windows[i].print());
  if (p.groups != 1) text += fmt::format(" {} groups", p.groups);
  return text + (p.bias ? "" : " no bias");
}

template <class Parameters>
void check_channels(const Parameters& p, Index channels) {
  if (p.filters < 1) fail("filters is {}; it must be 1 or more", p.filters);
  if (p.groups < 1) fail("groups is {}; it must be 1 or more", p.groups);
  if (channels % p.groups != 0 || p.filters % p.groups != 0)
    fail("{} groups do not divide {} channels and {} filters", p.groups, channels, p.filters);
}

/// Number of kernel positions for an input x. A double, since the product of three extents may not fit an Index.
double places(const PerDim& kernel, const Shape& x) {
  double all = 1;
  for (std::size_t i = 0; i < spatial_dims(x); ++i) all *= static_cast<double>(kernel[i]);
  return all;
}

/// Specifications of the weights F C D H W, and of a bias with `bias` values if given. The fan-in is the forward
/// pass's.
std::vector<WeightSpec> specs(const Shape& x, const PerDim& kernel, Index f, Index c, Index fan_in_channels,
                              std::optional<Index> bias) {
  Shape w{{'F', f}, {'C', c}};
  for (std::size_t i = 0; i < spatial_dims(x); ++i)
    w.push_back({x.name(first_spatial + static_cast<int>(i)), kernel[i]});
  const double fan_in = static_cast<double>(fan_in_channels) * places(kernel, x);
  std::vector<WeightSpec> specs{{"weight", w, Init::normal, std::sqrt(2 / fan_in)}};
  if (bias) specs.push_back({.name = "bias", .shape = {{'F', *bias}}, .init = Init::zeros, .decay = false});
  return specs;
}

Layout whole_channels(const Layout& x) { return x.with(x.shape().find('C'), {}); }

/// Returns the part of the Contraction that both kinds of convolution share.
Contraction contraction(const Operator& op, const LayoutRequest& request, Index groups) {
  const Layout x = whole_channels(basis(request));
  const std::array shapes{x.shape()};
  Contraction product;
  product.op = &op;
  product.x = x;
  product.y = request.output.shape();
  product.weights = op.weights(shapes);
  product.groups = groups;
  return product;
}

}  // namespace

std::vector<Window> ConvOperator::windows(const Shape& x) const { return windows_of(conv_, spatial_dims(x)); }

std::string ConvOperator::describe() const { return partita::describe(conv_); }

Shape ConvOperator::output(std::span<const Shape> inputs) const {
  const auto slides = windows(inputs[0]);
  check_channels(conv_, inputs[0]['C']);
  return slide(inputs[0], conv_.filters, slides);
}

std::vector<WeightSpec> ConvOperator::weights(std::span<const Shape> inputs) const {
  const Index channels = inputs[0]['C'] / conv_.groups;
  return specs(inputs[0], conv_.kernel, conv_.filters, channels, channels,
               conv_.bias ? std::optional(conv_.filters) : std::nullopt);
}

std::vector<Algorithm> ConvOperator::algorithms() const { return contraction_algorithms(conv_.groups); }

// y[N@a C@o H@b sum@i] = conv(x[N@a C@i H@b] with halo, w[F@o C@i H W]); dw is partial over a and b.
OperatorLayouts ConvOperator::layouts(const LayoutRequest& request) const {
  const auto slides = windows(request.arriving[0].shape());
  Contraction product = contraction(*this, request, conv_.groups);
  product.w_outputs = 0;
  product.w_inputs = 1;
  product.x_halo = [&](const Layout& x, const Layout& y) { return halo_of_inputs(x, y, slides); };
  product.dy_halo = [&](const Layout& x, const Layout& y) { return halo_of_outputs(x, y, slides); };
  return contract(product, request);
}

Layout ConvOperator::follow(const Layout& x, const Shape& output) const {
  return whole_channels(Operator::follow(x, output));
}

double ConvOperator::flops(std::span<const Shape> inputs, const Shape& output) const {
  const Shape& x = inputs[0];
  return 2.0 * static_cast<double>(output.volume()) * static_cast<double>(x['C'] / conv_.groups) *
         places(conv_.kernel, x);
}

Index ConvOperator::held_ahead(const OperatorLayouts& at, int rank) const {
  Index most = 0;
  for (const auto& [outputs, inputs] :
       recomputed_borders(windows(at.x[0].shape()), at.x[0].owned(rank), at.x_halo->needed(rank), at.y.owned(rank)))
    most = std::max(most, outputs.volume() + inputs.volume());
  return most;
}

std::vector<Window> ConvTransposeOperator::windows(const Shape& x) const { return windows_of(conv_, spatial_dims(x)); }

std::string ConvTransposeOperator::describe() const {
  std::string text = partita::describe(conv_);
  for (std::size_t i = 0; i < conv_.output_padding.values(); ++i)
    if (conv_.output_padding.values() > 1 || conv_.output_padding[0] != 0)
      text += fmt::format("{}{}", i == 0 ? " output padding " : ",", conv_.output_padding[i]);
  return text;
}

Shape ConvTransposeOperator::output(std::span<const Shape> inputs) const {
  const Shape& x = inputs[0];
  const auto slides = windows(x);
  check_channels(conv_, x['C']);
  conv_.output_padding.check(slides.size(), "output_padding", 0);
  Shape y{{'N', x['N']}, {'C', conv_.filters}};
  for (std::size_t i = 0; i < slides.size(); ++i) {
    const Window& window = slides[i];
    const int d = first_spatial + static_cast<int>(i);
    if (conv_.output_padding[i] >= std::max(window.stride, window.dilation))
      fail("output_padding is {} in dimension {}; it must be less than the stride {} or the dilation {}",
           conv_.output_padding[i], x.name(d), window.stride, window.dilation);
    const Index extent = scaled(x.extent(d) - 1, window.stride, x.name(d)) - window.pad_lo - window.pad_hi +
                         window.reach() + conv_.output_padding[i];
    if (extent < 1)
      fail("padding {} and {} leave nothing of dimension {}: {} inputs give {} outputs", window.pad_lo, window.pad_hi,
           x.name(d), x.extent(d), extent);
    y.push_back({x.name(d), extent});
  }
  return y;
}

std::vector<WeightSpec> ConvTransposeOperator::weights(std::span<const Shape> inputs) const {
  const Index channels = inputs[0]['C'];
  return specs(inputs[0], conv_.kernel, channels, conv_.filters / conv_.groups, channels / conv_.groups,
               conv_.bias ? std::optional(conv_.filters) : std::nullopt);
}

std::vector<Algorithm> ConvTransposeOperator::algorithms() const { return contraction_algorithms(conv_.groups); }

// y[N@a C@o H@b sum@i] = conv'(x[N@a C@i H@b] with halo, w[F@i C@o H W]): x here plays the role of a convolution's dy.
OperatorLayouts ConvTransposeOperator::layouts(const LayoutRequest& request) const {
  const auto slides = windows(request.arriving[0].shape());
  Contraction product = contraction(*this, request, conv_.groups);
  product.w_outputs = 1;
  product.w_inputs = 0;
  product.x_halo = [&](const Layout& x, const Layout& y) { return halo_of_outputs(y, x, slides); };
  product.dy_halo = [&](const Layout& x, const Layout& y) { return halo_of_inputs(y, x, slides); };
  return contract(product, request);
}

Layout ConvTransposeOperator::follow(const Layout& x, const Shape& output) const {
  return whole_channels(Operator::follow(x, output));
}

double ConvTransposeOperator::flops(std::span<const Shape> inputs, const Shape& /*output*/) const {
  const Shape& x = inputs[0];
  return 2.0 * static_cast<double>(x.volume()) * static_cast<double>(conv_.filters / conv_.groups) *
         places(conv_.kernel, x);
}

}  // namespace partita
