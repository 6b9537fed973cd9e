#include "src/cli/output/conditions.hpp"

#include "partita/comm/mpi.hpp"
#include "src/system/host.hpp"

#include <array>
#include <ctime>
#include <fstream>

namespace partita::cli {

namespace {

/// The value of `key` in /proc/cpuinfo, from its first line with that key. Returns "" if there is none.
std::string cpu_line(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0 && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "";
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

Conditions present_conditions() {
  const std::string processor = cpu_line("model name");
  return {processor.empty() ? "unknown" : processor, allowed_cores(), have_mpi() ? mpi_version() : "none", now()};
}

}  // namespace partita::cli
