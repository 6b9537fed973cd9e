// Compares measured step times with those of the cost model, for many models and strategies on 2 ranks, and for the
// strategy that the planner chooses. The machine is measured first. Then the local work of each layer and whole steps
// are measured separately and in turns. No constant is fitted to step times.
//   build/mpiexec -n 2 build/bench/predict [MODEL [verbose]]
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/measure/measure_machine.hpp"
#include "src/train/measure/timed_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

using namespace partita;

namespace {

struct Subject {
  std::string name;
  Model model;
  Index batch = 1;
  std::vector<std::string> strategies;

  Workload workload() const { return {.batch = batch, .optimizer = {}}; }
};

/// The strategy with a short name.
Strategy strategy_of(const std::string& name) {
  static const auto uniform = [](const std::string& grid, const std::string& output) {
    Strategy s(grid);
    if (!output.empty()) s.layer("*", {.output = output});
    return s;
  };
  static const auto staged = [](const std::string& kind, int microbatches) {
    Strategy s;
    return s.stages(2).schedule(kind, microbatches);
  };
  static const std::map<std::string, std::function<Strategy()>> all{
      {"sample", [&] { return uniform("data=2", "N@data"); }},
      {"sample, 4 microbatches", [&] { return uniform("data=2", "N@data").schedule("gpipe", 4); }},
      {"sample, sharded optimizer",
       [&] { return uniform("data=2", "N@data").optimizer_state(Strategy::OptimizerState::sharded); }},
      {"spatial H", [&] { return uniform("y=2", "N H@y"); }},
      {"spatial W", [&] { return uniform("x=2", "N W@x"); }},
      {"channels", [&] { return uniform("c=2", "N C@c"); }},
      {"stationary-w", [&] { return uniform("c=2", "N C@c").layer("*", {.algorithm = "stationary-w"}); }},
      {"columns", [&] { return uniform("c=2", "N C@c").layer("*", {.weights = "F@c"}); }},
      {"rows", [&] { return uniform("c=2", "N").layer("*", {.weights = "C@c"}); }},
      {"whole", [&] { return uniform("data=2", ""); }},
      {"gpipe, 4", [&] { return staged("gpipe", 4); }},
      {"1f1b, 4", [&] { return staged("1f1b", 4); }},
      {"1f1b, 8", [&] { return staged("1f1b", 8); }},
      {"zb-h1, 4", [&] { return staged("zb-h1", 4); }},
      {"chimera, 4", [&] { return staged("chimera", 4); }},
  };
  return all.at(name)();
}

std::vector<Subject> subjects() {
  const std::vector<std::string> images{"sample",
                                        "sample, sharded optimizer",
                                        "sample, 4 microbatches",
                                        "spatial H",
                                        "spatial W",
                                        "channels",
                                        "whole",
                                        "gpipe, 4",
                                        "1f1b, 4",
                                        "zb-h1, 4",
                                        "chimera, 4"};
  const std::vector<std::string> products{
      "sample", "sample, sharded optimizer", "columns", "rows", "channels", "whole", "1f1b, 4", "1f1b, 8"};
  const auto sized = [](const char* name, Index extent, double width) {
    ModelSize size;
    size.extent = extent;
    size.width = width;
    return builtin_model(name, size);
  };
  ModelSize wide;
  wide.widths = {1024, 1024, 1024, 1024};
  return {{"fashion-cnn", sized("fashion-cnn", 0, 1), 64, images},
          {"mlp", builtin_model("mlp", wide), 256, products},
          {"resnet18", sized("resnet18", 64, 1), 8, images},
          {"vgg16", sized("vgg16", 64, 0.5), 8, images},
          {"unet3d", sized("unet3d", 32, 0.25), 4, images},
          {"mesh-tangling", sized("mesh-tangling", 128, 0.25), 4, images}};
}

struct Row {
  double measured = 0, predicted = 0;  // seconds per step
  double even = 0, odd = 0;            // measured in the even and in the odd rounds: shows how repeatable the time is
  double error() const { return predicted / measured - 1; }
};

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values)
    ranks.push_back(
        static_cast<double>(std::count_if(values.begin(), values.end(), [&](double v) { return v < value; })) +
        (static_cast<double>(std::count(values.begin(), values.end(), value)) - 1) / 2);
  return ranks;
}

