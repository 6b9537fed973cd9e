// Measures distributed products on two ranks, and checks the choice of algorithms on larger grids.
//   square-N    Every operand is sharded over both ranks. Compared with twice the speed of the whole product on one
//               rank, and with ScaLAPACK's psgemm in the best of several block sizes and both grids. The case "apart"
//               is the limit of the machine: two ranks that each multiply half and do not communicate.
//   fc-LAYER    x and y are sharded over channels. Compared with the faster of two ways: all-gather then product, and
//               product then reduce-scatter, each with the weights where it needs them. Also compares the chosen
//               algorithm with the fastest one.
//   pick-SHAPE  Compares the bytes of the chosen algorithm with the fewest bytes of any algorithm, on grids of two and
//               three axes. Nothing runs.
//   build/mpiexec -n 2 build/bench/matmul [TEXT]    only cases whose name contains TEXT
#include "bench/support/measure.hpp"
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/matmul/product.hpp"
#include "partita/tensor/dist_tensor.hpp"
#ifdef PARTITA_SCALAPACK
#include "bench/support/scalapack.hpp"
#endif

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

using namespace partita;

namespace {

constexpr AxisSet both = 1;  // the set of the only axis, which has both ranks

/// A product with its operands on the ranks of `world`.
class Running {
 public:
  Running(const ProductPlan& plan, const std::shared_ptr<Communicator>& world)
      : grid_(plan.c.layout.grid(), world, {both}),
        backend_(make_onednn_backend(1)),
        product_(plan, world->rank()),
        a_(random(plan.a.layout, 1)),
        b_(random(plan.b.layout, 2)),
        c_(random(plan.c.layout, 3)) {}
  void run() {
    product_.run(*backend_, grid_, a_.local, b_.local, c_.local, Write::over);
    if (const AxisSet pending = c_.layout.partial(); pending != 0)
      grid_.along(pending).all_reduce(c_.local.data(), c_.local.volume(), DType::f32, ReduceOp::sum, {}).wait();
  }

 private:
  DistTensor random(const Layout& layout, std::uint32_t stream) const {
    const DistTensor x(layout, grid_.rank(), DType::f32, std::make_shared<Allocator>(), MemoryClass::activations);
    fill(x.local, layout.shape(), [&](Index i) { return Random(1, stream).normal(i); });
    return x;
  }

  ProcessGrid grid_;
  std::unique_ptr<Backend> backend_;
  Product product_;
  DistTensor a_, b_, c_;
};

/// A local product of dense matrices.
class Gemm {
 public:
  Gemm(bool transpose_b, Index m, Index n, Index k)
      : transpose_b_(transpose_b), m_(m), n_(n), k_(k), a(size(m, k), 0.5F), b(size(k, n), 0.5F), c(size(m, n)) {}
  void run() {
    backend_->gemm(DType::f32, false, transpose_b_, m_, n_, k_, 1, a.data(), k_, b.data(), transpose_b_ ? k_ : n_, 0,
                   c.data(), n_, {});
  }

 private:
  static std::size_t size(Index x, Index y) { return static_cast<std::size_t>(x * y); }
  bool transpose_b_;
  Index m_, n_, k_;
  std::unique_ptr<Backend> backend_ = make_onednn_backend(1);

 public:
  std::vector<float> a, b, c;
};

class Bench {
 public:
  Bench(const std::shared_ptr<Communicator>& world, std::string wanted) : world_(world), wanted_(std::move(wanted)) {}

  void apart(Index n) const;
  void square(Index n) const;
  void layer(const std::string& name, Index batch, Index inputs, Index outputs);
  void picks() const;

 private:
  bool wants(const std::string& name) const { return name.find(wanted_) != std::string::npos; }
  Layout layout(const Shape& shape, const char* text) const { return Layout::parse(text, shape, grid_); }
  template <class Run>
  void against_gemm(const std::string& name, Index n, Run&& ours) const;
  void against_scalapack(const std::string& name, Index n, Running& ours) const;

