#include "src/system/host.hpp"

#include "src/base/plain_text.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <fstream>

namespace partita {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

std::vector<std::uint8_t> allowed_core_bits() {
  constexpr int most = 1 << 20;  // cores; Linux allows 8192
  for (int cores = CPU_SETSIZE; cores <= most; cores *= 2) {
    std::vector<std::uint8_t> bits(CPU_ALLOC_SIZE(cores));
    if (sched_getaffinity(0, bits.size(), reinterpret_cast<cpu_set_t*>(bits.data())) == 0) return bits;
    if (errno != EINVAL) break;  // EINVAL: the system has more cores than bits
  }
  return {};
}

int count_bits(const std::vector<std::uint8_t>& bits) {
  int count = 0;
  for (const std::uint8_t byte : bits) count += std::popcount(byte);
  return count;
}

int allowed_cores() { return std::max(count_bits(allowed_core_bits()), 1); }

namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Returns the number after `key` and a blank at the begin of a line, e.g. in cpu.stat.
std::optional<Index> number_after(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + " ")) return parse_number<Index>(std::string_view(line).substr(key.size() + 1));
  return std::nullopt;
}

/// Returns the limit of one control group, whose files are in `folder`.
std::optional<CpuQuota> quota_of(const std::string& folder) {
  const std::string both = first_line(folder + "/cpu.max");  // of version 2: "100000 100000" or "max 100000"
  const auto blank = both.find(' ');
  auto time = parse_number<Index>(std::string_view(both).substr(0, blank));
  auto period =
      blank == std::string::npos ? std::nullopt : parse_number<Index>(std::string_view(both).substr(blank + 1));
  if (both.empty()) {  // version 1, which writes -1 for no limit
    time = number_in(folder + "/cpu.cfs_quota_us");
    period = number_in(folder + "/cpu.cfs_period_us");
  }
  if (!time || !period || *time <= 0 || *period <= 0) return std::nullopt;
  return CpuQuota{static_cast<double>(*time) / static_cast<double>(*period), 1e-6 * static_cast<double>(*period),
                  number_after(folder + "/cpu.stat", "nr_throttled").value_or(0)};
}

/// Returns the tightest limit of a group and of those above it. `mount` is the folder of the highest.
std::optional<CpuQuota> quota_along(const std::string& mount, std::string group) {
  std::optional<CpuQuota> tightest;
  while (true) {
    if (const auto quota = quota_of(mount + group); quota && (!tightest || quota->cores < tightest->cores))
      tightest = quota;
    if (group.empty()) return tightest;
    group.resize(group.rfind('/'));
  }
}

/// True if "cpu" is one of the names between commas.
bool names_cpu(std::string_view list) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    if (list.substr(0, comma) == "cpu") return true;
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return false;
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const std::string& root) {
  // A line is "4:cpu,cpuacct:/docker/1a2b" (version 1) or "0::/user.slice" (version 2).
  std::ifstream in(root + "/proc/self/cgroup");
  std::optional<CpuQuota> tightest;
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line.find('/', second) != second + 1) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1) == "/" ? "" : line.substr(second + 1);
    if (!controllers.empty() && !names_cpu(controllers)) continue;
    // A container often sees its own group as the highest one, although the line names the path on the host.
    for (const std::string& mount : {std::string("/sys/fs/cgroup"), "/sys/fs/cgroup/" + controllers,
                                     std::string("/sys/fs/cgroup/cpu"), std::string("/sys/fs/cgroup/unified")})
      if (const auto quota = quota_along(root + mount, group); quota && (!tightest || quota->cores < tightest->cores))
        tightest = quota;
  }
  return tightest;
}

std::optional<Index> number_in(const std::string& path) {
  const std::string line = first_line(path);
  return parse_number<Index>(std::string_view(line).substr(0, line.find(' ')));
}

std::optional<Index> proc_bytes(const std::string& file, std::string_view row) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(row) || line.find(':') != row.size()) continue;
    const auto from = line.find_first_not_of(" \t", row.size() + 1), to = line.find(" kB");
    const auto kib = from < to && to != std::string::npos
                         ? parse_number<Index>(std::string_view(line).substr(from, to - from))
                         : std::nullopt;
    return kib ? std::optional(*kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace partita
