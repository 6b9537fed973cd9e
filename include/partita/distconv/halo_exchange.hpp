#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/tensor/exchange.hpp"

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace partita {

/// The backend and the communicator of one rank.
struct RankContext {
  Backend& backend;
  Communicator& comm;  ///< all ranks of the grid
  bool overlap = true;
  Stream stream;

  /// True if it pays to compute the interior before the halos have arrived: overlap is on and the transport makes
  /// progress on its own.
  bool ahead() const { return overlap && comm.asynchronous(); }
};

/// One rank's part of a halo: the boxes that it sends and receives, and the box that it needs.
struct HaloPart {
  TransferPlan plan;
  Box needed;
  HaloPart(const Halo& halo, int rank) : plan(halo.transfer(rank)), needed(halo.needed(rank)) {}
};

/// A halo exchange under way. Its target tensor holds everything that the rank needs; it is the local tensor itself if
/// the rank needs nothing beyond it.
class HaloExchange {
 public:
  HaloExchange() = default;
  /// Starts the exchange.
  HaloExchange(const HaloPart& halo, const Tensor& local, const RankContext& rank);
  /// Waits for the exchange and returns the tensor that holds everything needed.
  const Tensor& finish();
  /// The same tensor, which may be read while halos travel: this rank's own elements are already there.
  const Tensor& extended() const { return extended_; }

 private:
  Tensor extended_;
  std::unique_ptr<Exchange> exchange_;
};

/// What convolutions and their transposes on one rank share: their windows and halos.
class SpatialHalos {
 public:
  /// `x` and `dy` are the halos from the layer's plan.
  SpatialHalos(std::vector<Window> windows, const Halo& x, const Halo& dy, int rank)
      : windows_(std::move(windows)), x_(x, rank), dy_(dy, rank) {}

  /// Starts the exchange of dy, which backward_filter can hide. backward_data finishes it.
  HaloExchange start_backward(const RankContext& rank, const Tensor& dy) const;

 protected:
  std::vector<Window> windows_;
  HaloPart x_, dy_;
};

/// The adjoint of HaloExchange: gradients of all needed elements go back to the owners, which add them to their own.
/// The old content of `local` is overwritten.
class HaloReturn {
 public:
  HaloReturn(const HaloPart& halo, const Tensor& local, Stream stream);
  /// The tensor to which the caller adds gradients, at first zero. It is `local` itself if nothing goes back.
  const Tensor& extended() const { return extended_; }
  /// Starts the exchange. Call it once all contributions to other ranks' gradients have been added to extended().
  void start(const RankContext& rank);
  void finish();

 private:
  const HaloPart& halo_;
  Tensor local_, extended_;
  std::unique_ptr<Exchange> exchange_;
};

/// Computes the outputs `y` of a layer with one window per spatial dimension from `x` and its halo. compute(from, part)
/// computes the outputs in `part`; `from` holds what they read. The calls' parts together are `y`, and none is empty.
/// If the transport makes progress on its own, the first call computes the interior from `x` while the halo travels.
/// Returns the tensor that holds everything that the outputs read; it is `x` itself if no halo is needed.
Tensor compute_with_halo(const HaloPart& halo, std::span<const Window> windows, const Tensor& x, const Box& y,
                         const RankContext& rank,
                         const std::function<void(const Tensor& from, const Box& part)>& compute);

/// The adjoint: computes dx from the outputs' gradients, which have the box `dy`. compute(part, to) adds to `to`, which
/// is zero at first, what the gradients in `part` contribute. Contributions to elements of other ranks go back to them.
/// If the transport makes progress on its own, the border comes first, and the interior is computed while they travel.
void compute_with_halo_return(const HaloPart& halo, std::span<const Window> windows, const Box& dy, const Tensor& dx,
                              const RankContext& rank,
                              const std::function<void(const Box& part, const Tensor& to)>& compute);

}  // namespace partita
