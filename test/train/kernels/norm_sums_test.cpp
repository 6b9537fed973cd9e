// Batch normalization on thread ranks against sums over the whole tensor, channel by channel, in float64.
#include "src/train/kernels/norm_sums.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/distconv/parts.hpp"

namespace partita::test::norm_sums_test {

namespace {

constexpr double epsilon = 1e-3, rounding = 1e-12;

struct Case {
  const char* grid;
  const char* layout;
  Shape x;  ///< N C H W
  std::string print() const { return fmt::format("x {} [{}] on \"{}\"", x.print(), layout, grid); }
};

Shape images(Index n, Index c, Index h, Index w) { return {{'N', n}, {'C', c}, {'H', h}, {'W', w}}; }

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all{
      {"", "", images(2, 3, 2, 3)},
      {"a=1", "N@a", images(1, 1, 1, 1)},          // one element: a variance of 0
      {"a=2", "N@a", images(1, 2, 3, 2)},          // nothing on the second rank
      {"a=3", "N@a", images(5, 1, 1, 2)},          // 2, 2 and 1 samples
      {"a=4", "H@a", images(1, 3, 3, 2)},          //
      {"a=5", "W@a", images(1, 1, 1, 7)},          //
      {"a=2", "C@a", images(2, 3, 2, 2)},          // channels apart: nothing to sum over ranks
      {"a=2", "C@a", images(2, 1, 2, 2)},          // no channel on the second rank
      {"a=2 b=3", "H@a W@b", images(2, 2, 3, 5)},  //
      {"a=3 b=2", "C@b H@a", images(1, 3, 5, 1)},  //
      {"a=2 b=2", "H@b", images(3, 2, 3, 1)},      // replicas along a, which must not count twice
      {"a=2 b=2 c=2", "N@c C@b H@a", images(3, 3, 5, 2)},
  };
  return all;
}

/// Everything of the whole tensor, by the formulas of norm_sums.hpp.
struct Whole {
  explicit Whole(const Case& c)
      : count(static_cast<double>(c.x['N'] * c.x['H'] * c.x['W'])), y(extents_of(c.x)), dx(extents_of(c.x)) {
    const auto x = array_of("NCHW", c.x, 1), dy = array_of("NCHW", c.x, 4);
    for (Index channel = 0; channel < c.x['C']; ++channel) {
      const naive::At extents{c.x['N'], 1, 1, c.x['H'], c.x['W']};
      const auto sum = [&](auto&& term) {
        double all = 0;
        naive::for_all(extents, [&](naive::At at) {
          at[1] = channel;
          all += term(at);
        });
        return all;
      };
      const double m = sum([&](const naive::At& at) { return x.get(at); }) / count;
      const double v = sum([&](const naive::At& at) { return (x.get(at) - m) * (x.get(at) - m); }) / count;
      const double r = 1 / std::sqrt(v + epsilon), scale = value(2, channel), shift = value(3, channel);
      const auto xhat = [&](const naive::At& at) { return (x.get(at) - m) * r; };
      mean.push_back(m);
      variance.push_back(v);
      sum_dy.push_back(sum([&](const naive::At& at) { return dy.get(at); }));
      sum_dy_xhat.push_back(sum([&](const naive::At& at) { return dy.get(at) * xhat(at); }));
      naive::for_all(extents, [&](naive::At at) {
        at[1] = channel;
        y(at) = scale * xhat(at) + shift;
        dx(at) = scale * r * (dy.get(at) - (sum_dy.back() + xhat(at) * sum_dy_xhat.back()) / count);
      });
    }
  }
  double count;
  std::vector<double> mean, variance, sum_dy, sum_dy_xhat;
  naive::Array y, dx;
};

Tensor batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double small) {
  return norm_statistics(backend, ranks, x, 1, x.extent('C'), count, small, {}, {});
}

