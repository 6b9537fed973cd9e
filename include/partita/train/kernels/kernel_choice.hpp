#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace partita {

/// ConvProblem::print() -> the name of the algorithm that computes it.
using KernelChoices = std::map<std::string, std::string>;

/// What choosing took.
struct KernelReport {
  Index known = 0, measured = 0;  ///< problems of all ranks, each once
  double seconds = 0;
  std::string problem;  ///< why nothing was measured, for people; "" if all went well
};

/// Choices that were measured on machines of one kind, as lines "PROBLEM: ALGORITHM" of a text file.
class KernelCache {
 public:
  /// A file of `folder` that belongs to this processor, the backend and its threads.
  KernelCache(const std::string& folder, std::string_view backend, int threads);
  /// "" if files can be written to the folder, which is made if it is missing; else why not.
  std::string complaint() const;
  /// What the file holds; lines that are none of ours are left out, and measured again.
  KernelChoices read() const;
  /// Adds to what the file holds by now. Throws Error where that cannot be written.
  void add(const KernelChoices& choices) const;
  const std::string& path() const { return path_; }
  /// The processor, as the system names it.
  static std::string processor();

 private:
  std::string folder_, path_, heading_;
};

/// Tells `backend` how to compute the convolutions in `mine`, alike on every rank, since replicas must agree bit for bit:
/// as `cache` holds it, or else as measured now, each problem by one rank, and kept there. Where nothing can be kept,
/// nothing is measured either: another run would choose otherwise, and round otherwise. Adds to `choices` and `report`.
/// `progress` is called with the problems that this rank has measured and will. Collective: every rank
/// of `comm` calls it.
void choose_kernels(Backend& backend, const std::vector<ConvProblem>& mine, const KernelCache& cache,
                    Communicator& comm, const std::function<void(Index done, Index all)>& progress,
                    KernelChoices& choices, KernelReport& report);

/// $XDG_CACHE_HOME/partita, or ~/.cache/partita; "" where neither the environment nor the system knows a home.
std::string default_kernel_folder();

}  // namespace partita
