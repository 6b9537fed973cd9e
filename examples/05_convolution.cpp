// A convolution whose images are sharded over four thread ranks. The halo exchange overlaps with computing. The results
// are compared with those of one rank.
//
// $ build/examples/05_convolution
// x N=2 C=3 H=25 W=19, N C H@y W@x, halo H 1+1 W 1+1
// rank 0 owns y [0,2)x[0,4)x[0,13)x[0,10) and computes [0,2)x[0,4)x[0,12)x[0,9) while halos travel
// largest difference of y 0, of dx 0, of dw 0
#include <partita/partita.hpp>

#include <cmath>

using namespace partita;

namespace {

/// Small integers that depend on the global position: equal under every layout, and exact in sums of any order.
Tensor make(std::string_view names, const Shape& shape, const Box& box, Index seed) {
  const Tensor tensor(DType::f64, names, box);
  fill(tensor, shape, [&](Index i) { return static_cast<double>((i * i + seed) % 17 - 8); });
  return tensor;
}

/// The largest difference over all ranks between a rank's part and the same box of the whole tensor.
/// Collective: every rank of `comm` calls it.
double difference(const Tensor& part, const Tensor& whole, Communicator& comm) {
  const Tensor same = extract(whole, part.box(), MemoryClass::workspace, {});
  double largest = 0;
  for (Index i = 0; i < part.volume(); ++i) largest = std::max(largest, std::abs(part.get(i) - same.get(i)));
  comm.all_reduce(&largest, 1, DType::f64, ReduceOp::max, {}).wait();
  return largest;
}

}  // namespace

int main() {
  const Shape x_shape{{'N', 2}, {'C', 3}, {'H', 25}, {'W', 19}}, w_shape{{'F', 4}, {'C', 3}, {'H', 3}, {'W', 3}};
  const Shape y_shape{{'N', 2}, {'C', 4}, {'H', 25}, {'W', 19}};
  const std::vector<Window> windows(2, Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1});

  // One rank: y = conv(x, w), dx = conv'(dy, w), dw = conv'(x, dy)
  const auto whole = make_reference_backend();
  const Tensor x = make("NCHW", x_shape, Box(x_shape), 1), w = make("FCHW", w_shape, Box(w_shape), 2);
  const Tensor y(DType::f64, "NCHW", Box(y_shape)), dy = make("NCHW", y_shape, Box(y_shape), 3);
  const Tensor dx = x.like(x.box()), dw = w.like(w.box()), no_bias;
  whole->conv_forward(windows, x, w, no_bias, y, {});
  whole->conv_backward_data(windows, dy, w, dx, {});
  whole->conv_backward_filter(windows, x, dy, dw, Write::over, {});

  // Four ranks: y[H@y W@x] = conv(x[H@y W@x] with halo, w), dx[H@y W@x] = conv'(dy[H@y W@x] with halo, w),
  // dw[sum@(y,x)] = conv'(x with halo, dy)
  const Layout x_layout = Layout::parse("H@y W@x", x_shape, Grid::parse("y=2 x=2")), y_layout = x_layout.onto(y_shape);
  const Halo x_halo = halo_of_inputs(x_layout, y_layout, windows),
             dy_halo = halo_of_outputs(x_layout, y_layout, windows);
  fmt::print("x {}, {}, halo {}\n", x_shape.print(), x_layout.print(), x_halo.widths());
  run_thread_ranks(4, {}, [&](Communicator& comm) {
    const auto backend = make_reference_backend();
    const RankContext rank{.backend = *backend, .comm = comm, .overlap = true, .stream = {}};
    const SpatialConv conv(windows, x_halo, dy_halo, comm.rank());
    const Tensor my_x = make("NCHW", x_shape, x_layout.owned(comm.rank()), 1);
    const Tensor my_dy = make("NCHW", y_shape, y_layout.owned(comm.rank()), 3);
    const Tensor my_y = my_dy.like(my_dy.box()), my_dx = my_x.like(my_x.box()), my_dw = w.like(w.box());

    Tensor extended;  // x with its halo; the gradient of the filter reads it again
    conv.forward(rank, my_x, w, no_bias, my_y, extended);
    auto arriving = conv.start_backward(rank, my_dy);
    conv.backward_filter(rank, extended, my_dy, my_dw, Write::over);  // hides the halo of dy
    conv.backward_data(rank, arriving, w, my_dx);
    comm.all_reduce(my_dw.data(), my_dw.volume(), my_dw.dtype(), ReduceOp::sum, {}).wait();

    const double of_y = difference(my_y, y, comm), of_dx = difference(my_dx, dx, comm);
    const double of_dw = difference(my_dw, dw, comm);
    if (comm.rank() != 0) return;
    const Box inside = interior_of(windows, my_x.box(), extended.box(), my_y.box());
    fmt::print("rank 0 owns y {} and computes {} while halos travel\n", my_y.box().print(), inside.print());
    fmt::print("largest difference of y {}, of dx {}, of dw {}\n", of_y, of_dx, of_dw);
  });
}
