#include "partita/base/error.hpp"
#include "src/backend/measure.hpp"
#include "test/support/error_of.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>
#if __has_include(<dnnl_version.h>)
#include <dnnl_version.h>
#endif
#include <thread>

namespace partita::onednn_test {
namespace {

using naive::Case;
using naive::Generator;

constexpr double tolerance = 1e-5;  // relative to the norm

/// The tests are skipped if this build lacks oneDNN (-Donednn=disabled).
class OneDnn : public testing::Test {
 protected:
  void SetUp() override {
    // test/run.sh installs oneDNN. It counts skipped tests, so that a build without oneDNN is noticed.
    if (make_backend("auto", DType::f32, 1)->name() != "onednn") GTEST_SKIP() << "this build lacks oneDNN";
    fast = make_backend("onednn", DType::f32, 1);
  }
  void compare(Generator& random, const Case& c);
  bool offers(const ConvProblem& problem, std::string_view algorithm) const {
    const auto ways = fast->algorithms(problem);
    return std::find(ways.begin(), ways.end(), algorithm) != ways.end();
  }
  static void expect_near(const Tensor (&y)[2], const Tensor (&dx)[2], const Tensor (&sum)[2]);

  std::unique_ptr<Backend> fast, reference = make_reference_backend();
};
class OneDnnConv : public OneDnn, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Spatial, OneDnnConv, testing::Values(1, 2, 3));

/// True if the processor can run oneDNN's Winograd kernels.
const bool has_avx512 = __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                        __builtin_cpu_supports("avx512vl") != 0;

double relative(const Tensor& is, const Tensor& want) {
  double difference = 0, norm = 0;
  for (Index i = 0; i < is.volume(); ++i) {
    difference += (is.get(i) - want.get(i)) * (is.get(i) - want.get(i));
    norm += want.get(i) * want.get(i);
  }
  return difference == 0 ? 0 : std::sqrt(difference) / std::max(std::sqrt(norm), 1e-3);
}

void OneDnn::compare(Generator& random, const Case& c) {
  SCOPED_TRACE(c.text);
  const auto s = static_cast<std::size_t>(c.spatial);
  const Tensor x = random.tensor(DType::f32, naive::x_names[s], c.x),
               w = random.tensor(DType::f32, naive::w_names[s], c.w);
  const Tensor dy = random.tensor(DType::f32, naive::x_names[s], c.y);
  const Tensor dw = random.tensor(DType::f32, naive::w_names[s], c.w);
  Box filters(1);
  filters[0] = c.y[1];
  const Tensor bias = random.one_in(2) ? random.tensor(DType::f32, "F", filters) : Tensor();
  const auto garbage = [&](const Box& box) { return random.tensor(DType::f32, naive::x_names[s], box); };
  const Tensor y[2] = {garbage(c.y), garbage(c.y)}, dx[2] = {garbage(c.x), garbage(c.x)};
  const Tensor sum[2] = {extract(dw, c.w, MemoryClass::workspace, {}), extract(dw, c.w, MemoryClass::workspace, {})};
  reference->conv_forward(c.slides, x, w, bias, y[1], {});
  reference->conv_backward_data(c.slides, dy, w, dx[1], {});
  const Write write = random.one_in(2) ? Write::add : Write::over;
  reference->conv_backward_filter(c.slides, x, dy, sum[1], write, {});
  const std::array problems{ConvProblem(ConvPass::forward, c.slides, c.x, c.w, c.y, static_cast<bool>(bias)),
                            ConvProblem(ConvPass::backward_data, c.slides, c.x, c.w, c.y, false),
                            ConvProblem(ConvPass::backward_filter, c.slides, c.x, c.w, c.y, false)};
  for (const std::string_view algorithm :
       {"", "nhwc", "blocked", "winograd", "gemm", "matmul"}) {  // "": the backend's default
    SCOPED_TRACE(algorithm);
    bool chosen = algorithm.empty();
    for (const auto& problem : problems) {
      if (!offers(problem, algorithm)) continue;
      fast->choose(problem, algorithm);
      chosen = true;
    }
    if (!chosen) continue;
    copy_box(dw, sum[0], c.w, {});
    fast->conv_forward(c.slides, x, w, bias, y[0], {});
    fast->conv_backward_data(c.slides, dy, w, dx[0], {});
    fast->conv_backward_filter(c.slides, x, dy, sum[0], write, {});
    expect_near(y, dx, sum);
  }
}

void OneDnn::expect_near(const Tensor (&y)[2], const Tensor (&dx)[2], const Tensor (&sum)[2]) {
  EXPECT_LE(relative(y[0], y[1]), tolerance) << "y";
  EXPECT_LE(relative(dx[0], dx[1]), tolerance) << "dx";
  EXPECT_LE(relative(sum[0], sum[1]), tolerance) << "dw";
}

TEST_P(OneDnnConv, IsTheReference) {
  Generator random(static_cast<unsigned>(GetParam()));
  for (int i = 0; i < 60; ++i) compare(random, random.conv(GetParam()));
}

/// Returns a whole layer of a real network.
Case layer(Index n, Index c, Index f, Index size, const Window& window) {
  Case k;
  k.slides = {window, window};
  const Index out = window.outputs(size);
  k.x = Box(Shape{{'N', n}, {'C', c}, {'H', size}, {'W', size}});
  k.w = Box(Shape{{'F', f}, {'C', c}, {'H', window.kernel}, {'W', window.kernel}});
  k.y = Box(Shape{{'N', n}, {'C', f}, {'H', out}, {'W', out}});
  k.text = k.x.print() + k.w.print() + window.print();
  return k;
}

// With these channel counts oneDNN uses its vectorized kernels; the small cases above use other ones.
TEST_F(OneDnn, IsTheReferenceForLayersOfNetworks) {
  Generator random(9);
  compare(random, layer(3, 32, 64, 14, {3, 1, 1, 1, 1}));
  compare(random, layer(3, 1, 32, 28, {3, 1, 1, 1, 1}));
  compare(random, layer(2, 64, 32, 13, {1, 2, 1, 0, 0}));
  compare(random, layer(2, 18, 36, 15, {5, 2, 1, 2, 2}));
  compare(random, layer(2, 3, 16, 31, {7, 2, 1, 3, 3}));
  compare(random, layer(2, 16, 16, 15, {3, 1, 2, 2, 2}));
}

/// Reduces a case to what one rank computes if dimension `d` is cut. If `of_x` is false, the rank has a part of y and
/// all inputs; otherwise it has a part of x and the outputs that read it.
void cut(Generator& random, Case& c, int d, bool of_x) {
  if (!of_x) {
    c.y[d] = random.part(c.y[d].extent());
    return;
  }
  const Window& window = c.slides[d - 2];
  c.x[d] = random.part(c.x[d].extent());
  c.y[d] = intersect({c.x[d].lo + window.pad_lo - 2, c.x[d].hi + window.pad_lo}, c.y[d]);
}

TEST_F(OneDnn, IsTheReferenceByWinogradHoweverPaddedAndCut) {
  Generator random(10);
  for (int i = 0; i < 200; ++i) {
    const Window rows{3, 1, 1, random.draw(0, 1), random.draw(0, 1)},
        columns{3, 1, 1, random.draw(0, 1), random.draw(0, 1)};
    Case c = layer(random.draw(1, 3), 16 * random.draw(1, 3), 16 * random.draw(1, 3), random.draw(3, 21), rows);
    c.slides = {rows, columns};
    c.y[3] = {0, columns.outputs(c.x[3].extent())};
    const bool of_x = random.one_in(2);
    for (const int d : {2, 3})
      if (random.one_in(2)) cut(random, c, d, of_x);
    c.text = c.x.print() + c.y.print() + rows.print() + columns.print();
    SCOPED_TRACE(c.text);
    for (const auto pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter}) {
      const ConvProblem problem(pass, c.slides, c.x, c.w, c.y, false);
      if (problem.empty() || (of_x && pass != ConvPass::backward_data)) continue;
      EXPECT_EQ(offers(problem, "winograd"), has_avx512) << problem.print();
    }
    compare(random, c);
  }
}

