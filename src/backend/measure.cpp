#include "partita/backend/measure.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/error.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace partita {

namespace {

/// Arrays for one problem, filled with ones.
class Arrays {
 public:
  explicit Arrays(const ConvProblem& problem) : pass_(problem.pass) {
    static constexpr std::string_view x_names = "NCDHW", w_names = "FCDHW";
    const auto unused = static_cast<std::size_t>(3 - problem.spatial);
    const auto array = [&](std::string_view names, Index first, Index second, Index ConvProblem::Side::*extent) {
      Shape shape{{names[0], first}, {names[1], second}};
      for (std::size_t d = unused; d < 3; ++d) shape.push_back({names[d + 2], problem.sides[d].*extent});
      Tensor tensor(DType::f32, shape.names(), Box(shape), allocator_, MemoryClass::workspace, Fill::none);
      std::fill_n(tensor.as<float>(), tensor.volume(), 1.0F);
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
      bias_ = Tensor(DType::f32, "F", Box(filters), allocator_, MemoryClass::workspace);
    }
    require(ConvProblem(pass_, windows_, x_.box(), w_.box(), y_.box(), static_cast<bool>(bias_)) == problem,
            "the arrays make the same problem");
  }

  void run(Backend& backend) const {
    switch (pass_) {
      case ConvPass::forward: return backend.conv_forward(windows_, x_, w_, bias_, y_, {});
      case ConvPass::backward_data: return backend.conv_backward_data(windows_, y_, w_, x_, {});
      case ConvPass::backward_filter: return backend.conv_backward_filter(windows_, x_, y_, w_, Write::over, {});
    }
  }

 private:
  ConvPass pass_;
  std::shared_ptr<Allocator> allocator_ = std::make_shared<Allocator>();
  std::vector<Window> windows_;
  Tensor x_, w_, y_, bias_;
};

Timing timed(const Arrays& arrays, Backend& backend) {
  const Stopwatch watch;
  arrays.run(backend);
  return watch.time();
}

/// Seconds of the shortest of several runs: others may lengthen a run, never shorten it. Fewer are made of what takes long: two of what
/// takes a second, and one of what cannot win against `best`, whatever its core did for others meanwhile. One more comes before them all.
double shortest(const Arrays& arrays, Backend& backend, double best) {
  constexpr double hopeless = 1.5, enough = 0.05, much = 1;  // the last two in seconds
  constexpr int few = 3, most = 9;
  double least = timed(arrays, backend).seconds, all = 0;  // the first makes what the others find made
  for (int run = 1;; ++run) {
    const Timing time = timed(arrays, backend);
    least = std::min(least, time.seconds);
    all += time.seconds;
    const bool beaten = time.seconds - time.lost > hopeless * best;
    if (run == most || (all >= enough && (run >= few || beaten || (run > 1 && all > much)))) return least;
  }
}

}  // namespace

std::string_view measure_fastest(Backend& backend, const ConvProblem& problem) {
  constexpr double doubt = 0.97;
  const Arrays arrays(problem);
  std::string_view fastest;
  double best = std::numeric_limits<double>::infinity();
  for (const auto algorithm : backend.algorithms(problem)) {
    backend.choose(problem, algorithm);
    const double time = shortest(arrays, backend, best);
    if (!fastest.empty() && time > doubt * best) continue;
    fastest = algorithm;
    best = time;
  }
  backend.choose(problem, fastest);
  return fastest;
}

}  // namespace partita
