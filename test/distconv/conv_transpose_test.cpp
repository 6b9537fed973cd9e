// SpatialConvTranspose on thread ranks against named loops over the whole tensors. All numbers are small integers, so
// that sums in any order are exact.
#include "partita/distconv/conv_transpose.hpp"

#include "src/comm/threads/threads.hpp"
#include "test/distconv/parts.hpp"

namespace partita::test::conv_transpose_test {

namespace {

struct Case {
  const char* grid;
  const char* layout;  ///< of x, and of y but for its channels
  Shape x;             ///< N C H W
  Index filters;       ///< channels of y
  std::vector<Window> windows;
  std::array<Index, 2> output_padding{0, 0};

  /// n inputs make (n-1)*stride + reach outputs without padding, of which padding takes away.
  Shape y() const {
    Shape shape{{'N', x['N']}, {'C', filters}};
    for (std::size_t d = 0; d < 2; ++d) {
      const Window& window = windows[d];
      const char name = d == 0 ? 'H' : 'W';
      shape.push_back(
          {name, (x[name] - 1) * window.stride + window.reach() - window.pad_lo - window.pad_hi + output_padding[d]});
    }
    return shape;
  }
  Shape w() const { return {{'F', x['C']}, {'C', filters}, {'H', windows[0].kernel}, {'W', windows[1].kernel}}; }
  std::string print() const {
    return fmt::format("x {} [{}] on \"{}\", windows {} and {}", x.print(), layout, grid, windows[0].print(),
                       windows[1].print());
  }
};

const Window point{}, three{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, twice{.kernel = 2, .stride = 2},
    wide{.kernel = 5, .stride = 2, .pad_lo = 2, .pad_hi = 1}, holes{.kernel = 1, .stride = 3},
    dilated{.kernel = 3, .stride = 1, .dilation = 2, .pad_lo = 2, .pad_hi = 0};

Shape images(Index n, Index c, Index h, Index w) { return {{'N', n}, {'C', c}, {'H', h}, {'W', w}}; }

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all{
      {"", "", images(2, 2, 3, 5), 3, {three, twice}},
      {"a=1", "H@a", images(1, 1, 1, 1), 1, {point, point}},
      {"a=2", "N@a", images(0, 2, 3, 2), 2, {three, three}},         // no sample
      {"a=2", "N@a", images(1, 2, 3, 2), 2, {three, twice}},         // none on the second rank
      {"a=3", "N@a", images(5, 1, 2, 3), 2, {wide, point}},          //
      {"a=2", "H@a", images(1, 2, 1, 2), 1, {twice, point}},         // a rank without inputs that has outputs
      {"a=4", "H@a", images(2, 1, 3, 2), 2, {twice, three}},         // more ranks than rows
      {"a=3", "H@a", images(1, 3, 7, 2), 2, {wide, twice}, {1, 0}},  // uneven, with an output more
      {"a=2", "W@a", images(1, 1, 2, 5), 1, {point, holes}, {0, 2}},
      {"a=5", "W@a", images(2, 1, 1, 11), 3, {point, dilated}},
      {"a=2 b=3", "H@a W@b", images(2, 2, 5, 7), 3, {wide, three}},
      {"a=3 b=2", "N@b W@a", images(3, 2, 2, 7), 1, {three, wide}, {0, 1}},
      {"a=2 b=2", "H@(b,a)", images(1, 1, 7, 3), 2, {dilated, twice}},
      {"a=2 b=2", "H@b", images(2, 2, 3, 3), 2, {three, three}},  // replicas along a
      {"a=2 b=2 c=2", "N@c H@a W@b", images(3, 2, 5, 3), 2, {wide, wide}},
  };
  return all;
}

/// What the named loops make of the whole: the adjoint of the convolution that takes y to x.
struct Whole {
  explicit Whole(const Case& c) : y(extents_of(c.y())), dx(extents_of(c.x)), dw(extents_of(c.w())) {
    const auto windows = three_windows(c.windows);
    const auto x = array_of("NCHW", c.x, 1), w = array_of("FCHW", c.w(), 2), dy = array_of("NCHW", c.y(), 4);
    naive::conv_backward_data(windows, x, w, y);
    naive::conv_forward(windows, dy, w, dx);
    naive::conv_backward_filter(windows, dy, x, dw);
  }
  naive::Array y, dx, dw;
};

/// One rank's layer and tensors.
struct Part {
  Part(const Case& c, int rank)
      : x_layout(Layout::parse(c.layout, c.x, Grid::parse(c.grid))),
        y_layout(x_layout.onto(c.y())),
        conv(c.windows, halo_of_outputs(y_layout, x_layout, c.windows), halo_of_inputs(y_layout, x_layout, c.windows),
             rank),
        x(part_of("NCHW", c.x, x_layout.owned(rank), 1)),
        w(part_of("FCHW", c.w(), Box(c.w()), 2)),
        dy(part_of("NCHW", c.y(), y_layout.owned(rank), 4)),
        y(dy.like(dy.box())),
        dx(x.like(x.box())),
        dw(w.like(w.box())) {}