  std::shared_ptr<Communicator> world_;
  std::string wanted_;
  Grid grid_ = Grid::parse("p=2");
};

/// Compares `ours` with twice the speed of the product of two n x n matrices on rank 0 alone.
template <class Run>
void Bench::against_gemm(const std::string& name, Index n, Run&& ours) const {
  Gemm whole(false, n, n, n);
  auto result = bench::compare(
      MPI_COMM_WORLD, ours,
      [&] {
        if (world_->rank() == 0) whole.run();
      },
      2);
  result.ratio /= 2;
  bench::print(MPI_COMM_WORLD, "matmul", name, result, "gemm");
}

/// Measures the limit of the machine: both ranks multiply their half and do not communicate.
void Bench::apart(Index n) const {
  const auto name = fmt::format("square-{}-apart", n);
  if (!wants(name)) return;
  Gemm half(false, n / 2, n, n);
  against_gemm(name, n, [&] { half.run(); });
}

/// Measures algorithms in which one operand stays in place. On one axis, summa-a keeps A, summa-b keeps B, summa-c
/// keeps C; dot shards k, keeps A and B, and sums C.
void Bench::square(Index n) const {
  struct Case {
    Algorithm algorithm;
    const char *a, *b, *c;
  };
  for (const Case& each : {Case{Algorithm::summa_a, "N@p", "N@p", "N@p"}, Case{Algorithm::summa_b, "C@p", "C@p", "C@p"},
                           Case{Algorithm::summa_c, "N@p", "C@p", "N@p"}, Case{Algorithm::dot, "C@p", "N@p", "N@p"}}) {
    const auto name = fmt::format("square-{}-{}", n, partita::name(each.algorithm));
    if (!wants(name)) continue;
    const Shape shape{{'N', n}, {'C', n}};
    Running ours(plan_product({layout(shape, each.a), "mk"}, {layout(shape, each.b), "kn"},
                              {layout(shape, each.c), "mn"}, {.algorithm = each.algorithm}),
                 world_);
    against_gemm(name, n, [&] { ours.run(); });
    against_scalapack(name, n, ours);
  }
}

void Bench::against_scalapack(const std::string& name, Index n, Running& ours) const {
#ifdef PARTITA_SCALAPACK
  std::deque<bench::ScalapackProduct> products;
  std::vector<std::function<void()>> theirs;
  for (const auto& [rows, columns] : {std::pair(1, 2), std::pair(2, 1)})
    for (const int block : {64, 128, 256, 512}) {
      auto& product = products.emplace_back(static_cast<int>(n), rows, columns, block);
      theirs.emplace_back([&product] { product.run(); });
    }
  bench::print(MPI_COMM_WORLD, "matmul", name,
               bench::compare(
                   MPI_COMM_WORLD, [&] { ours.run(); }, theirs, 2),
               "scalapack");
#else
  if (world_->rank() == 0) fmt::print(stderr, "{}: this build has no ScaLAPACK to compare with\n", name);
  static_cast<void>(n);
  static_cast<void>(ours);
#endif
}

/// Measures y[N C@p] = x[N C@p] w', as in a strategy that shards channels everywhere.
void Bench::layer(const std::string& layer_name, Index batch, Index inputs, Index outputs) {
  const auto name = fmt::format("fc-{}-batch{}", layer_name, batch);
  if (!wants(name)) return;
  const Shape xs{{'N', batch}, {'C', inputs}}, ws{{'F', outputs}, {'C', inputs}}, ys{{'N', batch}, {'C', outputs}};
  const auto plan = [&](Algorithm algorithm) {
    return plan_product({layout(xs, "C@p"), "mk"}, {Layout(ws, grid_), "nk"}, {layout(ys, "C@p"), "mn"},
                        {.algorithm = algorithm, .b_follows = true});
  };
  Running ours(plan(Algorithm::automatic), world_);
  const Index half_in = inputs / 2, half_out = outputs / 2;
  Gemm gathered(true, batch, half_out, inputs), partial(true, batch, outputs, half_in);
  std::vector<float> own(static_cast<std::size_t>(batch * half_in), 0.5F), all(own.size() * 2);
  const auto gather_first = [&] {
    MPI_Allgather(own.data(), static_cast<int>(own.size()), MPI_FLOAT, all.data(), static_cast<int>(own.size()),
                  MPI_FLOAT, MPI_COMM_WORLD);
    for (Index n = 0; n < batch; ++n)
      for (Index r = 0; r < 2; ++r)
        std::copy_n(&all[(r * batch + n) * half_in], half_in, &gathered.a[n * inputs + r * half_in]);
    gathered.run();
  };
  std::vector<float> sums(static_cast<std::size_t>(batch * outputs)), mine(sums.size() / 2);
  const auto scatter_last = [&] {
    partial.run();
    for (Index n = 0; n < batch; ++n)
      for (Index r = 0; r < 2; ++r)
        std::copy_n(&partial.c[n * outputs + r * half_out], half_out, &sums[(r * batch + n) * half_out]);
    MPI_Reduce_scatter_block(sums.data(), mine.data(), static_cast<int>(mine.size()), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  };
  const auto run = [&] { ours.run(); };
  const std::vector<std::function<void()>> both_ways{gather_first, scatter_last};
  const auto result = bench::compare(MPI_COMM_WORLD, run, both_ways, 1);
  bench::print(MPI_COMM_WORLD, "matmul", name, result,
               result.best == 0 ? "all-gather and gemm" : "gemm and reduce-scatter");
  Running other(plan(plan(Algorithm::automatic).algorithm == Algorithm::dot ? Algorithm::summa_c : Algorithm::dot),
                world_);
  auto choice = bench::compare(
      MPI_COMM_WORLD, run, [&] { other.run(); }, 0.5);
  choice.ratio = std::min(choice.ratio, 1.0);
  bench::print(MPI_COMM_WORLD, "matmul", name + "-choice", choice, "the fastest algorithm");
}

/// The most bytes that any rank sends for panels and sums. Sums that stay pending count as a ring all-reduce.
double bytes_of(const ProductPlan& plan) {
  double most = 0;
  const Grid& grid = plan.c.layout.grid();
  for (int rank = 0; rank < grid.size(); ++rank) {
    auto bytes = static_cast<double>(sent_to_all(plan.traffic(rank, 4)).bytes);
    for (const auto& step : plan.redistribute_c) bytes += 4 * wire_elements(step, rank);
    bytes += 4 * wire_of_all_reduce(static_cast<double>(plan.c.layout.owned(rank).volume()),
                                    grid.group_size(plan.c.layout.partial()));
    most = std::max(most, bytes);
  }
  return most;
}

/// Compares the fewest bytes of any algorithm with those of the chosen algorithm.
void Bench::picks() const {
  struct Sizes {
    const char* name;
    Index m, n, k;
  };
  constexpr Sizes shapes[]{{"square", 4096, 4096, 4096},
                           {"tall", 65536, 512, 512},
                           {"wide", 512, 65536, 512},
                           {"inner", 512, 512, 65536},
                           {"vgg-fc6-batch1", 1, 4096, 25088},
                           {"vgg-fc6-batch64", 64, 4096, 25088},
                           {"vgg-fc6-batch512", 512, 4096, 25088},
                           {"vgg-fc8-batch512", 512, 1000, 4096},
                           {"qkv-batch32", 32, 6144, 2048},
                           {"qkv-batch512", 512, 6144, 2048},
                           {"up-batch512", 512, 8192, 2048},
                           {"down-batch512", 512, 2048, 8192}};
  for (const char* grid : {"r=2 c=2", "r=2 c=4", "r=4 c=4", "r=3 c=5", "r=2 c=2 l=2", "r=4 c=4 l=2"})
    for (const auto& [shape, m, n, k] : shapes) {
      const auto name = fmt::format("pick-{}-on-{}", shape, grid);
      if (!wants(name)) continue;
      const Grid on = Grid::parse(grid);
      const bool three = on.axes() == 3;
      const auto operand = [&](const Shape& s, const char* two, const char* three_axes, const char* indices) {
        return ProductOperand{Layout::parse(three ? three_axes : two, s, on), indices};
      };
      const auto a = operand({{'N', m}, {'C', k}}, "N@r C@c", "N@r C@(l,c)", "mk");
      const auto b = operand({{'N', k}, {'C', n}}, "N@r C@c", "N@(l,r) C@c", "kn");
      const auto c = operand({{'N', m}, {'C', n}}, "N@r C@c", "N@r C@(c,l)", "mn");
      const ProductPlan pick = plan_product(a, b, c);
      const double picked = bytes_of(pick);
      double least = picked;
      for (const Algorithm algorithm : product_algorithms()) {
        if (algorithm == Algorithm::two_and_a_half_d && !three) continue;
        const ProductPlan way = plan_product(a, b, c, {.algorithm = algorithm});
        if (way.alternatives[0].flops <= 1.05 * pick.alternatives[0].flops) least = std::min(least, bytes_of(way));
      }
      if (world_->rank() == 0)
        fmt::print(
            R"({{"subject": "matmul", "case": "{} {}", "ranks": {}, "seconds": 0, "spread": 0, "ratio": {:.3f}, "against": "the fewest bytes"}})"
            "\n",
            name, partita::name(pick.algorithm), on.size(), picked == 0 ? 1 : least / picked);
    }
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  if (world->size() != 2) session.abort("bench/matmul needs 2 ranks: start it with -n 2", 2);
  bench::pin(world->rank());
  Bench bench(world, argc > 1 ? argv[1] : "");
  for (const Index n : {512, 1024, 2048, 4096}) {
    bench.apart(n);
    bench.square(n);
  }
  for (const Index batch : {1, 8, 64, 512}) {
    bench.layer("vgg-fc6", batch, 25088, 4096);
    bench.layer("vgg-fc7", batch, 4096, 4096);
    bench.layer("vgg-fc8", batch, 4096, 1000);
    bench.layer("qkv", batch, 2048, 6144);
    bench.layer("projection", batch, 2048, 2048);
    bench.layer("up", batch, 2048, 8192);
    bench.layer("down", batch, 8192, 2048);
  }
  bench.picks();
  return 0;
}
