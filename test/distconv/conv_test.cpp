// Compares SpatialConv and SpatialPool on thread ranks with the reference backend on one rank. Convolutions must agree
// bit for bit, since all numbers are small integers. Windows, extents and layouts are random.
#include "partita/distconv/conv.hpp"
#include "partita/distconv/pool.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/adjoint.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

namespace partita::test::conv_test {

namespace {

/// Counts the calls of conv_forward. More than one call means that the border was recomputed.
class CountingBackend final : public ReferenceBackend {
 public:
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    ++forwards;
    ReferenceBackend::conv_forward(windows, x, w, bias, y, stream);
  }
  int forwards = 0;
};

/// A random window operator: its windows, shapes and layouts.
struct Case {
  Case(const char* grid, const char* layout, const Shape& inputs, Index filters, std::vector<Window> slides)
      : windows(std::move(slides)) {
    Shape outputs{{'N', inputs['N']}, {'C', filters}};
    for (const char dim : {'H', 'W'}) outputs.push_back({dim, windows[dim == 'H' ? 0 : 1].outputs(inputs[dim])});
    x = Layout::parse(layout, inputs, Grid::parse(grid));
    y = x.onto(outputs);
  }
  explicit Case(std::uint64_t seed, bool pooling) : random(seed) {
    const std::vector<std::string> grids{"",        "a=1",     "a=2", "a=3",     "a=4",     "a=2 b=2",    "a=6",
                                         "a=3 b=2", "a=2 b=3", "a=8", "a=4 b=2", "a=2 b=4", "a=2 b=2 c=2"};
    const Grid grid = Grid::parse(pick(grids));
    Shape inputs{{'N', pick<Index>({0, 1, 1, 2, 3, 5})}, {'C', between(1, 3)}};
    Shape outputs{inputs};
    if (!pooling) outputs = {{'N', inputs['N']}, {'C', between(1, 3)}};
    for (const char dim : {'H', 'W'}) {
      windows.push_back(pooling ? pool_window() : conv_window());
      inputs.push_back({dim, pick<Index>({1, 2, 3, 5, 7, 11, 13, 23})});
      outputs.push_back({dim, windows.back().outputs(inputs[dim])});
    }
    x = Layout(inputs, grid);
    for (int axis = 0; axis < grid.axes(); ++axis) place(axis, pooling);
    y = x.onto(outputs);
    if (!pooling) y = y.with(1, {});
  }

  /// False if a window covers only padding: maximum pooling then has no value.
  bool pools() const {
    for (int d = 2; d < y.shape().dims(); ++d)
      for (Index o = 0; o < y.shape().extent(d); ++o)
        if (!windows[d - 2].reads(o, x.shape().extent(d))) return false;
    return true;
  }

  std::string print() const {
    return fmt::format("x {} [{}] on \"{}\", y {}, windows {} and {}", x.shape().print(), x.print(), x.grid().print(),
                       y.shape().print(), windows[0].print(), windows[1].print());
  }

  Layout x, y;
  std::vector<Window> windows;

 private:
  Index between(Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[between(0, static_cast<Index>(from.size()) - 1)];
  }

  /// Padding may exceed the window's reach, so that some outputs read only zeros; in every fourth case many do.
  Window conv_window() {
    if (between(0, 3) == 0) return {between(2, 3), 1, 1, between(0, 8), between(0, 8)};
    Window window{between(1, between(0, 1) == 0 ? 3 : 7), between(1, 3), between(1, 3)};
    window.pad_lo = between(0, 1) * between(0, window.reach() + 2);
    window.pad_hi = between(0, 1) * between(0, window.reach() + 2);
    return window;
  }
  Window pool_window() {
    Window window{between(1, 4), between(1, 3), between(1, 2)};
    window.pad_lo = between(0, window.reach() - 1);
    window.pad_hi = between(0, window.reach() - 1);
    return window;
  }

  /// Places the axis on N, H or W (or C, for pooling), before or after the axes that are already there, or nowhere.
  void place(int axis, bool pooling) {
    const int d = static_cast<int>(between(0, 4));
    if (d == 4 || (d == 1 && !pooling)) return;
    auto axes = x.axes(d);
    axes.insert(between(0, 1) == 0 ? 0 : axes.size(), axis);
    x = x.with(d, axes);
  }

