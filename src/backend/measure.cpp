#include "src/backend/measure.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

namespace partita {

namespace {

/// Random numbers on a device. Kernels of GPUs run faster on zeros: fewer bits switch, and the clock stays higher.
class RandomBlock {
 public:
  RandomBlock(DType dtype, const std::shared_ptr<Allocator>& allocator)
      : device_(allocator->device()), stream_(allocator->stream()) {
    constexpr Index numbers = 1 << 16;
    const Box box(Shape{{'F', numbers}});
    const Tensor host(dtype, "F", box);
    const Random random(1, 1);
    for (Index i = 0; i < numbers; ++i) host.set(i, random.uniform(i) - 0.5);
    block_ = Tensor(dtype, "F", box, allocator, MemoryClass::workspace);
    from_host(host, block_, stream_);
  }
  /// Fills a tensor with the block, again and again.
  void fill(const Tensor& tensor) const {
    for (Index at = 0; at < tensor.bytes(); at += block_.bytes())
      device_.copy(block_.data(), tensor.data() + at,
                   static_cast<std::size_t>(std::min(block_.bytes(), tensor.bytes() - at)), stream_);
  }

 private:
  Device& device_;
  Stream stream_;
  Tensor block_;
};

/// The arrays of one problem.
class Arrays {
 public:
  Arrays(const ConvProblem& problem, DType dtype, const std::shared_ptr<Allocator>& allocator,
         const RandomBlock& random)
      : pass_(problem.pass), then_(problem.activation()), stream_(allocator->stream()) {
    static constexpr std::string_view x_names = "NCDHW", w_names = "FCDHW";
    const auto unused = static_cast<std::size_t>(3 - problem.spatial);
    const auto array = [&](std::string_view names, Index first, Index second, Index ConvProblem::Side::*extent) {
      Shape shape{{names[0], first}, {names[1], second}};
      for (std::size_t d = unused; d < 3; ++d) shape.push_back({names[d + 2], problem.sides[d].*extent});
      const Tensor tensor(dtype, shape.names(), Box(shape), allocator, MemoryClass::workspace, Fill::none);
      random.fill(tensor);
      return tensor;
    };
    x_ = array(x_names, problem.batch, problem.channels, &ConvProblem::Side::in);
    w_ = array(w_names, problem.filters, problem.channels / problem.groups, &ConvProblem::Side::kernel);
    y_ = array(x_names, problem.batch, problem.filters, &ConvProblem::Side::out);
    for (std::size_t d = unused; d < 3; ++d) {
      const auto& s = problem.sides[d];
      windows_.push_back({s.kernel, s.stride, s.dilation, s.pad_lo, s.pad_hi});
    }
    if (problem.with_bias != 0) {
      const Shape filters{{'F', problem.filters}};
      bias_ = Tensor(dtype, "F", Box(filters), allocator, MemoryClass::workspace);
    }
    ConvProblem described(pass_, windows_, x_.box(), w_.box(), y_.box(), static_cast<bool>(bias_));
    described.apply(then_);
    require(described == problem, "the arrays must describe the same problem");
  }

  std::size_t bytes() const { return static_cast<std::size_t>(x_.bytes() + w_.bytes() + y_.bytes()); }

  void run(Backend& backend) const {
    switch (pass_) {
      case ConvPass::forward: return backend.fused_conv_forward(windows_, x_, w_, {bias_, then_}, y_, stream_);
      case ConvPass::backward_data: return backend.conv_backward_data(windows_, y_, w_, x_, stream_);
      case ConvPass::backward_filter: return backend.conv_backward_filter(windows_, x_, y_, w_, Write::over, stream_);
    }
  }

 private:
  ConvPass pass_;
  std::optional<Activation> then_;
  Stream stream_;
  std::vector<Window> windows_;
  Tensor x_, w_, y_, bias_;
};

/// Several sets of arrays for one problem, which are used in turns so that they evict each other from the caches that a
/// core has for itself, or those of a GPU (50 MB on an H100). In a network other layers run between two runs of the
/// same layer; an algorithm that is 1.5 times faster on cached arrays may be 1.5 times slower there. On the CPU there
/// are at most 16 sets. Small arrays may therefore stay in the caches, as those of small layers do.
class Rotation {
 public:
  Rotation(const ConvProblem& problem, const Backend& backend, Stream stream) {
    const bool host = backend.device().host();
    const std::size_t much = std::size_t{host ? 32U : 128U} << 20U, most = host ? 16 : 64;
    const auto allocator = std::make_shared<Allocator>(backend.device(), 0, stream);
    const RandomBlock random(backend.chosen_dtype(), allocator);
    do sets_.emplace_back(problem, backend.chosen_dtype(), allocator, random);
    while (sets_.size() < most && sets_.size() * sets_.front().bytes() < much);
  }
  const Arrays& next() { return sets_[at_++ % sets_.size()]; }

