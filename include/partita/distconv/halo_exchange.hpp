#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/tensor/exchange.hpp"

#include <memory>

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

/// The adjoint of HaloExchange: gradients of all needed elements go back to the owners, which add them to their own.
/// The old content of `local` is overwritten.
class HaloReturn {
 public:
  HaloReturn(const HaloPart& halo, const Tensor& local);
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

}  // namespace partita