/// One rank's part, and the ranks that have other places of the same channels.
struct Part {
  Part(const Case& c, Communicator& comm)
      : layout(Layout::parse(c.layout, c.x, Grid::parse(c.grid))),
        along(comm.split(layout.grid().group(comm.rank(), axes()).front(), comm.rank())),
        box(layout.owned(comm.rank())),
        x(part_of("NCHW", c.x, box, 1)),
        count(c.x['N'] * c.x['H'] * c.x['W']) {
    const Shape channels{{'C', c.x['C']}};
    Box mine(channels);
    mine[0] = box[1];
    scale = part_of("C", channels, mine, 2);
    shift = part_of("C", channels, mine, 3);
    backend = make_reference_backend();
  }
  AxisSet axes() const { return layout.sharding() & ~layout.sharding('C'); }

  Tensor statistics() { return batch_statistics(*backend, along.get(), x, count, epsilon); }
  /// dx of a gradient.
  Tensor backward(const Tensor& of, const Tensor& dy) {
    const Tensor dx = x.like(box), sums = norm_gradient_sums(*backend, along.get(), of, x, dy, {}).of_dx;
    backend->norm_backward(x, dy, of, sums, /*scaled=*/false, scale, count, dx, {}, {});
    return dx;
  }
  /// The values of a vector of all channels that this rank has.
  std::vector<double> mine(const std::vector<double>& all) const {
    return {all.begin() + box[1].lo, all.begin() + box[1].lo + box.extent(1)};
  }

  Layout layout;
  std::shared_ptr<Communicator> along;
  Box box;
  Tensor x, scale, shift;
  Index count;
  std::unique_ptr<Backend> backend;
};

void expect_values(const std::vector<double>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t c = 0; c < found.size(); ++c)
    EXPECT_NEAR(found[c], expected[c], rounding * (1 + std::abs(expected[c]))) << what << " of channel " << c;
}

std::vector<double> values(const Tensor& numbers, Index s) { return read(norm_number(numbers, s), {}); }

/// Runs f(comm, part) on every rank of every case.
template <class F>
void on_all_cases(F&& f) {
  for (const Case& c : all_cases())
    run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
      SCOPED_TRACE(c.print());
      Part part(c, comm);
      f(c, comm, part);
    });
}

}  // namespace

TEST(Norm, StatisticsAreThoseOfTheWhole) {
  on_all_cases([](const Case& c, Communicator&, Part& part) {
    const Whole whole(c);
    const Tensor found = part.statistics();
    expect_values(values(found, 0), part.mine(whole.mean), "mean");
    expect_values(values(found, 1), part.mine(whole.variance), "variance");
    const auto variance = values(found, 1), inverse = values(found, 2);
    for (std::size_t i = 0; i < variance.size(); ++i)
      EXPECT_NEAR(inverse[i], 1 / std::sqrt(variance[i] + epsilon), rounding);
  });
}

TEST(Norm, ForwardAndBackwardAreThoseOfTheWhole) {
  on_all_cases([](const Case& c, Communicator&, Part& part) {
    const Whole whole(c);
    const Tensor statistics = part.statistics();
    const Tensor y = part.x.like(part.box), dy = part_of("NCHW", c.x, part.box, 4);
    part.backend->norm_forward(part.x, statistics, part.scale, part.shift, false, y, {});
    expect_part(y, whole.y, "y", 1e-11);
    const Tensor sums = norm_gradient_sums(*part.backend, part.along.get(), statistics, part.x, dy, {}).of_dx;
    expect_values(values(sums, 0), part.mine(whole.sum_dy), "sum of dy");
    const auto found = values(sums, 1), products = part.mine(whole.sum_dy_xhat);
    for (std::size_t i = 0; i < products.size(); ++i) EXPECT_NEAR(found[i], products[i], 1e-10);
    expect_part(part.backward(statistics, dy), whole.dx, "dx", 1e-9);
  });
}

// With the statistics kept, dx depends on dy linearly, by a matrix that is symmetric: <B u, v> = <u, B v>.
TEST(Norm, TheBackwardIsItsOwnAdjoint) {
  on_all_cases([](const Case& c, Communicator& comm, Part& part) {
    const Tensor statistics = part.statistics();
    const Tensor u = part_of("NCHW", c.x, part.box, 11), v = part_of("NCHW", c.x, part.box, 12);
    const double left = inner_of(comm, part.layout, part.backward(statistics, u), v),
                 right = inner_of(comm, part.layout, u, part.backward(statistics, v));
    EXPECT_NEAR(left, right, 1e-9 * (1 + std::abs(left)));
  });
}

