#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace partita {

/// The algorithm of each local convolution: ConvProblem::print() -> name of the algorithm.
using KernelChoices = std::map<std::string, std::string>;

/// A report of choose_kernels().
struct KernelReport {
  Index known = 0, measured = 0;  ///< number of problems of all ranks, each counted once
  double seconds = 0;
  std::string problem;  ///< why nothing was measured, as a message; "" if there was no problem
};

/// A text file of choices that were measured on one kind of machine, in lines "PROBLEM: ALGORITHM".
class KernelCache {
 public:
  /// The file in `folder` for this processor, the backend with its library's version, and its number of threads.
  KernelCache(const std::string& folder, const Backend& backend, int threads);
  /// Returns "" if files can be written to the folder, else the reason why not. Creates the folder if it is missing.
  static std::string complaint(const std::string& folder);
  std::string complaint() const { return complaint(folder_); }
  /// Returns the choices in the file. Lines that it cannot parse are skipped; their problems are measured again.
  KernelChoices read() const;
  /// Adds `choices` to the current content of the file. Throws Error if the file cannot be written.
  void add(const KernelChoices& choices) const;
  const std::string& path() const { return path_; }
  /// Returns the system's name of the processor.
  static std::string processor();

 private:
  std::string folder_, path_, heading_;
};

/// Sets in `backend` the algorithm of every convolution in `mine`. The choice is the same on every rank, because
/// replicas must agree bit for bit. It comes from `cache`; otherwise one rank measures the problem and adds the result
/// to `cache`. If the cache cannot be written, nothing is measured: another run could choose differently and so round
/// differently.
///
/// Measures on `stream`. Adds to `choices` and `report`. Calls `progress` with the number of problems that this rank
/// has measured and will measure in all. Collective: every rank of `comm` calls it.
void choose_kernels(Backend& backend, Stream stream, const std::vector<ConvProblem>& mine, const KernelCache& cache,
                    Communicator& comm, const std::function<void(Index done, Index all)>& progress,
                    KernelChoices& choices, KernelReport& report);

/// Returns $XDG_CACHE_HOME/partita, or ~/.cache/partita; "" if neither the environment nor the system names a home
/// folder.
std::string default_kernel_folder();

}  // namespace partita
