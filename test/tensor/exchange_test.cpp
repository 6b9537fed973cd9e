#include "partita/tensor/exchange.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/counting.hpp"
#include "partita/layouts/halo.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/adjoint.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <random>

namespace partita::test::exchange_test {

namespace {

Tensor part(const Box& box, DType dtype = DType::f64) { return {dtype, "NCHW", box}; }

void fill_random(const Tensor& tensor, std::uint64_t seed) {
  const Random random(seed, 2);
  for (Index i = 0; i < tensor.volume(); ++i) tensor.set(i, static_cast<double>(random.bits(i) % 19) - 9);
}

/// A random halo. Dimensions may be shorter than the grid, windows may reach over several ranks, and strides may skip
/// inputs.
struct Case {
  Layout x, y;
  std::vector<Window> windows;

  Case(const Grid& grid, std::mt19937& random) {
    const auto draw = [&](int lo, int hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    Shape inputs{{'N', draw(0, 3)}, {'C', draw(1, 3)}}, outputs = inputs;
    for (const char dim : {'H', 'W'}) {
      Window window{draw(1, 4), draw(1, 3), draw(1, 2)};
      window.pad_lo = draw(0, static_cast<int>(window.reach()) - 1);
      window.pad_hi = draw(0, static_cast<int>(window.reach()) - 1);
      windows.push_back(window);
      inputs.push_back({dim, draw(1, 11)});
      outputs.push_back({dim, window.outputs(inputs[dim])});
    }
    x = Layout(inputs, grid);
    for (int axis = 0; axis < grid.axes(); ++axis)
      if (const int d = static_cast<int>(draw(-1, 3)); d >= 0) {
        auto axes = x.axes(d);
        axes.push_back(axis);
        x = x.with(d, axes);
      }
    y = x.onto(outputs);
  }

  std::string print() const {
    return fmt::format("x {} [{}] on \"{}\", windows {} and {}", x.shape().print(), x.print(), x.grid().print(),
                       windows[0].print(), windows[1].print());
  }
};

const Box& at(const std::vector<Box>& boxes, int rank) { return boxes[rank]; }

/// Checks that every element that the plan brings to a rank has its value, and that the traffic is what the halo
/// predicts. Elements between the taps of dilated windows do not come.
void check_forward(const Halo& halo, const Shape& shape, Communicator& comm) {
  const auto counter = std::make_shared<TrafficCounter>();
  const auto counted = counting(comm, counter);
  const auto from = part(halo.owned(comm.rank())), to = part(halo.needed(comm.rank()));
  const auto truth = part(to.box()), all = part(to.box());
  fill(from, shape, [](Index i) { return value(1, i); });
  fill(all, shape, [](Index i) { return value(1, i); });
  const TransferPlan plan = halo.transfer(comm.rank());
  for (const auto* boxes : {&plan.recvs, &plan.locals})
    for (const Transfer& each : *boxes) copy_box(all, truth, each.box, {});
  Exchange(plan, from, to, *counted, {}).finish();
  for (Index i = 0; i < to.volume(); ++i) ASSERT_EQ(to.get(i), truth.get(i)) << "rank " << comm.rank();
  EXPECT_EQ(counter->total(), plan.traffic(8));
}

/// <F x, y> = <x, F* y>, summed over the parts of all ranks. F* adds to the old content.
void check_adjoint(const Halo& halo, Communicator& comm) {
  const auto plan = halo.transfer(comm.rank());
  const auto x = part(halo.owned(comm.rank())), fx = part(halo.needed(comm.rank()));
  const auto y = fx.like(fx.box()), fy = x.like(x.box()), before = x.like(x.box());
  const auto seed = static_cast<std::uint64_t>(comm.rank());
  fill_random(x, 3 * seed);
  fill_random(y, 3 * seed + 1);
  fill_random(before, 3 * seed + 2);
  add(before, fy, {});
  Exchange(plan, x, fx, comm, {}).finish();
  auto back = Exchange::adjoint(plan, y, fy, comm, {});
  back.finish();
  const double left = sum_over(comm, inner_local(fx, y));
  const double right = sum_over(comm, inner_local(x, fy) - inner_local(x, before));
  EXPECT_EQ(left, right);
}

}  // namespace

TEST(Exchange, RandomHalosArriveAndGoBack) {
  std::mt19937 random(7);
  int silent = 0;
  for (const auto& grid : grids()) {
    if (grid.size() > 6) continue;
    for (int i = 0; i < 40; ++i) {
      const Case c(grid, random);
      const auto inputs = halo_of_inputs(c.x, c.y, c.windows), outputs = halo_of_outputs(c.x, c.y, c.windows);
      silent += inputs.none() ? 1 : 0;
      SCOPED_TRACE(c.print());
      run_threads(grid.size(), [&](Communicator& comm) {
        check_forward(inputs, c.x.shape(), comm);
        check_forward(outputs, c.y.shape(), comm);
        check_adjoint(inputs, comm);
        check_adjoint(outputs, comm);
      });
      ASSERT_FALSE(HasFailure()) << c.print();
    }
  }
  EXPECT_LT(silent, 300) << "most cases must move something";
}

TEST(Exchange, WorksBesideOthersAndInEveryDtype) {
  // Two ranks swap the halves of W in all dtypes at once. The first exchange is finished last.
  run_threads(2, [](Communicator& comm) {
    const Shape shape{{'N', 1}, {'C', 2}, {'H', 1}, {'W', 5}};
    const auto grid = Grid::parse("x=2");
    const auto mine = Layout::parse("W@x", shape, grid).owned();
    const std::vector<Box> needed{mine[1], mine[0]};
    const auto plan = plan_transfer(mine, needed, comm.rank(), grid);
    std::vector<Exchange> exchanges;
    std::vector<Tensor> results;
    for (const auto dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32}) {
      const auto from = part(at(mine, comm.rank()), dtype);
      fill(from, shape, [](Index i) { return static_cast<double>(i); });
      results.push_back(part(at(needed, comm.rank()), dtype));
      exchanges.push_back(Exchange(plan, from, results.back(), comm, {}));
    }
    for (auto exchange = exchanges.rbegin(); exchange != exchanges.rend(); ++exchange) exchange->finish();
    const auto truth = part(at(needed, comm.rank()));
    fill(truth, shape, [](Index i) { return static_cast<double>(i); });
    for (const auto& result : results)
      for (Index i = 0; i < truth.volume(); ++i) EXPECT_EQ(result.get(i), truth.get(i)) << name(result.dtype());
  });
}

}  // namespace partita::test::exchange_test