// To add a constant to x changes no y: the gradients of x sum to nothing over a channel.
TEST(Norm, GradientsOfAChannelSumToZero) {
  on_all_cases([](const Case& c, Communicator& comm, Part& part) {
    const Tensor statistics = part.statistics();
    const Tensor dx = part.backward(statistics, part_of("NCHW", c.x, part.box, 4)), ones = dx.like(part.box);
    for (Index i = 0; i < ones.volume(); ++i) ones.set(i, 1);
    EXPECT_NEAR(inner_of(comm, part.layout, dx, ones), 0, 1e-9);
  });
}

TEST(Norm, WithoutOtherRanksStatisticsAreTheRanksOwn) {
  const auto backend = make_reference_backend();
  const Shape shape = images(2, 1, 1, 2);
  const Tensor x(DType::f64, "NCHW", Box(shape));
  for (Index i = 0; i < 4; ++i) x.set(i, static_cast<double>(2 * i));  // 0 2 4 6
  const Tensor found = batch_statistics(*backend, nullptr, x, 4, 0);
  EXPECT_EQ(values(found, 0), std::vector<double>{3});
  EXPECT_EQ(values(found, 1), std::vector<double>{5});
  EXPECT_DOUBLE_EQ(values(found, 2)[0], 1 / std::sqrt(5));
  const Tensor sums = norm_gradient_sums(*backend, nullptr, found, x, x, {}).of_dx;
  EXPECT_EQ(values(sums, 0), std::vector<double>{12});
  EXPECT_DOUBLE_EQ(values(sums, 1)[0], 20 / std::sqrt(5));  // -3*0 - 1*2 + 1*4 + 3*6
}

TEST(Norm, APartWithoutElementsHasMeanZeroAndVarianceOne) {
  const auto backend = make_reference_backend();
  const Tensor x(DType::f64, "NCHW", Box(images(0, 2, 3, 3)));
  const Tensor found = batch_statistics(*backend, nullptr, x, 0, 0.25);
  EXPECT_EQ(values(found, 0), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(found, 1), (std::vector<double>{1, 1}));
  EXPECT_DOUBLE_EQ(values(found, 2)[1], 1 / std::sqrt(1.25));
}

TEST(Norm, EqualElementsHaveNoVariance) {
  const auto backend = make_reference_backend();
  const Tensor x(DType::f64, "NCHW", Box(images(3, 1, 1, 1)));
  for (const double same : {0.1, 1e8 + 0.1, -3e7 / 7}) {
    for (Index i = 0; i < 3; ++i) x.set(i, same);
    const Tensor found = batch_statistics(*backend, nullptr, x, 3, 1e-5);
    EXPECT_EQ(values(found, 0)[0], same);
    EXPECT_LE(values(found, 1)[0], 0x1p-90 * same * same) << same;
  }
}

TEST(Norm, RunningStatisticsAreTakenAsTheyAre) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor mean(dtype, "C", Box(Shape{{'C', 3}})), variance = mean.like(mean.box());
    for (Index c = 0; c < 3; ++c) {
      mean.set(c, static_cast<double>(c) - 1);
      variance.set(c, static_cast<double>(c * c));
    }
    const Tensor found = norm_numbers(mean, 3, 1, 3, MemoryClass::workspace);
    make_reference_backend()->given_statistics(mean, variance, 0.25, found, {});
    EXPECT_EQ(values(found, 0), (std::vector<double>{-1, 0, 1}));
    EXPECT_EQ(values(found, 1), (std::vector<double>{0, 1, 4}));
    EXPECT_EQ(values(found, 2), (std::vector<double>{2, 1 / std::sqrt(1.25), 1 / std::sqrt(4.25)}));
  }
}

}  // namespace partita::test::norm_sums_test