/// Spearman's rank correlation of two times of each row.
double rank_correlation(const std::vector<Row>& rows, double Row::*one, double Row::*other) {
  std::vector<double> first, second;
  for (const auto& row : rows) {
    first.push_back(row.*one);
    second.push_back(row.*other);
  }
  const auto a = ranks_of(first), b = ranks_of(second);
  const double mean = (static_cast<double>(rows.size()) - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return ab / std::sqrt(aa * bb);
}

double least_measured(const std::vector<Row>& rows) {
  const auto less = [](const Row& a, const Row& b) { return a.measured < b.measured; };
  return std::min_element(rows.begin(), rows.end(), less)->measured;
}

/// The loss from choosing the strategy that is predicted to be fastest: its measured time over the least measured time,
/// minus 1.
double regret(const std::vector<Row>& rows) {
  const auto less = [](const Row& a, const Row& b) { return a.predicted < b.predicted; };
  return std::min_element(rows.begin(), rows.end(), less)->measured / least_measured(rows) - 1;
}

/// A strategy to measure, with the plan that it binds to.
struct Case {
  std::string name;
  Strategy strategy;
  Plan plan;
};

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

/// The middle value.
double median(const std::vector<double>& values) { return sorted(values)[values.size() / 2]; }

/// Returns for each kernel the medians of its times over all rounds.
KernelTimes median(const std::vector<KernelTimes>& rounds) {
  KernelTimes all = rounds.front();
  const std::string backend = all.backend();
  all.use("");  // so that keys contain the name of the backend
  for (const auto& [of, times] : rounds.front().all()) {
    const auto middle = [&, key = of](double LayerTimes::*part) {
      std::vector<double> values;
      for (const auto& round : rounds) values.push_back(round.all().at(key).*part);
      return median(values);
    };
    all.set(of.first, of.second,
            {middle(&LayerTimes::forward), middle(&LayerTimes::backward), middle(&LayerTimes::backward_data),
             middle(&LayerTimes::backward_filter)});
  }
  all.use(backend);
  return all;
}

/// The median relative difference between the times of the even and of the odd rounds.
double error_of_rounds(const std::vector<Row>& rows) {
  std::vector<double> errors;
  for (const auto& row : rows) errors.push_back(std::abs(row.even / row.odd - 1));
  return median(errors);
}

/// Measures the machine, the local work of layers, and steps.
class Measurements {
 public:
  Measurements(const MeasureOptions& options, std::shared_ptr<Communicator> world)
      : options_(options),
        world_(std::move(world)),
        cores_(MPI_COMM_WORLD),
        machine_(measure_machine(options, *world_)) {
    machine_.levels = steady_levels();
  }
  const Machine& machine() const { return machine_; }
  const bench::SteadyCores& cores() const { return cores_; }

  /// Returns the strategies of a subject and, last, the one that the planner chooses. While the chosen plan has kernels
  /// that were not measured, those are measured too, and the planner chooses again. If that does not end after a few
  /// turns, because plans are close to each other, returns the cheapest plan that was chosen before.
  std::vector<Case> cases(const Subject& subject) {
    constexpr int turns = 3;
    KernelTimes alone;  // times on one rank, to place the stage boundaries
    std::vector<Case> all;
    for (const auto& name : subject.strategies)
      all.push_back(bound(subject, name, balanced(subject, strategy_of(name), alone)));
    std::vector<KernelTimes> each_round(rounds_to_plan);
    std::vector<Case> missing = all, chosen;
    for (int turn = 1;; ++turn) {
      const KernelTimes times = measure(subject, missing, each_round);
      Case planned = as_planned(subject, times);
      const bool known = ranks_to_measure(planned.plan, times).empty();
      if (known || turn > turns) {
        const auto cheaper = [&](const Case& a, const Case& b) {
          return estimate(a.plan, machine_, times).seconds < estimate(b.plan, machine_, times).seconds;
        };
        all.push_back(known ? std::move(planned) : *std::min_element(chosen.begin(), chosen.end(), cheaper));
        return all;
      }
      chosen.push_back(planned);
      missing = {std::move(planned)};
    }
  }

  /// Measures the local work of each rank and the steps of all cases in turns, so that other load on the machine
  /// affects both equally.
  std::vector<Row> rows(const Subject& subject, const std::vector<Case>& cases) {
    std::vector<std::vector<double>> steps(cases.size());  // seconds in each round
    std::vector<StepTimer> timers;
    for (const auto& each : cases)
      timers.emplace_back(subject.model, each.strategy, subject.workload(), options_, *world_);
    std::vector<KernelTimes> each_round(rounds);
    const KernelTimes times = measure(subject, cases, each_round, [&](std::size_t which) {
      steps[which].emplace_back();
      cores_.run([&] { steps[which].back() = median(undisturbed_seconds(timers[which].run(step_budget))); });
    });
    std::vector<Row> rows;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::vector<double> halves[2];
      for (std::size_t round = 0; round < rounds; ++round) halves[round % 2].push_back(steps[i][round]);
      const Cost cost = estimate(cases[i].plan, machine_, times);
      if (world_->rank() == 0) print(subject.name + " " + cases[i].name, sorted(steps[i]), cost);
      rows.push_back({median(steps[i]), cost.seconds, median(halves[0]), median(halves[1])});
    }
    return rows;
  }

 private:
  static constexpr std::size_t rounds = 7, rounds_to_plan = 3;
  static constexpr double step_budget = 0.7;  // seconds per case and round

  static Case bound(const Subject& subject, const std::string& name, const Strategy& strategy) {
    return {name, strategy, bind(subject.model, strategy, subject.workload())};
  }
  Case as_planned(const Subject& subject, const KernelTimes& times) const {
    PlannerOptions options;
    options.ranks = world_->size();
    const auto found = plan_strategies(subject.model, subject.workload(), machine_, times, options);
    return bound(subject, "as planned", found.front().strategy);
  }
  /// Measures the local work of each rank that `times`, one for each round, lack, and returns the medians over the
  /// rounds. Each round goes through all cases: if each case were measured on its own, other load on the machine could
  /// favor one of them. Calls `beside` with each case in each round.
  KernelTimes measure(const Subject& subject, const std::vector<Case>& cases, std::vector<KernelTimes>& times,
                      const std::function<void(std::size_t)>& beside = {}) {
    MeasureOptions options = options_;
    options.budget = options_.budget / rounds;
    for (std::size_t round = 0; round < times.size(); ++round)
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const std::size_t which = (round + i) % cases.size();  // another case is first in each round
        add_times(cases[which].plan, world_->rank(), options, times[round]);
        if (beside) beside(which);
        if (world_->rank() == 0)
          fmt::print(stderr, "{}{}: round {} of {}, {} of {} strategies; {} repeated so far\n", subject.name,
                     beside ? "" : ", for the planner", round + 1, times.size(), i + 1, cases.size(), cores_.thrown());
      }
    return median(times);
  }
  /// Measures the kernels that rank `rank` computes under a plan and that `times` lacks.
  void add_times(const Plan& plan, int rank, const MeasureOptions& options, KernelTimes& times) {
    KernelTimes found;
    cores_.run([&] { found = measure_layers(plan, rank, options, times, *world_); });
    times = found;
  }
  /// Places the stage boundaries of the strategy by measured times.
  Strategy balanced(const Subject& subject, const Strategy& strategy, KernelTimes& times) {
    if (strategy.stage_count() == 1) return strategy;
    Strategy serial;
    serial.schedule("gpipe", strategy.microbatches());
    add_times(bind(subject.model, serial, subject.workload()), 0, options_, times);
    return partita::place_stages(subject.model, strategy, subject.workload(), machine_, times);
  }
  /// Measures the network levels. Each point is the median of a few measurements, since a virtual machine may have
  /// moved its cores during one of them.
  std::vector<Level> steady_levels() {
    std::array<std::vector<Level>, 5> each;
    for (auto& levels : each) cores_.run([&] { levels = measure_levels(world_->size(), longest_message, *world_); });
    std::vector<Level> levels = each[0];
    for (std::size_t l = 0; l < levels.size(); ++l)
      for (auto& [verb, curve] : levels[l].verbs)
        for (std::size_t p = 0; p < curve.points.size(); ++p) {
          std::vector<double> seconds;
          for (const auto& one : each) seconds.push_back(one[l].verbs.at(verb).points[p].second);
          curve.points[p].second = median(seconds);
        }
    for (Level& level : levels) {  // derived as measure_levels() does
      const auto& points = level.verbs.at({Verb::exchange, 2}).points;
      level.latency.value = points.front().second;
      level.bandwidth.value = points.back().first / points.back().second;
    }
    return levels;
  }
  /// Prints a row. `steps` has the median of each round, sorted.
  static void print(const std::string& what, const std::vector<double>& steps, const Cost& cost) {
    const double measured = steps[rounds / 2], spread = (steps[rounds * 3 / 4] - steps[rounds / 4]) / measured;
    const auto& p = cost.parts;
    fmt::print(
        R"({{"subject": "predict", "case": "{}", "ranks": 2, "seconds": {:.4e}, "spread": {:.3f}, "predicted": {:.4e}, )"
        R"("error": {:.4f}, "compute": {:.3e}, "halo": {:.3e}, "redistribution": {:.3e}, "product": {:.3e}, )"
        R"("collective": {:.3e}, "transfers": {:.3e}, "sums": {:.3e}, "update": {:.3e}, "bubble": {:.3e}, "ratio": {:.3f}, "against": "the cost model"}})"
        "\n",
        what, measured, spread, cost.seconds, cost.seconds / measured - 1, p.passes.compute, p.passes.halo,
        p.passes.redistribution, p.passes.product, p.passes.collective, p.transfers, p.grad_reduce, p.update, p.bubble,
        cost.seconds / measured);
    std::fflush(stdout);
  }

  MeasureOptions options_;
  std::shared_ptr<Communicator> world_;
  bench::SteadyCores cores_;
  Machine machine_;
};

