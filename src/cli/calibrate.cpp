#include "machine_files.hpp"
#include "partita/base/error.hpp"
#include "partita/train/measure_machine.hpp"
#include "text_file.hpp"

#include <filesystem>

namespace partita::cli {

namespace {

MeasureOptions measure_options(const Options& options) {
  MeasureOptions measure;
  measure.backend = options.trainer.backend;
  measure.threads = options.trainer.threads;
  measure.kernel_folder = options.trainer.kernel_folder;
  return measure;
}

/// What is measured already, if it is of this machine.
KernelTimes known_times(const Options& options, const std::string& where, bool speaks) {
  const std::string path = times_path(options.out);
  if (!std::filesystem::exists(path)) return KernelTimes(where);
  KernelTimes times = KernelTimes::parse(read_text("--out", path), path);
  if (times.where() == where) return times;
  if (speaks) fmt::print("note       {} held times of \"{}\"; it begins anew\n", path, times.where());
  return KernelTimes(where);
}

}  // namespace

int calibrate(const Options& options, const ModelFactory& factory, const std::shared_ptr<Communicator>& world) {
  const bool first = world->rank() == 0;
  const MeasureOptions measure = measure_options(options);
  KernelTimes times;
  std::vector<std::pair<std::string, Plan>> plans;
  together(*world, [&] {
    const Model model = make_model(options, factory);
    const Workload workload = make_workload(options);
    for (const auto& [name, strategy] : make_strategies(options, world->size()))
      plans.emplace_back(name, bind(model, strategy, workload));
    if (first) check_writable("--out", options.out);
    times = known_times(options, place_of_times(measure, options.trainer.dtype), first);
  });
  Machine machine = measure_machine(measure, *world);
  machine.name = times.where();
  if (first)
    fmt::print("machine    {}: {} level{}, {:.3g} Gflop/s and {:.3g} GB/s a rank\n", machine.name,
               machine.levels.size(), machine.levels.size() == 1 ? "" : "s", machine.arithmetic.value / 1e9,
               machine.memory_bandwidth.value / 1e9);
  for (const auto& [name, plan] : plans) {
    const auto before = times.all().size();
    // More ranks than there are here: they are measured in turns, as far as their work is another.
    for (int done = 0; done < plan.ranks(); done += world->size())
      times = measure_layers(plan, (done + world->rank()) % plan.ranks(), measure, times, *world);
    if (first)
      fmt::print("kernels    {}: {} measured, {} in all\n", name, times.all().size() - before, times.all().size());
  }
  together(*world, [&] {
    if (!first) return;
    write_text("--out", options.out, machine.print());
    write_text("--out", times_path(options.out), times.print());
    fmt::print("wrote      {} and {}\n", options.out, times_path(options.out));
  });
  return 0;
}

}  // namespace partita::cli
