// The convolutions that a rank names for the choice of kernels can be described by arrays of their own, as a
// measurement does: in = [0, in), out = [0, out), and the padding.
#include "partita/distconv/conv_transpose.hpp"
#include "src/backend/measure.hpp"
#include "test/support/cases.hpp"

#include <gtest/gtest.h>

#include <random>

namespace partita::test::problems_test {

namespace {

/// The problem of a convolution over arrays that begin at 0.
ConvProblem described_again(const ConvProblem& problem) {
  std::vector<Window> windows;
  Shape x{{'N', problem.batch}, {'C', problem.channels}}, w{{'F', problem.filters}, {'C', problem.channels}},
      y{{'N', problem.batch}, {'C', problem.filters}};
  for (std::size_t d = static_cast<std::size_t>(3 - problem.spatial); d < 3; ++d) {
    const auto& side = problem.sides[d];
    const char name = "DHW"[d];
    windows.push_back({side.kernel, side.stride, side.dilation, side.pad_lo, side.pad_hi});
    x.push_back({name, side.in});
    w.push_back({name, side.kernel});
    y.push_back({name, side.out});
  }
  return {problem.pass, windows, Box(x), Box(w), Box(y), problem.with_bias != 0};
}

/// A window between n inputs and m outputs, cut over ranks.
struct Cut {
  Window window;
  Index n, m;
  int ranks;
  std::string print() const { return fmt::format("{} from {} to {} over {}", window.print(), n, m, ranks); }
};

/// Returns the problems of all ranks for a convolution and for a transposed one that have this window.
std::vector<ConvProblem> problems_of(const Cut& cut) {
  const Grid grid = Grid::parse(fmt::format("y={}", cut.ranks));
  const std::vector<Window> windows{cut.window};
  const auto wide = Layout::parse("W@y", {{'N', 2}, {'C', 2}, {'W', cut.n}}, grid);
  const auto narrow = Layout::parse("W@y", {{'N', 2}, {'C', 2}, {'W', cut.m}}, grid);
  const Halo wide_halo = halo_of_inputs(wide, narrow, windows), narrow_halo = halo_of_outputs(wide, narrow, windows);
  const Box w(Shape{{'F', 2}, {'C', 2}, {'W', cut.window.kernel}});
  std::vector<ConvProblem> all;
  const auto add = [&](const std::vector<ConvProblem>& problems) {
    std::copy_if(problems.begin(), problems.end(), std::back_inserter(all), [](const auto& p) { return !p.empty(); });
  };
  for (int rank = 0; rank < cut.ranks; ++rank) {
    const Box in = wide.owned(rank), out = narrow.owned(rank);
    const SpatialConv conv(windows, wide_halo, narrow_halo, rank);
    add(conv.problems(in, w, out, true, false));
    add(conv.problems(in, w, out, false, true));
    add(SpatialConvTranspose(windows, narrow_halo, wide_halo, rank).problems(out, w, in));
  }
  return all;
}

/// Calls check(cut) for kernels of 1 to 7, strides and dilations of 1 to 4, and some paddings and extents.
template <class Check>
void for_cuts(const std::vector<Index>& extents, Check&& check) {
  for (int ranks = 2; ranks <= 5; ranks += ranks_step(ranks))
    for (Index kernel = 1; kernel <= 7; ++kernel)
      for (Index stride = 1; stride <= 4; ++stride)
        for (Index dilation = 1; dilation <= 4; ++dilation)
          for (const auto& [lo, hi] : {std::pair<Index, Index>{0, 0}, {1, 1}, {kernel - 1, 2}, {9, 3}})
            for (const Index n : extents) {
              const Window window{kernel, stride, dilation, lo, hi};
              if (window.outputs(n) > 0) check(Cut{window, n, window.outputs(n), ranks});
              // With an output more than the window needs, as output_padding gives.
              const Index transposed = (n - 1) * stride - lo - hi + window.reach() + std::max(stride, dilation) - 1;
              if (transposed > 0) check(Cut{window, transposed, n, ranks});
            }
}

}  // namespace

TEST(Problems, AreDescribedAgainByArraysOfTheirOwn) {
  std::vector<Index> extents{1, 6, 7, 40};
  if (lengthy())
    for (extents.resize(40); Index & extent : extents) extent = &extent - extents.data() + 1;
  int compared = 0;
  for_cuts(extents, [&](const Cut& cut) {
    for (const ConvProblem& problem : problems_of(cut)) {
      ASSERT_EQ(described_again(problem).print(), problem.print()) << cut.print();
      ++compared;
    }
  });
  EXPECT_GT(compared, 10000);
}

TEST(Problems, OfDilatedAndStridedWindowsAreMeasured) {
  const auto backend = make_backend("auto", DType::f32, 1);
  std::mt19937 random(3);
  std::size_t measured = 0;
  for (std::uint64_t i = 0; i < cases(60); ++i) {
    const auto between = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
    const Window window{between(2, 5), between(1, 4), between(2, 4), between(0, 4), between(0, 4)};
    const Index n = between(5, 40);
    const Cut cut{window, n, window.outputs(n), static_cast<int>(between(2, 5))};
    if (cut.m == 0) continue;
    SCOPED_TRACE(cut.print());
    const auto problems = problems_of(cut);
    const ConvProblem& problem = problems[between(0, std::ssize(problems) - 1)];
    if (backend->algorithms(problem).empty()) continue;
    const auto once = [](const std::function<void()>& run) {
      run();
      return Timing{1e-3, 0};
    };
    measure_fastest(*backend, {}, problem, once);
    ++measured;
  }
  if (make_backend("auto", DType::f32, 1)->name() == "onednn") {
    EXPECT_GT(measured, cases(60) / 3);
  }
}

}  // namespace partita::test::problems_test
