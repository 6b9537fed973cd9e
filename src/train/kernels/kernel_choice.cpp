#include "src/train/kernels/kernel_choice.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "src/backend/measure.hpp"
#include "src/system/clock.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace partita {

namespace {

namespace fs = std::filesystem;

constexpr const char* no_folder = "there is no folder to store choices in";
/// Increased whenever the set of algorithms changes, so that old choices are measured again.
constexpr int generation = 3;
constexpr std::size_t words = sizeof(ConvProblem) / sizeof(Index);
using Numbers = std::array<Index, words>;  // a problem in the form in which it is sent

/// The problems of all ranks, each once, in the same order on every rank. Collective.
std::vector<ConvProblem> united(const std::vector<ConvProblem>& mine, Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> sizes(ranks);
  sizes[comm.rank()] = static_cast<double>(mine.size() * words);
  comm.all_reduce(sizes.data(), static_cast<Index>(ranks), DType::f64, ReduceOp::sum, {}).wait();
  std::vector<Index> counts(sizes.begin(), sizes.end());
  Index total = 0;
  for (const Index count : counts) total += count;
  std::vector<double> local(mine.size() * words), all(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto numbers = std::bit_cast<Numbers>(mine[i]);
    std::copy(numbers.begin(), numbers.end(), local.begin() + static_cast<std::ptrdiff_t>(i * words));
  }
  comm.all_gather(local.data(), all.data(), counts, DType::f64, {}).wait();
  std::map<std::string, ConvProblem> by_text;
  for (std::size_t at = 0; at < all.size(); at += words) {
    Numbers numbers{};
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), words, numbers.begin());
    const auto problem = std::bit_cast<ConvProblem>(numbers);
    by_text.emplace(problem.print(), problem);
  }
  std::vector<ConvProblem> problems;
  problems.reserve(by_text.size());
  for (const auto& [text, problem] : by_text) problems.push_back(problem);
  return problems;
}

/// Returns the problems that have algorithms, and their halves, in the order of halves_first(), with the sizes of its
/// groups.
std::vector<ConvProblem> with_halves(const Backend& backend, std::vector<ConvProblem> problems,
                                     std::vector<std::size_t>& groups) {
  std::erase_if(problems, [&](const ConvProblem& problem) { return backend.algorithms(problem).empty(); });
  groups.clear();
  std::vector<ConvProblem> all;
  for (const auto& group : halves_first(backend, problems)) {
    groups.push_back(group.size());
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

/// Returns why nothing can be measured, "" if it can; the same on every rank. Collective.
std::string complaint(const KernelCache& cache, Communicator& comm) {
  if (auto why = agree(comm, comm.rank() == 0 ? cache.complaint() : ""); !why.empty()) return why;
  std::array<double, 2> extremes{static_cast<double>(hash_text(KernelCache::processor()) >> 12U), 0};
  extremes[1] = -extremes[0];
  comm.all_reduce(extremes.data(), 2, DType::f64, ReduceOp::max, {}).wait();
  return extremes[0] == -extremes[1] ? "" : "the ranks' processors differ";
}

/// Returns the position of `algorithm` among the backend's algorithms, -1 if it is not one of them.
double position(const Backend& backend, const ConvProblem& problem, std::string_view algorithm) {
  const auto all = backend.algorithms(problem);
  const auto found = std::find(all.begin(), all.end(), algorithm);
  return found == all.end() ? -1 : static_cast<double>(found - all.begin());
}

/// Returns for each problem the position of the algorithm in the cache, -1 if the cache has none. Collective.
std::vector<double> kept(const KernelCache& cache, const Backend& backend, const std::vector<ConvProblem>& problems,
                         Communicator& comm) {
  std::vector<double> chosen(problems.size(), -1);
  if (comm.rank() == 0) {
    const auto choices = cache.read();
    for (std::size_t i = 0; i < problems.size(); ++i)
      if (const auto found = choices.find(problems[i].print()); found != choices.end())
        chosen[i] = position(backend, problems[i], found->second);
  }
  comm.broadcast(chosen.data(), static_cast<Index>(chosen.size()), DType::f64, 0, {}).wait();
  return chosen;
}

/// Replaces every -1 by a measured choice; each problem is measured by one rank. Collective.
/// @param groups sizes of the groups of halves_first(). A group begins when all ranks know the choices of those before.
void measure_rest(Backend& backend, Stream stream, const std::vector<ConvProblem>& problems,
                  std::span<const std::size_t> groups, Communicator& comm,
                  const std::function<void(Index done, Index all)>& progress, std::vector<double>& chosen) {
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  const auto rest = static_cast<std::size_t>(std::count(chosen.begin(), chosen.end(), -1));
  const auto ours = (rest + ranks - 1 - rank) / ranks;
  std::size_t seen = 0, first = 0;
  for (const std::size_t size : groups) {
    const std::size_t end = first + size;
    for (std::size_t i = first; i < end; ++i) {
      if (chosen[i] >= 0 || seen++ % ranks != rank) continue;
      chosen[i] = position(backend, problems[i], measure_fastest(backend, stream, problems[i]));
      if (progress) progress(static_cast<Index>((seen - 1) / ranks + 1), static_cast<Index>(ours));
    }
    comm.all_reduce(chosen.data() + first, static_cast<Index>(size), DType::f64, ReduceOp::max, {}).wait();
    for (std::size_t i = first; i < end && end < problems.size(); ++i)
      backend.choose(problems[i], backend.algorithms(problems[i]).at(static_cast<std::size_t>(chosen[i])));
    first = end;
  }
}

/// Choices that another job stored in the meantime replace the ones measured here, so that all jobs that use a file
/// round in the same way. If two jobs store choices at the same moment, the later ones remain.
void adopt(const std::vector<double>& kept, std::vector<double>& chosen) {
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (kept[i] >= 0) chosen[i] = kept[i];
}

}  // namespace

KernelCache::KernelCache(const std::string& folder, const Backend& backend, int threads)
    : folder_(folder),
      heading_(fmt::format("# convolutions ({}) of backend '{}' with {} threads on {}", generation, backend.describe(),
                           threads, processor())) {
  path_ = fmt::format("{}/kernels-{:016x}.txt", folder, hash_text(heading_));
}

std::string KernelCache::processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string name = "an unknown processor", abilities;
  for (std::string line; std::getline(in, line) && abilities.empty();) {
    const auto text = line.find(": ") == std::string::npos ? "" : line.substr(line.find(": ") + 2);
    if (line.rfind("model name", 0) == 0) name = text;
    if (line.rfind("flags", 0) == 0) abilities = text;  // a virtual machine may hide some
  }
  return fmt::format("{} ({:08x})", name, hash_text(abilities) & 0xFFFFFFFFU);
}

