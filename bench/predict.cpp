// Measured step times of many models under many strategies beside the cost model's, on 2 ranks. The machine and the local work of
// each layer are measured first, apart from each other; nothing is fitted to a step.
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin.hpp"
#include "partita/strategies/balance.hpp"
#include "partita/train/kernel_choice.hpp"
#include "partita/train/measure_machine.hpp"
#include "partita/train/timed_steps.hpp"
#include "support/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

using namespace partita;

namespace {

struct Subject {
  std::string name;
  Model model;
  Index batch = 1;
  std::vector<std::string> strategies;
};

/// One strategy by a short name.
Strategy strategy_of(const std::string& name) {
  const auto alike = [](const std::string& grid, const std::string& output) {
    Strategy s(grid);
    if (!output.empty()) s.layer("*", {.output = output});
    return s;
  };
  const auto staged = [&](const std::string& kind, int microbatches) {
    Strategy s;
    return s.stages(2).schedule(kind, microbatches);
  };
  static const std::map<std::string, std::function<Strategy()>> all{
      {"sample", [&] { return alike("data=2", "N@data"); }},
      {"sample, 4 microbatches", [&] { return alike("data=2", "N@data").schedule("gpipe", 4); }},
      {"sample, distributed update", [&] { return alike("data=2", "N@data").update(Strategy::Update::distributed); }},
      {"spatial H", [&] { return alike("y=2", "N H@y"); }},
      {"spatial W", [&] { return alike("x=2", "N W@x"); }},
      {"channels", [&] { return alike("c=2", "N C@c"); }},
      {"stationary-w", [&] { return alike("c=2", "N C@c").layer("*", {.algorithm = "stationary-w"}); }},
      {"columns", [&] { return alike("c=2", "N C@c").layer("*", {.weights = "F@c"}); }},
      {"rows", [&] { return alike("c=2", "N").layer("*", {.weights = "C@c"}); }},
      {"whole", [&] { return alike("data=2", ""); }},
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
                                        "sample, distributed update",
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
      "sample", "sample, distributed update", "columns", "rows", "channels", "whole", "1f1b, 4", "1f1b, 8"};
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
          {"unet3d", sized("unet3d", 32, 0.5), 4, images},
          {"mesh-tangling", sized("mesh-tangling", 128, 0.25), 4, images}};
}

struct Row {
  double measured = 0, predicted = 0;
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

/// Spearman's rank correlation of predicted and measured times.
double rank_correlation(const std::vector<Row>& rows) {
  std::vector<double> measured, predicted;
  for (const auto& row : rows) {
    measured.push_back(row.measured);
    predicted.push_back(row.predicted);
  }
  const auto a = ranks_of(measured), b = ranks_of(predicted);
  const double mean = (static_cast<double>(rows.size()) - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return ab / std::sqrt(aa * bb);
}

/// What is lost by taking the strategy that is predicted best: its measured time over the best measured one.
double regret(const std::vector<Row>& rows) {
  const auto less = [](double Row::*time) { return [time](const Row& a, const Row& b) { return a.*time < b.*time; }; };
  const auto pick = std::min_element(rows.begin(), rows.end(), less(&Row::predicted));
  const auto best = std::min_element(rows.begin(), rows.end(), less(&Row::measured));
  return pick->measured / best->measured - 1;
}

/// What rank `rank` computes under a plan, added to what is known.
void add_times(KernelTimes& times, const Plan& plan, int rank, const MeasureOptions& options, bench::SteadyCores& cores,
               Communicator& world) {
  KernelTimes found;
  cores.run([&] { found = measure_layers(plan, rank, options, times, world); });
  times = found;
}

/// The median of a few measurements, each made while the cores lay as at first.
StepTimes step_times(const Subject& subject, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, bench::SteadyCores& cores,
                     const std::shared_ptr<Communicator>& world) {
  std::array<StepTimes, 3> times;
  for (auto& each : times)
    cores.run([&] { each = time_steps(subject.model, strategy, workload, options, 1.0, world); });
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.median < b.median; });
  return times[1];
}

