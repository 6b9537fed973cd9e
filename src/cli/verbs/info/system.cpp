#include "src/cli/verbs/info/system.hpp"

#include "partita/backend/cuda.hpp"
#include "partita/base/error.hpp"
#include "partita/device/memory.hpp"
#include "src/cli/output/conditions.hpp"
#include "src/system/host.hpp"
#include "src/train/kernels/kernel_choice.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

namespace partita::cli {

namespace {

namespace fs = std::filesystem;

/// The memory limit of this control group, e.g. of a container; nothing without one.
std::optional<Index> group_limit() {
  constexpr Index none = Index{1} << 60;  // version 1 writes a huge number
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const auto limit = number_in(path); limit && *limit < none) return limit;
  return std::nullopt;
}

Fact bytes(const std::string& name, const std::string& key, std::optional<Index> count, const char* without) {
  return {name, key, count ? print_bytes(*count) : without, count ? Json(*count) : Json()};
}

/// The names of NVIDIA's GPUs, from the driver's files.
std::vector<std::string> gpus() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream in(entry.path() / "information");
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("Model:")) names.push_back(line.substr(line.find_first_not_of(": \t", 6)));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What can compute, by the names that --device takes, and GPUs that cannot.
std::string devices() {
  std::string list = "cpu";
  const auto cards = cuda_cards();
  for (const CudaCard& card : cards)
    list += fmt::format(", cuda:{} ({}, {}, compute capability {}.{}, {} multiprocessors, at {})", card.number,
                        card.name, print_bytes(card.memory), card.major, card.minor, card.processors, card.bus);
  if (cards.empty())
    for (const auto& name : gpus())
      list += fmt::format(", {} (not used: {})", name,
                          have_cuda() ? "CUDA does not show it to this process" : "this build lacks CUDA");
  return list;
}

/// A resource limit: what holds now, and what it can be raised to.
Fact resource(const std::string& name, const std::string& key, int which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0) return {name, key, "unknown", Json()};
  const auto text = [](rlim_t value) { return value == RLIM_INFINITY ? "no limit" : fmt::format("{}", value); };
  return {name, key, fmt::format("{} (can be raised to {})", text(limit.rlim_cur), text(limit.rlim_max)),
          limit.rlim_cur == RLIM_INFINITY ? Json() : Json(limit.rlim_cur)};
}

/// Adds the size and the free part of the file system of shared memory.
void add_shared_memory(std::vector<Fact>& facts) {
  struct statvfs shared {};
  const bool known = statvfs("/dev/shm", &shared) == 0;
  const auto blocks = [&](auto count) {
    return known ? std::optional(static_cast<Index>(count) * static_cast<Index>(shared.f_frsize)) : std::nullopt;
  };
  facts.push_back(bytes("shared memory", "shared_memory", blocks(shared.f_blocks), "there is no /dev/shm"));
  facts.push_back(bytes("  free", "shared_memory_free", blocks(shared.f_bavail), "unknown"));
}

/// Says whether files can be written to a folder, which need not exist yet.
std::string state_of(fs::path folder) {
  if (folder.empty()) return "none";
  std::error_code error;
  const bool exists = fs::is_directory(folder, error);
  while (!folder.empty() && !fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    return fmt::format("cannot be created: {} is not a folder", folder.string());
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
    return fmt::format("cannot be written: {}", std::generic_category().message(errno));
  return exists ? "writable" : "will be created";
}

bool matters(std::string_view name) {
  static constexpr std::array<std::string_view, 17> names{"HOME",
                                                          "TMPDIR",
                                                          "XDG_CACHE_HOME",
                                                          "LANG",
                                                          "LC_ALL",
                                                          "NO_COLOR",
                                                          "LD_PRELOAD",
                                                          "LD_LIBRARY_PATH",
                                                          "PMI_RANK",
                                                          "PMI_SIZE",
                                                          "PMIX_RANK",
                                                          "SLURM_JOB_ID",
                                                          "SLURM_NNODES",
                                                          "SLURM_NTASKS",
                                                          "SLURM_PROCID",
                                                          "SLURM_CPU_BIND",
                                                          "SLURM_CPUS_PER_TASK"};
  static constexpr std::array<std::string_view, 14> beginnings{"PARTITA_", "OMP_",  "GOMP_",  "KMP_",   "DNNL_",
                                                               "ONEDNN_",  "HDF5_", "MPICH_", "MPIR_",  "OMPI_MCA_",
                                                               "UCX_",     "FI_",   "HYDRA_", "MALLOC_"};
  return std::find(names.begin(), names.end(), name) != names.end() ||
         std::any_of(beginnings.begin(), beginnings.end(), [&](auto each) { return name.starts_with(each); });
}

}  // namespace

FactGroup hardware() {
  const Conditions here = present_conditions();
  FactGroup group{"Machine", "machine", {}};
  auto& facts = group.facts;
  utsname kernel{};
  uname(&kernel);
  facts.emplace_back("system", "system", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine));
  facts.emplace_back("processor", "processor", here.processor);
  const auto online = static_cast<Index>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.emplace_back("cores", "cores", fmt::format("{} of {} for this process", here.cores, online), Json(here.cores));
  const auto quota = cpu_quota();
  facts.emplace_back("  quota", "cpu_quota",
                     quota ? fmt::format("the time of {:.3g} cores, a limit of this control group", quota->cores)
                           : "none for this control group",
                     quota ? Json(quota->cores) : Json());
  facts.push_back(bytes("memory", "memory", proc_bytes("/proc/meminfo", "MemTotal"), "unknown"));
  facts.push_back(bytes("  available", "memory_available", proc_bytes("/proc/meminfo", "MemAvailable"), "unknown"));
  facts.push_back(bytes("  limit", "memory_limit", group_limit(), "none for this control group"));
  facts.emplace_back("devices", "devices", devices());
  return group;
}

FactGroup limits() {
  FactGroup group{"Limits and folders", "limits", {}};
  auto& facts = group.facts;
  facts.push_back(resource("open files", "open_files", RLIMIT_NOFILE));
  facts.push_back(resource("locked bytes", "locked_bytes", RLIMIT_MEMLOCK));
  add_shared_memory(facts);
  const std::string kernels = default_kernel_folder();
  facts.emplace_back("kernels", "kernel_folder",
                     kernels.empty() ? "no folder; set HOME or XDG_CACHE_HOME, or use --kernels"
                                     : fmt::format("{} ({})", kernels, state_of(kernels)),
                     Json(kernels));
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  facts.emplace_back("temporary files", "temporary_folder",
                     error ? "no folder; set TMPDIR" : fmt::format("{} ({})", temporary.string(), state_of(temporary)),
                     error ? Json() : Json(temporary.string()));
  return group;
}

FactGroup environment() {
  FactGroup group{"Environment", "environment", {}};
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const auto equals = variable.find('=');
    const std::string name(variable.substr(0, equals));
    if (equals != std::string_view::npos && matters(name))
      group.facts.emplace_back(name, name, std::string(variable.substr(equals + 1)));
  }
  std::sort(group.facts.begin(), group.facts.end(), [](const Fact& a, const Fact& b) { return a.name < b.name; });
  return group;
}

}  // namespace partita::cli