// These layers have enough channels and positions for the other schedules of oneDNN's Winograd kernel.
TEST_F(OneDnn, IsTheReferenceByWinogradOfManyChannels) {
  Generator random(11);
  for (const auto& [n, channels, size] : {std::array<Index, 3>{8, 64, 28}, {2, 256, 14}, {3, 272, 7}}) {
    const Case c = layer(n, channels, channels, size, {3, 1, 1, 1, 0});
    EXPECT_EQ(offers(ConvProblem(ConvPass::forward, c.slides, c.x, c.w, c.y, false), "winograd"), has_avx512);
    compare(random, c);
  }
}

TEST_F(OneDnn, MeasuresAmongItsOwnWays) {
  Generator random(6);
  const Case c = layer(2, 16, 16, 9, {3, 1, 1, 1, 1});
  for (const auto pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter}) {
    const ConvProblem problem(pass, c.slides, c.x, c.w, c.y, pass == ConvPass::forward);
    const auto ways = fast->algorithms(problem);
    EXPECT_EQ(ways.size(), offers(problem, "winograd") ? 5U : 4U);
    EXPECT_EQ(std::count(ways.begin(), ways.end(), measure_fastest(*fast, {}, problem)), 1);
  }
  compare(random, c);
}

TEST_F(OneDnn, SaysWhichWaysThereAre) {
  const Case c = layer(1, 4, 4, 5, {3, 1, 1, 1, 1});
  const ConvProblem problem(ConvPass::forward, c.slides, c.x, c.w, c.y, false);
  EXPECT_EQ(problem.print(), "forward N=1 C=4 F=4 in 5x5 out 5x5 kernel 3x3 stride 1x1 dilation 1x1 pad 1x1,1x1");
  EXPECT_EQ(test::error_of([&] { fast->choose(problem, "fft"); }),
            "backend 'onednn' has no convolution algorithm named 'fft'");
  EXPECT_EQ(test::error_of([&] { reference->choose(problem, "gemm"); }),
            "backend 'reference' has only one convolution algorithm, and none named 'gemm'");
  EXPECT_TRUE(reference->algorithms(problem).empty());
}

