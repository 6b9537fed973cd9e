#include "src/cli/inputs/machine_files.hpp"

#include "src/cli/files/text_file.hpp"
#include "src/train/kernels/kernel_choice.hpp"

#include <cstdio>
#include <filesystem>

namespace partita::cli {

std::string times_path(const std::string& machine) { return machine + ".times"; }

Workload make_workload(const Options& options) {
  return {options.trainer.batch, options.trainer.dtype, options.trainer.training, options.trainer.optimizer};
}

Index limit_of(const Options& options, const Machine& machine) {
  if (options.trainer.memory_limit > 0) return options.trainer.memory_limit;
  return options.machine.empty() ? 0 : static_cast<Index>(machine.memory.value);
}

MeasureOptions measure_options(const Options& options) {
  MeasureOptions measure;
  measure.backend = options.trainer.backend;
  measure.threads = options.trainer.threads;
  measure.kernel_folder = options.trainer.kernel_folder;
  return measure;
}

MeasureOptions measure_options(const Options& options, Communicator& world) {
  MeasureOptions measure = measure_options(options);
  measure.device = make_measured_device(options.device, world);
  measure.tf32 = options.device.tf32;
  return measure;
}

void note_kernels(const MeasureOptions& how, DType dtype) {
  if (how.kernel_folder.empty() || dtype != DType::f32) return;
  if (const auto why = KernelCache::complaint(how.kernel_folder); !why.empty())
    fmt::print(stderr, "note: kernels are chosen by rule, without measuring: {}\n", why);
}

void add_note(MachineFiles& files, const std::string& note) { files.note += (files.note.empty() ? "" : "; ") + note; }

namespace {

/// Makes all computing take `factor` times as long.
void scale_compute(MachineFiles& files, double factor) {
  if (factor == 1) return;
  Machine& machine = files.machine;
  const std::string note = fmt::format("; {} times as slow by --scale-compute", factor);
  std::vector<Constant*> rates{&machine.arithmetic, &machine.memory_bandwidth, &machine.socket.memory_bandwidth};
  for (auto& [type, peak] : machine.peaks) rates.push_back(&peak);
  for (Constant* rate : rates) {
    rate->value /= factor;
    rate->source += note;
  }
  machine.kernel.value *= factor;
  machine.kernel.source += note;
  files.times.scale(factor);
  add_note(files, fmt::format("all computing times are multiplied by {} (--scale-compute)", factor));
}

MachineFiles load_unscaled(const Options& options) {
  if (options.machine.empty()) return {default_machine(), {}, ""};
  MachineFiles files{Machine::load(options.machine), {}, ""};
  const DType dtype = options.trainer.dtype;
  if (files.machine.peaks.empty() && dtype != DType::f32)
    add_note(files,
             fmt::format("{} gives one number for the arithmetic of all types, which is used for {}; give [arithmetic] "
                         "with a peak for each type to tell them apart",
                         options.machine, name(dtype)));
  const std::string path = times_path(options.machine);
  if (std::error_code error; !std::filesystem::exists(path, error)) return files;
  KernelTimes times = KernelTimes::parse(read_text("--machine", path), path);
  times.use(options.device.name == "cpu" ? backend_of_times(measure_options(options), options.trainer.dtype) : "cuda");
  if (times.where() == files.machine.name)
    files.times = std::move(times);
  else
    add_note(files, fmt::format("{} is not used: its times come from \"{}\", but the machine is \"{}\"", path,
                                times.where(), files.machine.name));
  return files;
}

}  // namespace

MachineFiles load_machine(const Options& options) {
  MachineFiles files = load_unscaled(options);
  scale_compute(files, options.scale_compute);
  return files;
}

}  // namespace partita::cli
