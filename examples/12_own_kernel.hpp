#pragma once

// The layer of 12_own_kernel.cpp: functors that run on the CPU and on GPUs.

#include <partita/partita.hpp>

namespace own_kernel {

using namespace partita;

/// to = from where x > 0, else slope[c] * from. This computes y from x, and dx from dy.
template <class T>
struct Scale {
  const T *x, *slope, *from;
  T* to;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const Index i = row * channels + c;
    to[i] = x[i] > T{0} ? from[i] : slope[c] * from[i];
  }
};

/// Adds what one part of the rows contributes to dslope[c] = sum of dy x where x < 0. A sum over all rows in one call
/// would leave a GPU idle; parts that add to one number at the same time would add in another order in each run.
template <class T>
struct SumPart {
  const T *x, *dy;
  double* sums;  // parts x channels
  Index rows, parts, channels;
  PARTITA_HOST_DEVICE void operator()(Index part, Index c) const {
    double sum = 0;
    for (Index row = part; row < rows; row += parts)
      if (const Index i = row * channels + c; x[i] < T{0}) sum += static_cast<double>(x[i] * dy[i]);
    sums[part * channels + c] = sum;
  }
};
template <class T>
struct AddParts {
  const double* sums;
  T* dslope;
  Index parts, channels;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index c) const {
    double sum = 0;
    for (Index part = 0; part < parts; ++part) sum += sums[part * channels + c];
    dslope[c] = static_cast<T>(static_cast<double>(dslope[c]) + sum);
  }
};

template <class T>
T* elements(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data());
}

/// The learned ReLU of 06_own_layer.cpp, in f32 and f64, on any device.
class LearnedRelu final : public CustomLayer {
 public:
  std::string_view kind() const override { return "learned_relu"; }
  bool runs_on_devices() const override { return true; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override {
    return {{.name = "slope", .shape = {{'C', inputs[0]['C']}}, .init = Init::zeros, .decay = false}};
  }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    const Layout slope = x.onto({{'C', x.shape()['C']}});
    if (request.weights && *request.weights != slope) throw Error("the slopes must have the layout of the channels");
    const Layout dslope = slope.with_partial(x.sharding() & ~x.sharding('C'));
    return {.x = {x}, .y = x, .dx = {x}, .w = {slope}, .dw = {dslope}};
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    save(call, {x[0]});
    scale(call, x[0], y);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    dy.dtype() == DType::f64 ? add_to_slope<double>(call, dy) : add_to_slope<float>(call, dy);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    scale(call, dy, dx[0]);
  }

 private:
  static void scale(const KernelCall& call, const Tensor& from, const Tensor& to) {
    to.dtype() == DType::f64 ? scale_as<double>(call, from, to) : scale_as<float>(call, from, to);
  }
  template <class T>
  static void scale_as(const KernelCall& call, const Tensor& from, const Tensor& to) {
    const Tensor &x = saved(call), &slope = call.w[0];
    const Index channels = slope.volume();
    const Scale<T> f{elements<T>(x), elements<T>(slope), elements<T>(from), elements<T>(to), channels};
    for_each("learned_relu", channels == 0 ? 0 : x.volume() / channels, channels, f, {x, slope, from}, {to},
             call.rank.stream);
  }
  template <class T>
  static void add_to_slope(const KernelCall& call, const Tensor& dy) {
    const Tensor &x = saved(call), &dslope = call.dw[0];
    const Index channels = dslope.volume(), rows = channels == 0 ? 0 : x.volume() / channels, parts = 256;
    const Tensor sums = x.beside(DType::f64, "NC", Box(Shape{{'N', parts}, {'C', channels}}), MemoryClass::workspace);
    for_each("sum a part", parts, channels,
             SumPart<T>{elements<T>(x), elements<T>(dy), elements<double>(sums), rows, parts, channels}, {x, dy},
             {sums}, call.rank.stream);
    for_each("add parts", 1, channels, AddParts<T>{elements<double>(sums), elements<T>(dslope), parts, channels},
             {sums}, {dslope}, call.rank.stream);
  }
};

}  // namespace own_kernel
