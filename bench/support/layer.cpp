#include "bench/support/layer.hpp"

#include "partita/base/philox.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/tensor/redistribute.hpp"

namespace partita::bench {

namespace {

Plan plan_of(const ConvShape& s, Index batch, const std::string& grid, const std::string& layout) {
  Model m("layer");
  Value t = m.input("image", {.channels = s.channels, .spatial = {s.size, s.size}});
  t = m.batch_norm("before", t);
  t = m.conv("conv", t,
             {.filters = s.filters, .kernel = s.kernel, .stride = s.stride, .padding = s.pad(), .bias = false});
  m.mean_squared_error("loss", t);
  Strategy strategy(grid);
  strategy.layer("*", {.output = layout});
  return bind(m, strategy, {.batch = batch, .optimizer = {}});
}

}  // namespace

Layer::Layer(const ConvShape& shape, Index batch, const std::string& grid, const std::string& layout,
             const std::shared_ptr<Communicator>& comm)
    : plan_(plan_of(shape, batch, grid, layout)),
      grid_(std::make_unique<ProcessGrid>(plan_.grid(), counting(comm, counter_), plan_.axis_sets())),
      backend_(make_onednn_backend(1)),
      rank_{*backend_, grid_->world(), true, {}},
      kernel_(make_kernel(layer(), grid_->rank())),
      x_(random(plan_.layers[position - 1]->y, 1)),
      dy_(random(layer()->y, 2)) {
  w_.push_back(random(layer()->at.w[0], 3));
  dw_.push_back(random(layer()->at.w[0], 4));
  for (const auto& problem : kernel_->problems(true, rank_.ahead(), false))
    measure_fastest(*backend_, rank_.stream, problem);
}

Tensor Layer::random(const Layout& layout, std::uint32_t stream) const {
  const Tensor tensor(DType::f32, layout.shape().names(), layout.owned(grid_->rank()), allocator_,
                      MemoryClass::activations, Fill::none);
  fill(tensor, layout.shape(), [&](Index i) { return Random(1, stream).normal(i); });
  return tensor;
}

KernelCall Layer::call() {
  return {.rank = rank_,
          .grid = *grid_,
          .counter = *counter_,
          .layer = layer(),
          .w = w_,
          .dw = dw_,
          .saved = saved_,
          .target = target_,
          .step = step_,
          .write = Write::over,
          .result = result_};
}

void Layer::forward() {
  saved_.reset();
  const KernelCall now = call();
  DistTensor x, y;
  x.layout = plan_.layers[position - 1]->y;
  x.local = x_;
  x = redistribute(x, layer()->redistribute_input[0], *grid_, {});
  y.layout = layer()->at.y;
  y.local = x_.like(y.layout.owned(grid_->rank()), Fill::none);
  kernel_->forward(now, std::span(&x.local, 1), y.local);
  static_cast<void>(redistribute(y, layer()->redistribute_output, *grid_, {}));
}

void Layer::backward() {
  const KernelCall now = call();
  DistTensor dy, dx;
  dy.layout = layer()->y.dual();
  dy.local = dy_;
  dy = redistribute(dy, layer()->redistribute_dy, *grid_, {});
  dx.layout = layer()->at.dx[0];
  dx.local = x_.like(dx.layout.owned(grid_->rank()), Fill::none);
  kernel_->start_backward(now, dy.local);
  kernel_->backward_filter(now, dy.local);
  kernel_->backward_data(now, dy.local, std::span(&dx.local, 1));
  static_cast<void>(redistribute(dx, layer()->redistribute_dx[0], *grid_, {}));
}

Index Layer::summed_bytes() const {
  return layer()->at.dw[0].partial() == 0 ? 0 : dw_[0].volume() * size_of(dw_[0].dtype());
}

void Layer::sum_dw() {
  auto& comm = grid_->along(layer()->at.dw[0].partial());
  comm.all_reduce(dw_[0].data(), dw_[0].volume(), dw_[0].dtype(), ReduceOp::sum, {}).wait();
}

}  // namespace partita::bench
