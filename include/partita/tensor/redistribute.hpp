#pragma once

#include "partita/comm/process_grid.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <memory>
#include <span>
#include <vector>

namespace partita {

/// A redistribution whose last step travels while the rank computes.
class Redistribution {
 public:
  /// Runs all steps but the last one, and starts that. Collective: every rank of `grid` calls it.
  /// @pre `steps` are not empty. They, the grid and the stream outlive this object.
  Redistribution(const DistTensor& from, std::span<const RedistributionStep> steps, const ProcessGrid& grid,
                 Stream stream);
  Redistribution(Redistribution&&) noexcept;
  Redistribution& operator=(Redistribution&&) noexcept;
  ~Redistribution();

  /// Advances the last step without waiting.
  void progress();
  /// Waits until the last step's messages have arrived.
  void wait();
  /// Waits, and returns the tensor in the layout that the last step makes. Call it once.
  DistTensor finish();

 private:
  class Step;
  std::unique_ptr<Step> last_;
};

/// Returns `from` in the layout that the last of `steps` makes, or `from` itself if there are no steps.
/// Collective: every rank of `grid` calls it.
DistTensor redistribute(const DistTensor& from, std::span<const RedistributionStep> steps, const ProcessGrid& grid,
                        Stream stream = {});

/// Plans and runs a redistribution to the layout `to`. Collective: every rank of `grid` calls it.
DistTensor redistribute(const DistTensor& from, const Layout& to, const ProcessGrid& grid, Stream stream = {});

}  // namespace partita
