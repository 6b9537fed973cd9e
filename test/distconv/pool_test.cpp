// SpatialPool on thread ranks against named loops over the whole tensors, and its backward as its adjoint.
// conv_test.cpp draws layouts and windows; here they are chosen.
#include "partita/distconv/pool.hpp"

#include "src/comm/threads/threads.hpp"
#include "test/distconv/parts.hpp"

namespace partita::test::pool_test {

namespace {

struct Case {
  const char* grid;
  const char* layout;
  Shape x;  ///< N C H W
  std::vector<Window> windows;

  Shape y() const {
    return {{'N', x['N']}, {'C', x['C']}, {'H', windows[0].outputs(x['H'])}, {'W', windows[1].outputs(x['W'])}};
  }
  std::string print() const {
    return fmt::format("x {} [{}] on \"{}\", windows {} and {}", x.print(), layout, grid, windows[0].print(),
                       windows[1].print());
  }
};

const Window point{}, two{.kernel = 2, .stride = 2}, overlapping{.kernel = 3, .stride = 2, .pad_lo = 1, .pad_hi = 1},
    sliding{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, one_sided{.kernel = 4, .stride = 3, .pad_lo = 0, .pad_hi = 3},
    dilated{.kernel = 2, .stride = 1, .dilation = 3, .pad_lo = 0, .pad_hi = 0}, gaps{.kernel = 1, .stride = 3};

Shape images(Index n, Index c, Index h, Index w) { return {{'N', n}, {'C', c}, {'H', h}, {'W', w}}; }

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all{
      {"", "", images(2, 2, 4, 5), {two, overlapping}},
      {"a=1", "H@a", images(1, 1, 1, 1), {point, point}},
      {"a=2", "N@a", images(0, 1, 2, 2), {two, two}},        // no sample
      {"a=2", "N@a", images(1, 2, 3, 3), {sliding, point}},  // none on the second rank
      {"a=2", "C@a", images(2, 1, 3, 5), {sliding, two}},    // no channel on the second rank
      {"a=3", "C@a", images(1, 5, 3, 3), {sliding, overlapping}},
      {"a=2", "H@a", images(1, 1, 5, 2), {two, point}},        // 3 rows and 2; a window crosses the cut
      {"a=4", "H@a", images(1, 2, 3, 2), {sliding, sliding}},  // more ranks than rows
      {"a=3", "H@a", images(2, 1, 7, 3), {overlapping, sliding}},
      {"a=2", "W@a", images(1, 2, 2, 11), {point, dilated}},
      {"a=2", "W@a", images(1, 2, 2, 11), {two, gaps}},  // most inputs are in no window
      {"a=5", "W@a", images(1, 1, 1, 13), {point, one_sided}},
      {"a=2 b=3", "H@a W@b", images(2, 2, 5, 7), {overlapping, sliding}},
      {"a=3 b=2", "N@b W@a", images(3, 1, 3, 7), {sliding, overlapping}},
      {"a=2 b=2", "H@(b,a)", images(1, 1, 7, 3), {sliding, two}},
      {"a=2 b=2", "H@b", images(2, 2, 3, 3), {sliding, sliding}},  // replicas along a
      {"a=2 b=2 c=2", "C@c H@a W@b", images(1, 3, 23, 5), {sliding, overlapping}},
  };
  return all;
}

struct Kind {
  std::string name;
  PoolKind kind;
  bool count_padding;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{{"maximum", PoolKind::max, false},
                                     {"average of the inputs", PoolKind::average, false},
                                     {"average with padding", PoolKind::average, true}};
  return all;
}

/// Calls f(o, i, share) for each output and each input in its window: dy/dx, where that is not 0.
template <class F>
void for_shares(const Pooling& pooling, const naive::Windows& windows, const naive::Array& x, const naive::Array& y,
                const naive::Array& picked, F&& f) {
  naive::for_all(y.extents, [&](const naive::At& o) {
    std::vector<naive::At> inside;
    double position = 0;
    naive::for_all({1, 1, windows[0].kernel, windows[1].kernel, windows[2].kernel}, [&](const naive::At& k) {
      naive::At i{o[0], o[1]};
      for (std::size_t d = 0; d < 3; ++d)
        i[d + 2] = o[d + 2] * windows[d].stride - windows[d].pad_lo + k[d + 2] * windows[d].dilation;
      if (x.holds(i) && (pooling.kind == PoolKind::average || picked.get(o) == position)) inside.push_back(i);
      ++position;
    });
    const double count = pooling.kind == PoolKind::max ? 1
                         : pooling.count_padding       ? position
                                                       : static_cast<double>(inside.size());
    for (const auto& i : inside) f(o, i, 1 / count);
  });
}

struct Whole {
  Whole(const Case& c, const Pooling& pooling) : y(extents_of(c.y())), dx(extents_of(c.x)) {
    const auto windows = three_windows(c.windows);
    const auto x = array_of("NCHW", c.x, 1), dy = array_of("NCHW", c.y(), 4);
    naive::Array picked(y.extents);
    naive::pool(pooling, windows, x, y, picked);
    for_shares(pooling, windows, x, y, picked,
               [&](const naive::At& o, const naive::At& i, double share) { dx(i) += share * dy.get(o); });
  }
  naive::Array y, dx;
};

}  // namespace

TEST(SpatialPool, AgreesWithTheWhole) {
  for (const Case& c : all_cases())
    for (const Kind& each : kinds()) {
      const Pooling pooling{each.kind, c.windows, each.count_padding};
      const Whole whole(c, pooling);
      for (const bool overlap : {true, false})
        run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
          SCOPED_TRACE(fmt::format("{} of {}", each.name, c.print()));
          const int me = comm.rank();
          const Layout x_layout = Layout::parse(c.layout, c.x, Grid::parse(c.grid)), y_layout = x_layout.onto(c.y());
          const SpatialPool pool(each.kind, c.windows, each.count_padding,
                                 halo_of_inputs(x_layout, y_layout, c.windows), me);
          const auto backend = make_reference_backend();
          const RankContext rank{*backend, comm, overlap, {}};
          const Tensor x = part_of("NCHW", c.x, x_layout.owned(me), 1),
                       dy = part_of("NCHW", c.y(), y_layout.owned(me), 4);
          const Tensor y = dy.like(dy.box()), picked = y.like(DType::i32);
          const Tensor dx = part_of("NCHW", c.x, x_layout.owned(me), 99);  // what was there does not count
          pool.forward(rank, x, y, picked);
          pool.backward(rank, dy, picked, dx);
          constexpr double rounding = 1e-12;  // averages divide
          expect_part(y, whole.y, "y", rounding);
          expect_part(dx, whole.dx, "dx", rounding);
          // An average is linear, and so is a maximum whose choice is kept: <pool(x), dy> = <x, pool'(dy)>.
          EXPECT_NEAR(inner_of(comm, y_layout, y, dy), inner_of(comm, x_layout, x, dx), 1e-9);
        });
    }
}

}  // namespace partita::test::pool_test
