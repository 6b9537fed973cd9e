// Runs products of small integers, for which sums in any order are exact, in random layouts on grids of 1 to 16 ranks
// with every algorithm. Checks the result, and the messages and bytes that the plan predicts.
#include "partita/matmul/product.hpp"
#include "partita/base/error.hpp"
#include "partita/comm/counting.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/comm/delaying.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/rows.hpp"
#include "src/system/clock.hpp"
#include "test/support/adjoint.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

namespace partita::test::product_test {
namespace {

/// Shapes and indices of A, B and C: the three products of a linear layer, A B and A' B'.
struct Kind {
  Shape a, b, c;
  const char *a_indices, *b_indices;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  Index below(Index n) { return static_cast<Index>(random_() % static_cast<std::uint64_t>(n)); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(static_cast<Index>(from.size()))];
  }
  Index extent() { return pick(std::vector<Index>{0, 1, 1, 2, 3, 5, 7, 11, 13, 17}); }

  Kind kind() {
    const Index m = extent(), n = extent(), k = extent(), h = pick(std::vector<Index>{1, 1, 2, 3}),
                w = pick(std::vector<Index>{1, 1, 2});
    const auto flat = [](char rows, Index r, Index c) { return Shape{{rows, r}, {'C', c}}; };
    const auto deep = [&](char rows, Index r, Index c) { return Shape{{rows, r}, {'C', c}, {'H', h}, {'W', w}}; };
    switch (below(5)) {
      case 0: return {deep('N', m, k), deep('F', n, k), flat('N', m, n), "mk", "nk"};
      case 1: return {flat('N', m, k), deep('F', k, n), deep('N', m, n), "mk", "kn"};
      case 2: return {flat('N', k, m), deep('N', k, n), deep('F', m, n), "km", "kn"};
      case 3: return {flat('N', m, k), flat('N', k, n), flat('N', m, n), "mk", "kn"};
      default: return {flat('N', k, m), flat('F', n, k), flat('N', m, n), "km", "nk"};
    }
  }

  Layout layout(const Shape& shape, const Grid& grid) {
    Layout layout(shape, grid);
    for (int axis = 0; axis < grid.axes(); ++axis) {
      const auto d = static_cast<int>(below(shape.dims() + 1));
      if (d == shape.dims()) continue;
      auto axes = layout.axes(d);
      axes.insert(static_cast<std::size_t>(below(static_cast<Index>(axes.size()) + 1)), axis);
      layout = layout.with(d, axes);
    }
    return layout;
  }

  ProductRequest request() {
    ProductRequest request{.algorithm = below(2) == 0 ? Algorithm::automatic : pick(product_algorithms())};
    request.b_follows = below(4) == 0;
    request.completes = below(3) == 0;
    request.narrowest_slab = pick(std::vector<Index>{1, 2, 5, 128});
    request.panel_words = pick(std::vector<double>{1, 8, 1 << 20});
    return request;
  }

  ProductPlan plan(const Grid& grid) {
    const Kind now = kind();
    for (;;) try {
        return plan_product({layout(now.a, grid), now.a_indices}, {layout(now.b, grid), now.b_indices},
                            {layout(now.c, grid), "mn"}, request());
      } catch (const Error& error) {  // these axes cannot run the algorithm; "auto" can always run
        const std::string message = error.what();
        if (message.find("cannot run") == std::string::npos || message.find("\"auto\"") != std::string::npos) throw;
      }
  }

 private:
  std::mt19937_64 random_;
};

std::vector<Grid> all_grids() {
  auto all = grids();
  for (const char* text : {"x=8", "y=2 x=4", "y=3 x=4", "z=2 y=2 x=3", "y=4 x=4", "z=4 y=2 x=2", "x=13"})
    all.push_back(Grid::parse(text));
  return all;
}

DistTensor make(const Layout& layout, int rank, std::uint64_t seed) {
  DistTensor x(layout, rank, DType::f64, std::make_shared<Allocator>(), MemoryClass::activations);
  fill_parts(x, seed, rank);
  return x;
}

/// Returns entry (row, column) of the matrix whose content `seed` determines.
double entry(std::uint64_t seed, const ProductOperand& operand, char row_index, Index row, Index column) {
  const Shape& shape = operand.layout.shape();
  if (operand.indices[0] != row_index) std::swap(row, column);
  return value(seed, row * (shape.volume() / std::max(shape.extent(0), Index{1})) + column);
}

Index extent_of(const ProductOperand& operand, char index) {
  const Shape& shape = operand.layout.shape();
  if (operand.indices[0] == index) return shape.extent(0);
  Index rest = 1;
  for (int d = 1; d < shape.dims(); ++d) rest *= shape.extent(d);
  return rest;
}

/// Returns the entries of C in logical order.
std::vector<double> truth(const ProductPlan& plan, Write write) {
  const Index m = extent_of(plan.c, 'm'), n = extent_of(plan.c, 'n'), k = extent_of(plan.a, 'k');
  std::vector<double> all;
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      double sum = write == Write::add ? value(3, i * n + j) : 0;
      for (Index l = 0; l < k; ++l) sum += entry(1, plan.a, 'm', i, l) * entry(2, plan.b, 'k', l, j);
      all.push_back(sum);
    }
  return all;
}