  void run(const RankContext& rank, const Tensor& bias) {
    Tensor extended;
    conv.forward(rank, x, w, bias, y, extended);
    auto started = conv.start_backward(rank, dy);
    conv.backward_filter(rank, extended, dy, dw, Write::over);
    conv.backward_filter(rank, extended, dy, dw, Write::add);  // twice the gradient
    conv.backward_data(rank, started, w, dx);
    for (Index i = 0; i < dw.volume(); ++i) dw.set(i, dw.get(i) / 2);
  }

  Layout x_layout, y_layout;
  SpatialConvTranspose conv;
  Tensor x, w, dy, y, dx, dw;
};

}  // namespace

TEST(SpatialConvTranspose, AgreesWithTheWhole) {
  for (const Case& c : all_cases()) {
    const Whole whole(c);
    for (const bool overlap : {true, false})
      run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
        SCOPED_TRACE(c.print());
        const auto backend = make_reference_backend();
        Part part(c, comm.rank());
        part.run({*backend, comm, overlap, {}}, {});
        expect_part(part.y, whole.y, "y");
        expect_part(part.dx, whole.dx, "dx");
        sum_parts(comm, part.dw, is_first(part.y_layout.grid(), comm.rank(), part.y_layout.replicated()));
        expect_part(part.dw, whole.dw, "dw");
      });
  }
}

// The bias is added to every output once, whatever has been added to it.
TEST(SpatialConvTranspose, AddsTheBiasOnce) {
  for (const Case& c : all_cases()) {
    const Shape biases{{'F', c.filters}};
    Whole whole(c);
    naive::for_all(whole.y.extents, [&](const naive::At& at) { whole.y(at) += value(3, at[1]); });
    run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
      SCOPED_TRACE(c.print());
      const auto backend = make_reference_backend();
      Part part(c, comm.rank());
      part.run({*backend, comm, true, {}}, part_of("F", biases, Box(biases), 3));
      expect_part(part.y, whole.y, "y");
    });
  }
}

// <conv'(x, w), dy> = <x, conv(dy, w)> = <w, dw>
TEST(SpatialConvTranspose, GradientsAreAdjoint) {
  for (const Case& c : all_cases())
    run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
      SCOPED_TRACE(c.print());
      const auto backend = make_reference_backend();
      Part part(c, comm.rank());
      part.run({*backend, comm, true, {}}, {});
      const double forward = inner_of(comm, part.y_layout, part.y, part.dy);
      EXPECT_EQ(forward, inner_of(comm, part.x_layout, part.x, part.dx));
      EXPECT_EQ(forward, inner_of(comm, part.y_layout, part.w, part.dw)) << "every rank has a part of dw";
    });
}

}  // namespace partita::test::conv_transpose_test