Row measure(const Subject& subject, const std::string& name, const Machine& machine, KernelTimes& times,
            const MeasureOptions& options, bench::SteadyCores& cores, const std::shared_ptr<Communicator>& world) {
  const Workload workload{.batch = subject.batch, .optimizer = {}};
  Strategy strategy = strategy_of(name);
  if (strategy.stage_count() > 1) {  // boundaries by measured times
    Strategy serial;
    serial.schedule("gpipe", strategy.microbatches());
    add_times(times, bind(subject.model, serial, workload), 0, options, cores, *world);
    strategy = balanced(subject.model, strategy, workload, machine, times);
  }
  const Plan plan = bind(subject.model, strategy, workload);
  add_times(times, plan, world->rank(), options, cores, *world);
  const Cost cost = estimate(plan, machine, times);
  const StepTimes steps = step_times(subject, strategy, workload, options, cores, world);
  const Row row{steps.median, cost.seconds};
  const auto& p = cost.parts;
  if (world->rank() == 0)
    fmt::print(
        R"({{"subject": "predict", "case": "{} {}", "ranks": 2, "seconds": {:.4e}, "spread": {:.3f}, "predicted": {:.4e}, )"
        R"("error": {:.4f}, "compute": {:.3e}, "halo": {:.3e}, "redistribution": {:.3e}, "product": {:.3e}, )"
        R"("collective": {:.3e}, "transfers": {:.3e}, "sums": {:.3e}, "update": {:.3e}, "bubble": {:.3e}, "ratio": {:.3f}, "against": "the cost model"}})"
        "\n",
        subject.name, name, row.measured, steps.spread, row.predicted, row.error(), p.passes.compute, p.passes.halo,
        p.passes.redistribution, p.passes.product, p.passes.collective, p.transfers, p.sums, p.update, p.bubble,
        row.predicted / row.measured);
  std::fflush(stdout);
  return row;
}

void summarize(const std::string& what, const std::vector<Row>& rows, bool one_model) {
  std::vector<double> errors;
  for (const auto& row : rows) errors.push_back(std::abs(row.error()));
  std::sort(errors.begin(), errors.end());
  fmt::print(R"({{"subject": "predict", "case": "summary of {}", "ranks": 2, "seconds": 0, "spread": 0, "rows": {}, )"
             R"("median_error": {:.4f}, "worst_error": {:.4f})",
             what, rows.size(), errors[errors.size() / 2], errors.back());
  if (one_model) fmt::print(R"(, "rank_correlation": {:.3f}, "regret": {:.4f})", rank_correlation(rows), regret(rows));
  fmt::print("}}\n");
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  if (world->size() != 2) session.abort("bench/predict runs on 2 ranks", 2);
  bench::pin(world->rank());
  MeasureOptions options;
  options.kernel_folder = default_kernel_folder();
  options.budget = 4;
  bench::SteadyCores cores(MPI_COMM_WORLD);
  Machine machine = measure_machine(options, *world);
  cores.run([&] { machine.levels = measure_levels(2, Index{32} << 20, *world); });
  if (argc > 2 && world->rank() == 0) fmt::print(stderr, "{}", machine.print());
  KernelTimes times;
  std::vector<Row> all;
  for (const auto& subject : subjects()) {
    if (argc > 1 && subject.name != argv[1]) continue;
    std::vector<Row> rows;
    for (const auto& name : subject.strategies)
      rows.push_back(measure(subject, name, machine, times, options, cores, world));
    if (world->rank() == 0) summarize(subject.name, rows, true);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  if (world->rank() == 0 && !all.empty()) summarize("all", all, false);
  if (world->rank() == 0)
    fmt::print(stderr, "{} measurements were repeated, since cores had been moved; a sum of 64 KiB took {:.0f} us\n",
               cores.thrown(), 1e6 * cores.sum());
  return 0;
}