std::string print(const ProductPlan& plan) {
  return fmt::format("{}: A[{}] {} \"{}\" B[{}] {} \"{}\" C {} \"{}\" on \"{}\" along {}", name(plan.algorithm),
                     plan.a.indices, plan.a.layout.shape().print(), plan.a.layout.print(), plan.b.indices,
                     plan.b.layout.shape().print(), plan.b.layout.print(), plan.c.layout.shape().print(),
                     plan.c.layout.print(), plan.c.layout.grid().print(), plan.along);
}

void check(const ProductPlan& plan, Write write, Communicator& comm) {
  const auto counter = std::make_shared<TrafficCounter>();
  const Grid& on = plan.c.layout.grid();
  const ProcessGrid grid(on, counting(comm, counter), all_axis_sets(on));
  const auto backend = make_reference_backend();
  const DistTensor a = make(plan.a.layout, grid.rank(), 1), b = make(plan.b.layout, grid.rank(), 2);
  const DistTensor c = make(plan.c.layout, grid.rank(), 3);
  if (write == Write::over) fill(c.local, c.layout.shape(), [](Index) { return 77; });
  const Product product(plan, grid.rank());
  product.run(*backend, grid, a.local, b.local, c.local, write);

  Traffic sent, collective;
  for (const auto& [key, traffic] : counter->by_label()) (key.second == Verb::exchange ? sent : collective) += traffic;
  Traffic foretold = sent_to_all(plan.traffic(grid.rank(), 8)), foretold_collective;
  for (const auto& step : plan.redistribute_c)
    (step.verb == Verb::exchange ? foretold : foretold_collective) += traffic(step, grid.rank(), 8);
  EXPECT_EQ(sent, foretold) << sent.messages << " " << sent.bytes << " for " << foretold.messages << " "
                            << foretold.bytes;
  EXPECT_EQ(collective, foretold_collective);

  const auto expected = truth(plan, write);
  Tensor sum = c.local.like(c.local.box());
  add(c.local, sum, {});
  grid.along(c.layout.partial()).all_reduce(sum.data(), sum.volume(), DType::f64, ReduceOp::sum, {}).wait();
  for_rows(sum, c.layout.shape(), [&](const Row& row) {
    for (Index i = 0; i < row.length; ++i) EXPECT_EQ(sum.get(row.offset + i * row.stride), expected[row.first + i]);
  });
}

TEST(Product, IsTheSumInRandomLayouts) {
  const std::uint64_t count = number_from_environment("PARTITA_CASES", 600);
  const auto all = all_grids();
  std::map<std::optional<Algorithm>, int> run;
  int panels = 0, slab_sums = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    Draw draw(seed);
    const Grid& grid = all[static_cast<std::size_t>(seed) % all.size()];
    const ProductPlan plan = draw.plan(grid);
    const Write write = draw.below(2) == 0 ? Write::over : Write::add;
    run_threads(grid.size(), [&](Communicator& comm) { check(plan, write, comm); });
    ++run[plan.algorithm];
    panels += plan.panels.size() > 1 ? 1 : 0;
    slab_sums += plan.sums_slabs ? 1 : 0;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", " << print(plan);
  }
  for (const Algorithm each : product_algorithms()) EXPECT_GE(run[each], static_cast<int>(count / 50)) << name(each);
  EXPECT_GE(panels, static_cast<int>(count / 100));
  EXPECT_GE(slab_sums, static_cast<int>(count / 20));
}