  std::mt19937_64 random;
};

Tensor filled(std::string_view names, const Shape& shape, const Box& box, std::uint64_t seed) {
  const Tensor tensor(DType::f64, names, box);
  fill(tensor, shape, [&](Index i) { return value(seed, i); });
  return tensor;
}

Tensor filled(std::string_view names, const Shape& shape, std::uint64_t seed) {
  return filled(names, shape, Box(shape), seed);
}

void expect_part(const Tensor& part, const Tensor& whole, std::string_view what) {
  const Tensor same = extract(whole, part.box(), MemoryClass::workspace, {});
  for (Index i = 0; i < part.volume(); ++i)
    ASSERT_EQ(part.get(i), same.get(i)) << what << " in " << part.box().print() << ", element " << i;
}

/// Sums a local tensor over the ranks for which `counts` is true.
void sum_parts(Communicator& comm, const Tensor& part, bool counts) {
  if (!counts) part.zero({});
  comm.all_reduce(part.data(), part.volume(), part.dtype(), ReduceOp::sum, {}).wait();
}

/// The same convolution computed on one rank.
struct WholeConv {
  explicit WholeConv(const Case& c) {
    Shape weights{{'F', c.y.shape()['C']}, {'C', c.x.shape()['C']}, {'H', c.windows[0].kernel}};
    weights.push_back({'W', c.windows[1].kernel});
    x = filled("NCHW", c.x.shape(), 1);
    w = filled("FCHW", weights, 2);
    bias = filled("F", {{'F', weights['F']}}, 3);
    dy = filled("NCHW", c.y.shape(), 4);
    y = dy.like(dy.box());
    dx = x.like(x.box());
    dw = w.like(w.box());
    const auto backend = make_reference_backend();
    backend->conv_forward(c.windows, x, w, bias, y, {});
    backend->conv_backward_data(c.windows, dy, w, dx, {});
    backend->conv_backward_filter(c.windows, x, dy, dw, Write::over, {});
  }
  Tensor x, w, bias, y, dy, dx, dw;
};

/// Checks one rank of a partitioned convolution. Returns true if the rank recomputed its border.
bool check_conv(const Case& c, const WholeConv& whole, Communicator& comm, bool overlap) {
  const int me = comm.rank();
  const SpatialConv conv(c.windows, halo_of_inputs(c.x, c.y, c.windows), halo_of_outputs(c.x, c.y, c.windows), me);
  CountingBackend backend;
  const RankContext rank{backend, comm, overlap, {}};
  const Tensor x = filled("NCHW", c.x.shape(), c.x.owned(me), 1), dy = filled("NCHW", c.y.shape(), c.y.owned(me), 4);
  const Tensor y = dy.like(dy.box()), dx = x.like(x.box()), dw = whole.dw.like(whole.dw.box());
  Tensor extended;
  conv.forward(rank, x, whole.w, whole.bias, y, extended);
  expect_part(y, whole.y, "y");
  auto started = conv.start_backward(rank, dy);
  conv.backward_filter(rank, extended, dy, dw, Write::over);
  conv.backward_data(rank, started, whole.w, dx);
  expect_part(dx, whole.dx, "dx");
  sum_parts(comm, dw, is_first(c.x.grid(), me, c.x.replicated()));
  expect_part(dw, whole.dw, "dw");
  return backend.forwards > 1;
}

/// <conv(x), dy> = <x, conv'(dy)> = <w, conv'(x, dy)>, each summed over the parts of all ranks.
void check_conv_adjoint(const Case& c, const WholeConv& whole, Communicator& comm) {
  const int me = comm.rank();
  const SpatialConv conv(c.windows, halo_of_inputs(c.x, c.y, c.windows), halo_of_outputs(c.x, c.y, c.windows), me);
  const auto backend = make_reference_backend();
  const RankContext rank{*backend, comm, true, {}};
  const Tensor x = filled("NCHW", c.x.shape(), c.x.owned(me), 11), dy = filled("NCHW", c.y.shape(), c.y.owned(me), 12);
  const Tensor y = dy.like(dy.box()), dx = x.like(x.box()), dw = whole.w.like(whole.w.box());
  Tensor extended;
  conv.forward(rank, x, whole.w, {}, y, extended);
  auto started = conv.start_backward(rank, dy);
  conv.backward_filter(rank, extended, dy, dw, Write::over);
  conv.backward_data(rank, started, whole.w, dx);
  const bool counts = is_first(c.x.grid(), me, c.x.replicated());
  const double forward = sum_over(comm, counts ? inner_local(y, dy) : 0);
  EXPECT_EQ(forward, sum_over(comm, counts ? inner_local(x, dx) : 0));
  EXPECT_EQ(forward, sum_over(comm, counts ? inner_local(whole.w, dw) : 0));
}

/// The same pooling computed on one rank.
struct WholePool {
  WholePool(const Case& c, const Pooling& pooling) {
    x = filled("NCHW", c.x.shape(), 1);
    dy = filled("NCHW", c.y.shape(), 4);
    y = dy.like(dy.box());
    dx = x.like(x.box());
    const Tensor picked = y.like(DType::i32);
    const auto backend = make_reference_backend();
    backend->pool_forward(pooling, x, y, picked, y.box(), {});
    backend->pool_backward(pooling, dy, picked, dx, dy.box(), {});
  }
  Tensor x, y, dy, dx;
};

/// Compares with a tolerance: averages round when they divide, and a sum of rounded numbers depends on its order.
void expect_near(const Tensor& part, const Tensor& whole, std::string_view what) {
  const Tensor same = extract(whole, part.box(), MemoryClass::workspace, {});
  for (Index i = 0; i < part.volume(); ++i)
    ASSERT_NEAR(part.get(i), same.get(i), 1e-12) << what << " in " << part.box().print() << ", element " << i;
}

void check_pool(const Case& c, const Pooling& pooling, const WholePool& whole, Communicator& comm, bool overlap) {
  const int me = comm.rank();
  const SpatialPool pool(pooling.kind, c.windows, pooling.count_padding, halo_of_inputs(c.x, c.y, c.windows), me);
  const auto backend = make_reference_backend();
  const RankContext rank{*backend, comm, overlap, {}};
  const Tensor x = filled("NCHW", c.x.shape(), c.x.owned(me), 1), dy = filled("NCHW", c.y.shape(), c.y.owned(me), 4);
  const Tensor y = dy.like(dy.box()), dx = x.like(x.box()), picked = y.like(DType::i32);
  pool.forward(rank, x, y, picked);
  pool.backward(rank, dy, picked, dx);
  expect_near(y, whole.y, "y");
  expect_near(dx, whole.dx, "dx");
  if (pooling.kind == PoolKind::max) return;
  const bool counts = is_first(c.x.grid(), me, c.x.replicated());  // only an average is linear
  const double forward = sum_over(comm, counts ? inner_local(y, dy) : 0);
  EXPECT_NEAR(forward, sum_over(comm, counts ? inner_local(x, dx) : 0), 1e-9);
}

constexpr std::uint64_t cases = 400;

}  // namespace

