#pragma once

#include "partita/base/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

// The machine that this process runs on, and what it may use of it.

/// Returns the machine's name.
std::string host_name();

/// Returns one bit for each core of the system, from the lowest bit of the first byte on: 1 if the calling thread may
/// run on it. There may be more than the 1024 cores of a cpu_set_t. Empty if the system does not say.
std::vector<std::uint8_t> allowed_core_bits();
/// Returns the number of bits that are 1.
int count_bits(const std::vector<std::uint8_t>& bits);
/// Returns the number of cores that the calling thread may use; 1 if the system does not say.
int allowed_cores();

/// A limit on the time of all cores together, as `docker run --cpus 1.5` sets it. It belongs to the control group of
/// this process, or to one above it. The kernel stops a group that has used up its time until the next period.
struct CpuQuota {
  double cores = 0;     ///< time of cores per time
  double period = 0.1;  ///< seconds, in which the group may use `cores` times as much time of cores
  Index throttled = 0;  ///< periods in which the group was stopped, since it exists
};
/// Returns the tightest limit, of version 1 or 2 of control groups, or nothing if there is none. `root` stands for "/"
/// in tests.
std::optional<CpuQuota> cpu_quota(const std::string& root = "");

/// Returns the first word of a file as a number; nothing if there is no such file or number.
std::optional<Index> number_in(const std::string& path);
/// Returns the bytes of a row of a file of /proc, e.g. of "MemTotal:  16384 kB" in /proc/meminfo; nothing if there is
/// no such row.
std::optional<Index> proc_bytes(const std::string& file, std::string_view row);

}  // namespace partita
