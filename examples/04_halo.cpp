// The halo of a window with a stride: which elements each rank needs beyond those that it owns, which ranks own them,
// and how they are exchanged.
//
// $ build/examples/04_halo
// window 5/2 pad 2, x N=1 C=1 H=9 W=6, y N=1 C=1 H=5 W=3, halo H 1+2 W 1+2
// rank 0 computes y [0,3)x[0,2) from x [0,7)x[0,5), and owns [0,5)x[0,3)
//   sends    [0,5)x[2,3) to 1, [4,5)x[0,3) to 2, [4,5)x[2,3) to 3
//   receives [0,5)x[3,5) from 1, [5,7)x[0,3) from 2, [5,7)x[3,5) from 3
// rank 1 computes y [0,3)x[2,3) from x [0,7)x[2,6), and owns [0,5)x[3,6)
//   sends    [0,5)x[3,5) to 0, [4,5)x[3,5) to 2, [4,5)x[3,6) to 3
//   receives [0,5)x[2,3) from 0, [5,7)x[2,3) from 2, [5,7)x[3,6) from 3
// rank 2 computes y [3,5)x[0,2) from x [4,9)x[0,5), and owns [5,9)x[0,3)
//   sends    [5,7)x[0,3) to 0, [5,7)x[2,3) to 1, [5,9)x[2,3) to 3
//   receives [4,5)x[0,3) from 0, [4,5)x[3,5) from 1, [5,9)x[3,5) from 3
// rank 3 computes y [3,5)x[2,3) from x [4,9)x[2,6), and owns [5,9)x[3,6)
//   sends    [5,7)x[3,5) to 0, [5,7)x[3,6) to 1, [5,9)x[3,5) to 2
//   receives [4,5)x[2,3) from 0, [4,5)x[3,6) from 1, [5,9)x[2,3) from 2
// rank 3 owns
//  53 54 55
//  63 64 65
//  73 74 75
//  83 84 85
// and after the exchange has what its outputs read
//  42 43 44 45
//  52 53 54 55
//  62 63 64 65
//  72 73 74 75
//  82 83 84 85
#include <partita/partita.hpp>

using namespace partita;

namespace {

/// The rows and columns of a box with dimensions N C H W.
std::string place(const Box& box) { return fmt::format("[{},{})x[{},{})", box[2].lo, box[2].hi, box[3].lo, box[3].hi); }

/// e.g. "[0,5)x[2,3) to 1, [4,5)x[0,3) to 2"; "nothing" for none.
std::string peers(const std::vector<Transfer>& transfers, const char* word) {
  std::string text;
  for (const auto& [peer, box] : transfers)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", place(box), word, peer);
  return text.empty() ? "nothing" : text;
}

/// The rows of an image with N=1 and C=1.
std::string rows(const Tensor& tensor) {
  std::string text;
  for (Index h = tensor.box()[2].lo; h < tensor.box()[2].hi; ++h) {
    for (Index w = tensor.box()[3].lo; w < tensor.box()[3].hi; ++w)
      text += fmt::format(" {:2}", tensor.at({0, 0, h, w}));
    text += '\n';
  }
  return text;
}

}  // namespace

int main() {
  // y[H@y W@x] = window(x[H@y W@x]) with width 5, stride 2 and padding 2: output o reads the inputs 2o-2 to 2o+2.
  const Grid grid = Grid::parse("y=2 x=2");
  const std::vector<Window> windows(2, Window{.kernel = 5, .stride = 2, .pad_lo = 2, .pad_hi = 2});
  const Shape inputs{{'N', 1}, {'C', 1}, {'H', 9}, {'W', 6}};
  const Shape outputs{{'N', 1}, {'C', 1}, {'H', windows[0].outputs(9)}, {'W', windows[1].outputs(6)}};
  const Layout x = Layout::parse("H@y W@x", inputs, grid), y = x.onto(outputs);
  const Halo halo = halo_of_inputs(x, y, windows);

  fmt::print("window {}, x {}, y {}, halo {}\n", windows[0].print(), inputs.print(), outputs.print(), halo.widths());
  for (int rank = 0; rank < grid.size(); ++rank) {
    const TransferPlan plan = halo.transfer(rank);
    fmt::print("rank {} computes y {} from x {}, and owns {}\n", rank, place(y.owned(rank)), place(halo.needed(rank)),
               place(halo.owned(rank)));
    fmt::print("  sends    {}\n", peers(plan.sends, "to"));
    fmt::print("  receives {}\n", peers(plan.recvs, "from"));
  }

  // Each rank fills its own elements with 10 * row + column, so that received values show where they come from.
  std::vector<std::string> before(4), after(4);
  run_thread_ranks(grid.size(), {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Tensor owned(DType::f64, "NCHW", halo.owned(comm.rank())),
        extended(DType::f64, "NCHW", halo.needed(comm.rank()));
    fill(owned, inputs, [&](Index i) { return static_cast<double>(10 * (i / inputs['W']) + i % inputs['W']); });
    Exchange exchange(halo.transfer(comm.rank()), owned, extended, comm, {});
    before[rank] = rows(owned);  // a program would compute here what needs no halo
    exchange.finish();
    after[rank] = rows(extended);
  });
  fmt::print("rank 3 owns\n{}and after the exchange has what its outputs read\n{}", before[3], after[3]);
}
