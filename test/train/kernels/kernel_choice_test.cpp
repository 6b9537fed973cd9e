#include "src/train/kernels/kernel_choice.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include "partita/train/trainer/trainer.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/comm/threads/threads.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

namespace partita::kernel_choice_test {
namespace {

namespace fs = std::filesystem;

/// A backend with two algorithms for a convolution; its own default is the slower one.
class TwoWays : public ReferenceBackend {
 public:
  explicit TwoWays(std::string version = "1.0") : version_(std::move(version)) {}
  std::string describe() const override { return "two ways " + version_; }
  std::vector<std::string_view> algorithms(const ConvProblem&) const override { return {"slow", "quick"}; }
  void choose(const ConvProblem&, std::string_view algorithm) override { slow_ = algorithm == "slow"; }
  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ReferenceBackend::conv_forward(windows, x, w, bias, y, stream);
  }

 private:
  std::string version_;
  bool slow_ = true;
};

/// A temporary folder, and problems: one for each rank, and one that all ranks have.
class KernelChoice : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / fmt::format("partita-{}-{}", test->name(), getpid());
    fs::remove_all(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  static ConvProblem problem(Index filters) {
    const std::vector<Window> windows(2, Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1});
    const Shape x{{'N', 2}, {'C', 4}, {'H', 6}, {'W', 5}}, w{{'F', filters}, {'C', 4}, {'H', 3}, {'W', 3}},
        y{{'N', 2}, {'C', filters}, {'H', 6}, {'W', 5}};
    return {ConvPass::forward, windows, Box(x), Box(w), Box(y), false};
  }

  KernelCache cache() const { return {folder.string(), TwoWays(version), 1}; }

  /// Returns what three ranks choose, and their report.
  std::pair<KernelChoices, KernelReport> choose(const std::function<void()>& meanwhile = {}) const {
    std::vector<KernelChoices> choices(3);
    std::vector<KernelReport> reports(3);
    run_threads(3, [&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      TwoWays backend(version);
      Index last = 0;
      const auto progress = [&](Index done, Index all) {
        EXPECT_EQ(done, ++last);
        EXPECT_LE(done, all);
        if (meanwhile && comm.rank() == 0) meanwhile();
      };
      choose_kernels(backend, {}, {problem(8), problem(9 + comm.rank())}, cache(), comm, progress, choices[rank],
                     reports[rank]);
    });
    EXPECT_EQ(choices[0], choices[1]);
    EXPECT_EQ(choices[0], choices[2]);
    return {choices[0], reports[0]};
  }

  fs::path folder;
  std::string version = "1.0";  // of the backend's library
};

TEST_F(KernelChoice, IsMeasuredOnceAndKept) {
  const auto [first, measured] = choose();
  EXPECT_EQ(first.size(), 4U);
  for (const auto& [problem, algorithm] : first) EXPECT_EQ(algorithm, "quick") << problem;
  EXPECT_EQ(measured.known, 0);
  EXPECT_EQ(measured.measured, 4);
  EXPECT_EQ(measured.problem, "");
  const auto [second, known] = choose();
  EXPECT_EQ(second, first);
  EXPECT_EQ(known.known, 4);
  EXPECT_EQ(known.measured, 0);
}

// Another version may have other algorithms, or other speeds of the same ones.
TEST_F(KernelChoice, IsMeasuredAgainForAnotherVersionOfTheLibrary) {
  choose();
  version = "1.1";
  EXPECT_EQ(choose().second.measured, 4);
  EXPECT_EQ(choose().second.known, 4);
  version = "1.0";
  EXPECT_EQ(choose().second.known, 4) << "the older version's choices are still there";
}

TEST_F(KernelChoice, FollowsTheFileAndMeasuresWhatIsDamaged) {
  choose();
  const KernelCache cache = this->cache();
  for (const char* other : {"slow", "quick"}) {
    cache.add({{problem(8).print(), other}});
    EXPECT_EQ(choose().first[problem(8).print()], other);
  }
  std::ofstream(cache.path(), std::ios::app) << problem(9).print() << ": fft\nrubbish\n: \n";
  const auto [choices, report] = choose();
  EXPECT_EQ(report.measured, 1);
  EXPECT_EQ(report.known, 3);
  EXPECT_EQ(cache.read()[problem(9).print()], "quick");
}

// Otherwise this run would round in one way, and its continuation in another.
TEST_F(KernelChoice, FollowsWhatAnotherJobKeptMeanwhile) {
  fs::create_directories(folder);
  const auto [choices, report] = choose([&] { cache().add({{problem(8).print(), "slow"}}); });
  EXPECT_EQ(report.measured, 4);
  EXPECT_EQ(choices.at(problem(8).print()), "slow");
  EXPECT_EQ(choices.at(problem(9).print()), "quick");
  EXPECT_EQ(choose().first, choices);
}

TEST_F(KernelChoice, IsByRuleIfTheFileCannotBeWrittenAfterAll) {
  fs::create_directories(cache().path());  // a folder in place of the file
  const auto [choices, report] = choose();
  EXPECT_TRUE(choices.empty());
  EXPECT_EQ(report.problem.find(cache().path() + " cannot be written: "), 0U) << report.problem;
}

