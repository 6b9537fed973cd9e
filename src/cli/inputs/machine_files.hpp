#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/options.hpp"
#include "src/train/measure/layer_times.hpp"

namespace partita::cli {

/// A machine with the measured times of its kernels.
struct MachineFiles {
  Machine machine;
  KernelTimes times;
  std::string note;  ///< what to know of them: existing times that are not used, one peak for all types; "" if nothing
};
/// Adds a note.
void add_note(MachineFiles& files, const std::string& note);

/// The path of the kernel times that belong to a machine file.
std::string times_path(const std::string& machine);

/// The workload that the options describe.
Workload make_workload(const Options& options);
/// The memory limit of a rank in bytes, by the same rule in every verb: the value of --memory-limit, else the memory of
/// the machine that --machine names, else 0 for no limit. The memory of the default machine is only assumed, so it is
/// no limit.
Index limit_of(const Options& options, const Machine& machine);
/// How to measure kernels, from --backend, --threads and --kernels. The first function leaves --device out, which needs
/// all ranks: the second one is collective.
MeasureOptions measure_options(const Options& options);
MeasureOptions measure_options(const Options& options, Communicator& world);
/// Prints a note on standard error if kernels will be chosen by rule because measured choices cannot be stored. Prints
/// nothing with --kernels "", which asks for no measuring.
void note_kernels(const MeasureOptions& how, DType dtype);

/// Loads the machine that --machine names, or the default machine. Kernel times of another machine are ignored and
/// reported in `note`; of the others, those of the chosen backend are used.
MachineFiles load_machine(const Options& options);

}  // namespace partita::cli