std::string KernelCache::complaint(const std::string& folder) {
  if (folder.empty()) return no_folder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK) != 0) error.assign(errno, std::generic_category());
  return error ? fmt::format("{}: {}", folder, error.message()) : "";
}

KernelChoices KernelCache::read() const {
  KernelChoices choices;
  std::ifstream in(path_);
  for (std::string line; std::getline(in, line);)
    if (const auto colon = line.rfind(": "); colon != std::string::npos)
      choices[line.substr(0, colon)] = line.substr(colon + 2);
  return choices;
}

void KernelCache::add(const KernelChoices& choices) const {
  auto all = read();
  for (const auto& [problem, algorithm] : choices) all[problem] = algorithm;
  // Containers that share a folder may have equal process numbers.
  const std::string partial =
      fmt::format("{}.{}.{}", path_, getpid(), std::chrono::system_clock::now().time_since_epoch().count());
  std::string text = heading_ + "\n";
  for (const auto& [problem, algorithm] : all) text += fmt::format("{}: {}\n", problem, algorithm);
  std::ofstream out(partial);
  out << text;
  out.close();
  if (out && std::rename(partial.c_str(), path_.c_str()) == 0) return;
  const std::string why = std::generic_category().message(errno);
  std::remove(partial.c_str());
  fail("{} cannot be written: {}", path_, why);
}

void choose_kernels(Backend& backend, Stream stream, const std::vector<ConvProblem>& mine, const KernelCache& cache,
                    Communicator& comm, const std::function<void(Index done, Index all)>& progress,
                    KernelChoices& choices, KernelReport& report) {
  const double start = now();
  // rank 0's answer, because the environments of nodes may differ
  if (const auto why = complaint(cache, comm); !why.empty()) {
    if (why != no_folder) report.problem = why;
    return;
  }
  std::vector<std::size_t> groups;
  const auto problems = with_halves(backend, united(mine, comm), groups);
  auto chosen = kept(cache, backend, problems, comm);
  const auto known = problems.size() - static_cast<std::size_t>(std::count(chosen.begin(), chosen.end(), -1));
  measure_rest(backend, stream, problems, groups, comm, progress, chosen);
  if (known < problems.size()) adopt(kept(cache, backend, problems, comm), chosen);

  KernelChoices found;
  for (std::size_t i = 0; i < problems.size(); ++i)
    found[problems[i].print()] = backend.algorithms(problems[i]).at(static_cast<std::size_t>(chosen[i]));
  std::string unkept;
  if (comm.rank() == 0 && known < problems.size()) {
    try {
      cache.add(found);
    } catch (const Error& error) {
      unkept = error.what();
    }
  }
  unkept = agree(comm, unkept);
  for (const auto& problem : with_halves(backend, mine, groups))  // also on failure: measuring left other choices
    backend.choose(problem, unkept.empty() ? found.at(problem.print()) : backend.algorithms(problem).front());
  if (!unkept.empty()) {
    report.problem = unkept;
    return;
  }
  choices.merge(found);
  report.known += static_cast<Index>(known);
  report.measured += static_cast<Index>(problems.size() - known);
  report.seconds += now() - start;
}

std::string default_kernel_folder() {
  // The specification of XDG_CACHE_HOME says that a relative path is invalid and must be ignored. One in HOME would be
  // taken for a folder of the working folder.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/partita";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/partita";
  if (const passwd* user = getpwuid(getuid()); user != nullptr && user->pw_dir != nullptr && *user->pw_dir != '\0')
    return std::string(user->pw_dir) + "/.cache/partita";  // e.g. under cron or env -i
  return "";
}

}  // namespace partita