TEST_F(OneDnn, RepeatsBitForBitOnAnyThread) {
  Generator random(4);
  const Case c = layer(2, 16, 16, 9, {3, 1, 1, 1, 1});
  const Tensor x = random.tensor(DType::f32, "NCHW", c.x), w = random.tensor(DType::f32, "FCHW", c.w);
  const ConvProblem problem(ConvPass::forward, c.slides, c.x, c.w, c.y, false);
  for (const auto algorithm : fast->algorithms(problem)) {
    fast->choose(problem, algorithm);
    const Tensor first = x.like(c.y), second = x.like(c.y), third = x.like(c.y);
    std::thread([&] { fast->conv_forward(c.slides, x, w, {}, first, {}); }).join();
    fast->forget_tried();
    fast->conv_forward(c.slides, x, w, {}, second, {});
    std::thread([&] { fast->conv_forward(c.slides, x, w, {}, third, {}); }).join();
    for (Index i = 0; i < first.volume(); ++i) ASSERT_EQ(first.get(i), second.get(i)) << algorithm;
    for (Index i = 0; i < first.volume(); ++i) ASSERT_EQ(first.get(i), third.get(i)) << algorithm;
  }
}

TEST_F(OneDnn, MultipliesAsTheReference) {
  Generator random(5);
  for (int i = 0; i < 200; ++i) {
    const Index m = random.draw(0, 40), n = random.draw(0, 40), k = random.draw(0, 40);
    const bool ta = random.one_in(2), tb = random.one_in(2);
    const Index lda = (ta ? m : k) + 1, ldb = (tb ? k : n) + 2, ldc = n + 3;
    const auto matrix = [&](Index rows, Index ld) {
      return random.tensor(DType::f32, "HW", Box(Shape{{'H', rows}, {'W', ld}}));
    };
    const Tensor a = matrix(ta ? k : m, lda), b = matrix(tb ? n : k, ldb), c = matrix(m, ldc);
    const Tensor other = extract(c, c.box(), MemoryClass::workspace, {});
    const double beta = random.one_in(2) ? 0 : 0.5;
    fast->gemm(DType::f32, ta, tb, m, n, k, 1.5, a.data(), lda, b.data(), ldb, beta, c.data(), ldc, {});
    reference->gemm(DType::f32, ta, tb, m, n, k, 1.5, a.data(), lda, b.data(), ldb, beta, other.data(), ldc, {});
    EXPECT_LE(relative(c, other), tolerance) << m << " " << n << " " << k << " " << ta << tb;
  }
}

TEST_F(OneDnn, DescribesItsLibrary) {
#ifdef DNNL_VERSION_MAJOR
  const auto version = fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
  EXPECT_NE(fast->describe().find(version), std::string::npos) << fast->describe();
#endif
  EXPECT_EQ(reference->describe(), "reference");
}

TEST_F(OneDnn, RefusesOtherTypesNamingWhoCan) {
  try {
    make_backend("onednn", DType::bf16, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "backend 'onednn' computes in f32 only, not in bf16; use backend 'reference'");
  }
  EXPECT_THROW(make_onednn_backend(0), Error);
}

}  // namespace
}  // namespace partita::onednn_test