/// One sample takes 1 ms, and a batch 20 ms for each: so halves of halves are the fastest.
class Halving : public ReferenceBackend {
 public:
  std::string describe() const override { return "halving"; }
  std::vector<std::string_view> algorithms(const ConvProblem& problem) const override {
    return problem.batch > 1 ? std::vector<std::string_view>{"whole", two_halves}
                             : std::vector<std::string_view>{"whole"};
  }
  void choose(const ConvProblem& problem, std::string_view algorithm) override {
    chosen[problem.batch] = std::string(algorithm);
  }
  void conv_forward(std::span<const Window>, const Tensor& x, const Tensor&, const Tensor&, const Tensor&,
                    Stream) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(cost(x.box()[0].extent())));
  }

  std::map<Index, std::string> chosen;

 private:
  Index cost(Index batch) const {
    if (chosen.at(batch) == two_halves) return cost((batch + 1) / 2) + cost(batch / 2);
    return batch == 1 ? 1 : 20 * batch;
  }
};

TEST_F(KernelChoice, HalvesOfABatchAreChosenFirst) {
  run_threads(2, [&](Communicator& comm) {
    for (const Index measured : {3, 0}) {
      Halving backend;
      KernelChoices choices;
      KernelReport report;
      ConvProblem three = problem(8);
      three.batch = 3;
      const std::vector<ConvProblem> mine(comm.rank() == 0 ? 1 : 0, three);
      choose_kernels(backend, {}, mine, KernelCache(folder.string(), backend, 1), comm, {}, choices, report);
      EXPECT_EQ(report.measured, measured);
      EXPECT_EQ(choices.size(), 3U);
      EXPECT_EQ(choices.at(three.print()), two_halves);
      if (comm.rank() == 0) {
        EXPECT_EQ(backend.chosen, (std::map<Index, std::string>{
                                      {1, "whole"}, {2, std::string(two_halves)}, {3, std::string(two_halves)}}));
      }
    }
  });
}

TEST_F(KernelChoice, AProblemStaysInTheReport) {
  fs::create_directories(cache().path());
  run_threads(1, [&](Communicator& comm) {
    TwoWays backend;
    KernelChoices choices;
    KernelReport report;
    choose_kernels(backend, {}, {problem(8)}, cache(), comm, {}, choices, report);
    const auto problem_then = report.problem;
    EXPECT_NE(problem_then, "");
    fs::remove(cache().path());
    choose_kernels(backend, {}, {problem(9)}, cache(), comm, {}, choices, report);  // a later batch size
    EXPECT_EQ(report.problem, problem_then);
    EXPECT_EQ(report.measured, 1);
  });
}

TEST_F(KernelChoice, IsNoneOfABackendWithOneWay) {
  run_threads(2, [&](Communicator& comm) {
    const auto backend = make_reference_backend();
    KernelChoices choices;
    KernelReport report;
    choose_kernels(*backend, {}, {problem(8)}, cache(), comm, {}, choices, report);
    EXPECT_TRUE(choices.empty());
    EXPECT_EQ(report.problem, "");
  });
}

/// Trains two steps on three ranks that share the rows of a dilated convolution. Returns the losses.
std::vector<double> train_dilated(const std::string& kernel_folder, Index padding, bool transposed) {
  Model m("dilated");
  auto t = m.input("image", {.channels = 1, .spatial = {32, 32}});
  t = m.conv("c1", t, {.filters = 4, .kernel = 3, .padding = 1});
  if (transposed)
    t = m.conv_transpose("c2", t, {.filters = 4, .kernel = 3, .stride = 2, .padding = padding, .dilation = 2});
  else
    t = m.conv("c2", t, {.filters = 4, .kernel = 3, .stride = 2, .padding = padding, .dilation = 2});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  Strategy strategy("y=3");
  strategy.layer("*", {.output = "H@y"});
  std::vector<double> losses(2);
  run_threads(3, [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = 4;
    options.optimizer.rate = 0.01;
    options.kernel_folder = kernel_folder;
    Trainer trainer(m, strategy, options, comm);
    const auto data = make_synthetic({{'C', 1}, {'H', 32}, {'W', 32}}, {}, 8, 3, 1, 0);
    for (Index step = 0; step < 2; ++step) {
      const std::vector<Index> samples{4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3};
      const double loss = trainer.step(*data, samples).loss;
      if (comm.rank() == 0) losses[step] = loss;
    }
  });
  return losses;
}

TEST_F(KernelChoice, MeasuresWhereStrideAndDilationAreAboveOne) {
  for (const bool transposed : {false, true})
    for (const Index padding : {1, 2}) {
      const auto measured = train_dilated(folder.string(), padding, transposed);
      const auto by_rule = train_dilated("", padding, transposed);
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(measured[i], by_rule[i], 1e-5) << "padding " << padding << ", transposed " << transposed;
    }
}

TEST_F(KernelChoice, MeasuresNothingThatItCannotKeep) {
  std::ofstream(folder.string()) << "a file";
  const auto [choices, report] = choose();
  EXPECT_TRUE(choices.empty());
  EXPECT_EQ(report.measured, 0);
  EXPECT_NE(report.problem.find(folder.string()), std::string::npos) << report.problem;
}

}  // namespace
}  // namespace partita::kernel_choice_test