 private:
  std::vector<Arrays> sets_;
  std::size_t at_ = 0;
};

/// One of the algorithms, and its runs so far.
struct Candidate {
  std::string_view algorithm;
  std::vector<Timing> runs = {};

  double median() const {
    auto seconds = undisturbed_seconds(runs);
    std::sort(seconds.begin(), seconds.end());
    return (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
  }
  /// The shortest run, without the time in which the core worked for other processes.
  double shortest() const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& run : runs) least = std::min(least, run.seconds - run.lost);
    return least;
  }
};

double least_median(const std::vector<Candidate>& all) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& candidate : all) least = std::min(least, candidate.median());
  return least;
}

/// How many runs of a problem are timed together. A kernel of a device may be shorter than the time to start it.
int runs_at_once(const Backend& backend) { return backend.device().host() ? 1 : 8; }

/// Runs all candidates in turns. Slow problems get fewer rounds. A candidate is dropped once it cannot win: even its
/// shortest run is too long, whatever time its core lost to other processes. The race ends when one is left, if asked.
void race(std::vector<Candidate>& all, const ConvProblem& problem, Backend& backend, Stream stream,
          const RunTimer& given, bool until_one_is_left) {
  constexpr double enough = 0.05, much = 1;  // seconds, in all runs of the fastest candidate
  constexpr int few = 3, most = 15;
  const int at_once = runs_at_once(backend);
  Rotation rotation(problem, backend, stream);
  const RunTimer timer = given ? given : time_by_stream(backend.device(), stream);
  const auto run = [&](const Candidate& candidate) {
    backend.choose(problem, candidate.algorithm);
    return timer([&] {
      for (int i = 0; i < at_once; ++i) rotation.next().run(backend);
    });
  };
  for (const auto& candidate : all) run(candidate);  // warm-up: creates what later runs reuse
  for (int round = 1;; ++round) {
    for (auto& candidate : all) candidate.runs.push_back(run(candidate));
    const double best = least_median(all), spent = round * best;
    const double hopeless = round == 1 ? 3 : 1.5;  // a single run may have been disturbed
    std::erase_if(all, [&](const Candidate& candidate) { return candidate.shortest() > hopeless * best; });
    if (round == most || (spent >= enough && round >= few) || (spent > much && round > 1) ||
        (until_one_is_left && all.size() == 1))
      return;
  }
}

/// Sorts problems by how often they may be halved.
class HalvesFirst {
 public:
  explicit HalvesFirst(const Backend& backend) : backend_(backend) {}

  /// Adds a problem and its halves, and returns the number of its group.
  std::size_t add(const ConvProblem& problem) {
    if (const auto known = group_of_.find(problem); known != group_of_.end()) return known->second;
    std::size_t group = 0;
    const auto algorithms = backend_.algorithms(problem);
    if (std::find(algorithms.begin(), algorithms.end(), two_halves) != algorithms.end())
      for (const ConvProblem& half : problem.halves()) group = std::max(group, add(half) + 1);
    group_of_[problem] = group;
    if (groups.size() <= group) groups.resize(group + 1);
    groups[group].push_back(problem);
    return group;
  }

  std::vector<std::vector<ConvProblem>> groups;

 private:
  const Backend& backend_;
  std::unordered_map<ConvProblem, std::size_t, ConvProblemHash> group_of_;
};

}  // namespace

std::vector<std::vector<ConvProblem>> halves_first(const Backend& backend, std::span<const ConvProblem> problems) {
  HalvesFirst sorted(backend);
  for (const ConvProblem& problem : problems) sorted.add(problem);
  return std::move(sorted.groups);
}

Timing time_by_clock(const std::function<void()>& run) {
  const Stopwatch watch;
  run();
  return watch.time();
}

RunTimer time_by_stream(Device& device, Stream stream) {
  if (device.host()) return time_by_clock;
  return [&device, stream](const std::function<void()>& run) {
    const Event start = device.mark(stream);
    run();
    const Event end = device.mark(stream);
    device.finish(stream);
    return Timing{device.seconds(start, end), 0};
  };
}

std::string_view measure_fastest(Backend& backend, Stream stream, const ConvProblem& problem, const RunTimer& timer) {
  constexpr double doubt = 0.97;
  std::vector<Candidate> all;
  for (const auto algorithm : backend.algorithms(problem)) all.push_back({algorithm});
  require(!all.empty(), "the backend must have an algorithm to choose for the problem");
  race(all, problem, backend, stream, timer, true);
  const double best = least_median(all);
  const auto fastest = std::find_if(all.begin(), all.end(),
                                    [&](const Candidate& candidate) { return doubt * candidate.median() <= best; });
  backend.choose(problem, fastest->algorithm);
  backend.forget_tried();
  return fastest->algorithm;
}

double time_algorithm(Backend& backend, Stream stream, const ConvProblem& problem, std::string_view algorithm,
                      const RunTimer& timer) {
  std::vector<Candidate> one{{algorithm}};
  race(one, problem, backend, stream, timer, false);
  return one.front().median() / runs_at_once(backend);
}

}  // namespace partita