void summarize(const std::string& what, const std::vector<Row>& rows, const std::string& more) {
  std::vector<double> errors;
  for (const auto& row : rows) errors.push_back(std::abs(row.error()));
  std::sort(errors.begin(), errors.end());
  fmt::print(R"({{"subject": "predict", "case": "summary of {}", "ranks": 2, "seconds": 0, "spread": 0, "rows": {}, )"
             R"("median_error": {:.4f}, "worst_error": {:.4f}{}}})"
             "\n",
             what, rows.size(), errors[errors.size() / 2], errors.back(), more);
  std::fflush(stdout);
}

/// Measures all strategies of a model, and the planner's if that is not one of them.
std::vector<Row> rows_of(const Subject& subject, Measurements& measurements, bool prints) {
  std::vector<Case> cases = measurements.cases(subject);
  const Case planned = cases.back();
  if (prints) fmt::print(stderr, "{}, planned:\n{}", subject.name, planned.strategy.print());
  const auto as_planned = [&](const Case& each) { return each.plan.hash() == planned.plan.hash(); };
  const auto at = static_cast<std::size_t>(std::find_if(cases.begin(), cases.end(), as_planned) - cases.begin());
  cases.resize(std::max(at + 1, subject.strategies.size()));
  const auto all = measurements.rows(subject, cases);
  const std::vector<Row> given(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(subject.strategies.size()));
  const double lost = std::max(all[at].measured / least_measured(given) - 1, 0.0);
  if (prints)
    summarize(subject.name, all,
              fmt::format(R"(, "rank_correlation": {:.3f}, "regret": {:.4f}, "plan": "{}", "regret_of_plan": {:.4f}, )"
                          R"("correlation_of_rounds": {:.3f}, "error_of_rounds": {:.4f})",
                          rank_correlation(given, &Row::measured, &Row::predicted), regret(given), cases[at].name, lost,
                          rank_correlation(given, &Row::even, &Row::odd), error_of_rounds(given)));
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  if (world->size() != 2) session.abort("bench/predict needs 2 ranks: start it with -n 2", 2);
  bench::pin(world->rank());
  MeasureOptions options;
  options.kernel_folder = default_kernel_folder();
  options.budget = 4;
  const bool prints = world->rank() == 0;
  std::optional<Measurements> measurements;
  // If the cores move for good, the machine and the model are measured again: times are comparable in one state alone.
  const auto measured = [&](const Subject& subject) {
    constexpr int most = 3;
    for (int attempt = 1;; ++attempt) try {
        if (!measurements) {
          measurements.emplace(options, world);
          if (argc > 2 && prints) fmt::print(stderr, "{}", measurements->machine().print());
        }
        return rows_of(subject, *measurements, prints);
      } catch (const bench::CoresMoved& moved) {
        if (attempt == most) throw;
        if (prints) fmt::print(stderr, "{}; {} is measured again\n", moved.what(), subject.name);
        measurements.reset();
      }
  };
  std::vector<Row> all;
  for (const auto& subject : subjects()) {
    if (argc > 1 && subject.name != argv[1]) continue;
    const auto rows = measured(subject);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (prints && !all.empty()) summarize("all", all, "");
  if (prints && measurements)
    fmt::print(stderr, "{} measurements were repeated because cores had moved; a sum of 64 KiB took {:.0f} us\n",
               measurements->cores().thrown(), 1e6 * measurements->cores().sum());
  return 0;
}