// <x w', dy> = <x, dy w> = <w, dy' x>
TEST(Product, ThreeProductsOfALayerAreAdjoint) {
  const auto all = all_grids();
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Draw draw(seed);
    const Grid& grid = all[static_cast<std::size_t>(seed) % all.size()];
    const Index n = draw.extent(), f = draw.extent(), c = draw.extent();
    const Shape xs{{'N', n}, {'C', c}, {'H', 2}}, ws{{'F', f}, {'C', c}, {'H', 2}}, ys{{'N', n}, {'C', f}};
    const Layout x = draw.layout(xs, grid), w = draw.layout(ws, grid), wanted = draw.layout(ys, grid);
    const ProductPlan of_y = plan_product({x, "mk"}, {w, "nk"}, {wanted, "mn"});
    const Layout dy = of_y.c.layout.dual();
    const ProductPlan of_dx = plan_product({dy, "mk"}, {w, "kn"}, {x, "mn"});
    const ProductPlan of_dw = plan_product({dy, "km"}, {x, "kn"}, {w, "mn"});
    run_threads(grid.size(), [&](Communicator& comm) {
      const ProcessGrid here(grid, comm, all_axis_sets(grid));
      const auto backend = make_reference_backend();
      const auto run = [&](const ProductPlan& plan, const DistTensor& a, const DistTensor& b) {
        DistTensor result = make(plan.c.layout, here.rank(), 9);
        Product(plan, here.rank()).run(*backend, here, a.local, b.local, result.local, Write::over);
        return result;
      };
      const DistTensor tx = make(x, here.rank(), 1), tw = make(w, here.rank(), 2), tdy = make(dy, here.rank(), 3);
      const double whole = inner(run(of_y, tx, tw), tdy, here.world());
      EXPECT_EQ(whole, inner(tx, run(of_dx, tdy, tw), here.world()));
      EXPECT_EQ(whole, inner(tw, run(of_dw, tdy, tx), here.world()));
    });
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", " << print(of_y);
  }
}

TEST(Product, ReplicasAgreeBitForBit) {
  const auto all = all_grids();
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Draw draw(seed);
    const Grid& grid = all[static_cast<std::size_t>(seed) % all.size()];
    const ProductPlan plan = draw.plan(grid);
    run_threads(grid.size(), [&](Communicator& comm) {
      const ProcessGrid here(grid, comm, all_axis_sets(grid));
      const auto backend = make_backend("auto", DType::f32, 1);
      const auto random = [&](const Layout& layout, std::uint32_t stream) {
        const DistTensor x(layout, here.rank(), DType::f32, std::make_shared<Allocator>(), MemoryClass::activations);
        fill(x.local, layout.shape(), [&](Index i) { return Random(seed, stream).normal(i); });
        return x;
      };
      const DistTensor a = random(plan.a.layout, 1), b = random(plan.b.layout, 2), c = random(plan.c.layout, 3);
      Product(plan, here.rank()).run(*backend, here, a.local, b.local, c.local, Write::over);
      std::vector<float> first(c.local.as<float>(), c.local.as<float>() + c.local.volume());
      here.along(c.layout.replicated()).broadcast(first.data(), c.local.volume(), DType::f32, 0, {}).wait();
      for (Index i = 0; i < c.local.volume(); ++i) EXPECT_EQ(first[i], c.local.as<float>()[i]);
    });
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", " << print(plan);
  }
}

Layout layout(const Shape& shape, const char* text, const char* grid) {
  return Layout::parse(text, shape, Grid::parse(grid));
}

ProductPlan square(const char* grid, const char* a, const char* b, const char* c, ProductRequest request = {},
                   Index m = 12, Index n = 12, Index k = 12) {
  return plan_product({layout({{'N', m}, {'C', k}}, a, grid), "mk"}, {layout({{'N', k}, {'C', n}}, b, grid), "kn"},
                      {layout({{'N', m}, {'C', n}}, c, grid), "mn"}, request);
}

