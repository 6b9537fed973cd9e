#include "machine_files.hpp"

#include "text_file.hpp"

#include <filesystem>

namespace partita::cli {

std::string times_path(const std::string& machine) { return machine + ".times"; }

MachineFiles load_machine(const Options& options) {
  if (options.machine.empty()) return {default_machine(), {}, ""};
  MachineFiles files{Machine::load(options.machine), {}, ""};
  const std::string path = times_path(options.machine);
  if (!std::filesystem::exists(path)) return files;
  KernelTimes times = KernelTimes::parse(read_text("--machine", path), path);
  if (times.where() == files.machine.name)
    files.times = std::move(times);
  else
    files.note = fmt::format("{} is not used: its times are of \"{}\", the machine is \"{}\"", path, times.where(),
                             files.machine.name);
  return files;
}

}  // namespace partita::cli
