// Your own kind of layer with weights: its layout rule, and the computation on one rank. The plan adds the
// communication.
//
// $ build/examples/06_own_layer explain --strategy examples/strategies/first.toml --batch 60
// ...
// learned = learned_relu(conv)
//     x        N@data C H@y W               N=60 C=8 H=14 W=14
//     w        C                            slope C=8
//     y        N@data C H@y W               N=60 C=8 H=14 W=14
//     dx       N@data C H@y W
//     dw       C sum@(data,y)               slope
// ...
// $ build/mpiexec -n 4 build/examples/06_own_layer train --strategy examples/strategies/first.toml --data synthetic --dtype f64 --batch 60 --epochs 2 --rate 0.001
// model      own-layer-net (15906 weights)
// strategy   examples/strategies/first.toml, grid "data=2 y=2"
// workload   batch 60, f64, sgd rate 0.001 momentum 0.9
// ranks      4 (rank:pid 0:13137 1:13138 2:13139 3:13140)
// epoch 1    loss 1.5392  accuracy 53.22%  0.2 s  6474 images/s
// epoch 2    loss 0.0671  accuracy 99.90%  0.2 s  6792 images/s
// test  2    loss 0.0214  accuracy 100.00%  top-5 100.00%  0.1 s  9064 images/s
// moved      1080 messages, 11959680 bytes by all ranks (predicted 1080, 11959680)
// memory     11.6 MiB at most on a rank (predicted 11.6 MiB)
#include <partita/partita.hpp>

using namespace partita;

namespace {

/// y = x where x > 0, else slope[C] * x (He et al. 2015). The slopes begin at 0, so that it begins as ReLU.
class LearnedRelu final : public CustomLayer {
 public:
  std::string_view kind() const override { return "learned_relu"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<WeightSpec> weights(std::span<const Shape> inputs) const override {
    return {{.name = "slope", .shape = {{'C', inputs[0]['C']}}, .init = Init::zeros, .decay = false}};
  }

  // y[N@a C@b H@c] = f(x[N@a C@b H@c], slope[C@b])
  // dx[N@a C@b H@c] = f'(dy[N@a C@b H@c], slope[C@b])
  // dslope[C@b sum@(a,c)] = sum of dy x where x < 0
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    const Layout slope = x.onto({{'C', x.shape()['C']}});
    if (request.weights && *request.weights != slope)
      fail("the slopes must have the layout of the channels: \"{}\"", slope.print());
    // Ranks with other samples or pixels of the same channels compute other parts of the slopes' gradient.
    const Layout dslope = slope.with_partial(x.sharding() & ~x.sharding('C'));
    return {.x = {x}, .y = x, .dx = {x}, .w = {slope}, .dw = {dslope}};
  }

  // The rest computes the part of one rank, without communication. C varies fastest in memory.
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    save(call, {x[0]});
    scale(x[0], call.w[0], x[0], y);
  }
  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    const Tensor &x = saved(call), &dslope = call.dw[0];
    std::vector<double> sums(static_cast<std::size_t>(dslope.volume()));
    dispatch_float(x.dtype(), [&]<class T>(T) {
      for (Index i = 0; i < x.volume(); ++i)
        if (x.as<T>()[i] < T{0})
          sums[static_cast<std::size_t>(i) % sums.size()] += static_cast<double>(x.as<T>()[i] * dy.as<T>()[i]);
    });
    for (Index c = 0; c < dslope.volume(); ++c) dslope.set(c, dslope.get(c) + sums[c]);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    scale(saved(call), call.w[0], dy, dx[0]);
  }

 private:
  /// to = from where x > 0, else slope * from. This computes y from x, and dx from dy.
  static void scale(const Tensor& x, const Tensor& slope, const Tensor& from, const Tensor& to) {
    dispatch_float(x.dtype(), [&]<class T>(T) {
      for (Index i = 0; i < x.volume(); ++i)
        to.as<T>()[i] = x.as<T>()[i] > T{0} ? from.as<T>()[i] : slope.as<T>()[i % slope.volume()] * from.as<T>()[i];
    });
  }
};

Model own_layer_net() {
  Model m("own-layer-net");
  auto t = m.input("image", {.channels = 1, .spatial = {28, 28}});
  t = m.conv("conv", t, {.filters = 8, .kernel = 5, .stride = 2, .padding = 2});
  t = m.layer("learned", std::make_shared<LearnedRelu>(), {t});
  t = m.linear("fc", t, {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

}  // namespace

int main(int argc, char** argv) { return partita::main(argc, argv, own_layer_net); }