// On r x c ranks with every operand cut over both axes, a rank moves SUMMA's number of words. It already holds its own
// share of what it gathers or sums.
TEST(Product, WordsOfTheVariantsAreSummas) {
  const double m = 2400, n = 4800, k = 9600, r = 2, c = 4;
  const auto words = [&](Algorithm algorithm, const char* a, const char* b, const char* made) {
    return square("r=2 c=4", a, b, made, {.algorithm = algorithm}, 2400, 4800, 9600).alternatives[0].words;
  };
  EXPECT_EQ(words(Algorithm::summa_c, "N@r C@c", "N@r C@c", "N@r C@c"),
            m * k / r * (1 - 1 / c) + k * n / c * (1 - 1 / r));
  EXPECT_EQ(words(Algorithm::summa_a, "N@r C@c", "N@c C@r", "N@r C@c"),
            k * n / c * (1 - 1 / r) + m * n / r * (1 - 1 / c));
  EXPECT_EQ(words(Algorithm::summa_b, "N@c C@r", "N@r C@c", "N@r C@c"),
            m * k / r * (1 - 1 / c) + m * n / c * (1 - 1 / r));
  EXPECT_EQ(words(Algorithm::dot, "C@(r,c)", "N@(r,c)", "N@r C@c"), m * n * (1 - 1 / (r * c)));
}

TEST(Product, TakesTheWayWithTheFewestWords) {
  const auto algorithm = [](Index m, Index n, Index k) {
    return square("r=2 c=2", "N@r C@c", "N@r C@c", "N@r C@c", {}, m, n, k).algorithm;
  };
  EXPECT_EQ(algorithm(512, 512, 512), Algorithm::summa_c);
  EXPECT_EQ(algorithm(512, 16, 512), Algorithm::summa_a);
  EXPECT_EQ(algorithm(16, 512, 512), Algorithm::summa_b);
}

TEST(Product, OneAxisMovesWhatAHandWrittenOneMoves) {
  constexpr Index n = 1200, block = n / 4 * n * 4;  // bytes
  const auto plan = [](const char* a, const char* b, const char* c) { return square("p=4", a, b, c, {}, n, n, n); };
  const auto moved = [](const ProductPlan& p) { return sent_to_all(p.traffic(1, 4)).bytes; };
  EXPECT_EQ(moved(plan("N@p", "", "N@p")), 0) << "samples";
  EXPECT_EQ(moved(plan("", "C@p", "C@p")), 0) << "columns";
  const auto rows = plan("C@p", "N@p", "");
  EXPECT_EQ(moved(rows), 0);
  EXPECT_EQ(rows.c.layout.print(), "N C sum@p") << "rows: whoever needs the sum does one all-reduce";
  EXPECT_EQ(moved(plan("C@p", "C@p", "C@p")), 3 * block) << "an all-gather of A";
  EXPECT_EQ(moved(plan("C@p", "N@p", "N@p")), 3 * block) << "a reduce-scatter of C";
}

/// Products that take a time proportional to their operations, so that neither cores nor memory matter.
class SlowBackend final : public ReferenceBackend {
 public:
  explicit SlowBackend(double seconds_an_operation) : seconds_(seconds_an_operation) {}
  void gemm(DType, bool, bool, Index m, Index n, Index k, double, const void*, Index, const void*, Index, double, void*,
            Index, Stream) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_ * static_cast<double>(m * n * k)));
  }

 private:
  double seconds_;
};

// Two ranks gather each other's half of A in four panels. All products together take 0.4 s. The transfer of a panel
// takes 0.05 s, as long as the product of one slab. The first transfer hides behind the slab that needs no transfer,
// and each later one behind the panel before it.
TEST(Product, PanelsTravelWhileOthersAreMultiplied) {
  constexpr Index n = 64;
  constexpr double products = 0.4, transfer = 0.05, whole = 1.15 * products + 0.03;
  const ProductPlan plan = square("p=2", "C@p", "C@p", "C@p", {.narrowest_slab = 8, .panel_words = n * n / 8}, n, n, n);
  ASSERT_EQ(plan.algorithm, Algorithm::summa_c);
  ASSERT_EQ(plan.panels.size(), 4U);
  double best = 1;
  for (int attempt = 0; attempt < 3 && best > whole; ++attempt)  // a loaded machine may be late, but never early
    run_threads(2, [&](Communicator& comm) {
      const auto slow = delaying(comm, {.latency = transfer, .bandwidth = 0});
      const ProcessGrid grid(plan.c.layout.grid(), slow, {});
      SlowBackend backend(products / (n * n * n / 2));
      const DistTensor a = make(plan.a.layout, grid.rank(), 1), b = make(plan.b.layout, grid.rank(), 2),
                       c = make(plan.c.layout, grid.rank(), 3);
      const double start = now();
      Product(plan, grid.rank()).run(backend, grid, a.local, b.local, c.local, Write::over);
      const double seconds = now() - start;
      EXPECT_GE(seconds, products);
      if (comm.rank() == 0) best = std::min(best, seconds);
    });
  EXPECT_LE(best, whole) << "without overlap they take " << products + 4 * transfer;
}