TEST(SpatialConv, RandomLayoutsAgreeWithOneRank) {
  std::atomic<int> borders = 0, blocking = 0;
  for (std::uint64_t seed = 1; seed <= 4 * cases && !testing::Test::HasFailure(); ++seed) {
    const Case c(seed, false);
    SCOPED_TRACE(fmt::format("case {}: {}", seed, c.print()));
    const WholeConv whole(c);
    run_threads(c.x.grid().size(), [&](Communicator& comm) {
      borders += check_conv(c, whole, comm, true) ? 1 : 0;
      blocking += check_conv(c, whole, comm, false) ? 1 : 0;
      check_conv_adjoint(c, whole, comm);
    });
  }
  EXPECT_GT(borders, 50) << "too few cases recomputed a border";
  EXPECT_EQ(blocking, 0) << "without overlap one call computes everything";
}

TEST(SpatialConv, OutputsOfPaddingAloneDoNotJoinTheInterior) {
  // H has 3 inputs, cut into 2 + 1, and 8 outputs. Of the first 4 outputs, output 0 reads own inputs, outputs 1 and 2
  // read a neighbor's, and output 3 reads only padding.
  for (const auto& [lo, hi] : {std::pair<Index, Index>{0, 6}, {6, 0}, {6, 6}}) {
    const std::vector<Window> windows{{.kernel = 2, .pad_lo = lo, .pad_hi = hi},
                                      {.kernel = 3, .pad_lo = 1, .pad_hi = 1}};
    const Case c("a=2 b=2", "H@a W@b", {{'N', 1}, {'C', 2}, {'H', 3}, {'W', 23}}, 2, windows);
    SCOPED_TRACE(c.print());
    const WholeConv whole(c);
    run_threads(4, [&](Communicator& comm) { check_conv(c, whole, comm, true); });
  }
}

TEST(SpatialPool, RandomLayoutsAgreeWithOneRank) {
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= cases && !testing::Test::HasFailure(); ++seed) {
    const Case c(seed, true);
    if (!c.pools()) continue;
    ++checked;
    const std::vector<Pooling> kinds{
        {PoolKind::max, c.windows, false}, {PoolKind::average, c.windows, false}, {PoolKind::average, c.windows, true}};
    for (const auto& pooling : kinds) {
      SCOPED_TRACE(fmt::format("case {}, kind {} {}: {}", seed, static_cast<int>(pooling.kind), pooling.count_padding,
                               c.print()));
      const WholePool whole(c, pooling);
      run_threads(c.x.grid().size(), [&](Communicator& comm) {
        check_pool(c, pooling, whole, comm, true);
        check_pool(c, pooling, whole, comm, false);
      });
    }
  }
  EXPECT_GT(checked, 200);
}

}  // namespace partita::test::conv_test
