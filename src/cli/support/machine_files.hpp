#pragma once

#include "src/cli/support/options.hpp"
#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/train/measure/layer_times.hpp"
#include "src/cli/support/text_file.hpp"

namespace partita::cli {

/// A machine with the times of its kernels.
struct MachineFiles {
  Machine machine;
  KernelTimes times;
  std::string note;  ///< why times that are there are not used; "" if there is nothing to say
};

/// Where a machine file's times are: beside it.
std::string times_path(const std::string& machine);

/// The workload that the options describe.
Workload make_workload(const Options& options);
/// Bytes that a rank may hold, alike in every verb: what --memory-limit says, else the memory of a machine that was named, else 0 for
/// any: the default machine's is assumed, and binds nobody.
Index limit_of(const Options& options, const Machine& machine);
/// The strategy with the boundaries of stages placed by the machine's prices where it leaves them open: so that a rank holds at most
/// limit_of(), or by the cut of those looked at that passes it least, of which check_fits() says what would help.
Strategy with_stages_placed(const Options& options, const Model& model, const Strategy& strategy,
                            const MachineFiles& files);

/// The files of strategies, and of the machine, that the options name.
std::vector<NamedFile> strategy_files(const Options& options);
/// How --backend, --threads and --kernels ask for times to be measured.
MeasureOptions measure_options(const Options& options);
/// Says on standard error if kernels will be chosen by rule, since choices cannot be kept; not where nobody wants them kept.
void note_kernels(const MeasureOptions& how, DType dtype);

/// What --machine names; without it the default machine. Times of another machine are left aside, with a note, and of
/// those that are there the backend's are taken.
MachineFiles load_machine(const Options& options);

}  // namespace partita::cli