TEST(Product, AxesOfOneRankCutNothing) {
  for (const char* grid : {"r=1 c=2", "r=2 c=1", "r=1 c=1"})
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::summa_a, Algorithm::summa_b, Algorithm::summa_c})
      EXPECT_NO_THROW(square(grid, "N@r C@c", "N@c C@r", "N@r C@c", {.algorithm = algorithm, .pending = 0})) << grid;
  const auto plan = square("r=1 c=2", "C@r", "N@r", "C@c", {.pending = AxisSet{1}});
  EXPECT_EQ(plan.c.layout.print(), "N C@c sum@r") << "the layout names a sum over one rank too";
}

// Each panel of k would round a 16-bit sum once more.
TEST(Product, LeavesKWholeWhereItIsAsked) {
  ProductRequest request{.algorithm = Algorithm::summa_c, .narrowest_slab = 1, .panel_words = 1};
  const auto slabs = [&] {
    const auto plan = square("p=2", "C@p", "C@p", "C@p", request, 64, 64, 64);
    EXPECT_EQ(plan.along, 'k');
    return plan.slabs(plan.a).size();
  };
  EXPECT_GT(slabs(), 1U);
  request.whole_k = true;
  EXPECT_EQ(slabs(), 1U);
}

// In the transposed layout rank 0 already holds all that it needs; the other ranks hold nothing that they need.
TEST(Product, CountsTheRankThatLacksMost) {
  const ProductPlan plan = square("r=2 c=2", "N@r C@c", "N@c C@r", "N@c C@r", {}, 1024, 1024, 1024);
  Index most = 0;
  for (int rank = 0; rank < 4; ++rank) most = std::max(most, sent_to_all(plan.traffic(rank, 1)).bytes);
  EXPECT_GE(plan.alternatives[0].words, static_cast<double>(most) / 2);
  EXPECT_GT(most, 0);
}

TEST(Product, PanelsOfLinearLayersBehindConvolutions) {
  const Grid grid = Grid::parse("p=2");
  const Shape x{{'N', 512}, {'C', 512}, {'H', 7}, {'W', 7}}, w{{'F', 4096}, {'C', 512}, {'H', 7}, {'W', 7}};
  const Shape y{{'N', 512}, {'C', 4096}};
  const auto plan = plan_product({Layout::parse("C@p", y, grid), "km"}, {Layout::parse("N@p", x, grid), "kn"},
                                 {Layout::parse("F@p", w, grid), "mn"});
  EXPECT_GT(plan.panels.size() * plan.panels[0].size(), 1U) << "one row of the 7x7 positions has 3584 columns";
}

TEST(Product, RefusesWhatDoesNotMatch) {
  const auto one = [](const Shape& shape, const char* indices) {
    return ProductOperand{Layout(shape, Grid::parse("p=2")), indices};
  };
  expect_error(
      [&] {
        plan_product(one({{'N', 4}, {'C', 5}}, "mk"), one({{'N', 6}, {'C', 7}}, "kn"), one({{'N', 4}, {'C', 7}}, "mn"));
      },
      {"A[mk] N=4 C=5 \"N C\", B[kn] N=6 C=7 \"N C\", C[mn] N=4 C=7 \"N C\"", "differ in k"});
  expect_error(
      [&] {
        plan_product(one({{'N', 4}, {'C', 2}, {'H', 2}}, "mk"), one({{'F', 3}, {'H', 2}, {'C', 2}}, "nk"),
                     one({{'N', 4}, {'C', 3}}, "mn"));
      },
      {"differ in k"});
  expect_error([] { square("p=2", "N@p", "", "N@p", {.algorithm = Algorithm::groups}); },
               {"\"groups\" is no algorithm of a product"});
  expect_error([] { square("p=2", "N@p", "", "N@p", {.algorithm = Algorithm::two_and_a_half_d}); },
               {"the grid \"p=2\" cannot run \"2.5d\"", "three axes"});
  expect_error([] { square("p=2", "", "", "", {.algorithm = Algorithm::dot}); }, {"cannot run \"dot\"", "an axis"});
  expect_error([] { square("p=2", "N sum@p", "", "N@p"); }, {"must not be a pending sum", "\"N C sum@p\""});
}

}  // namespace
}  // namespace partita::test::product_test
