#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/tensor/exchange.hpp"

#include <memory>

namespace partita {

/// What one rank computes with and talks through.
struct RankContext {
  Backend& backend;
  Communicator& comm;  ///< all ranks of the grid
  bool overlap = true;
  Stream stream;

  /// True if it pays to compute what needs no halo before the halos are there.
  bool ahead() const { return overlap && comm.asynchronous(); }
};

/// One rank's part of a halo: what travels, and the box that it needs.
struct HaloPart {
  TransferPlan plan;
  Box needed;
  HaloPart(const Halo& halo, int rank) : plan(halo.transfer(rank)), needed(halo.needed(rank)) {}
};

/// A halo on its way into a tensor that holds all that is needed: the local one itself where it needs nothing.
class HaloExchange {
 public:
  HaloExchange() = default;
  /// Starts.
  HaloExchange(const HaloPart& halo, const Tensor& local, const RankContext& rank);
  /// Waits for what is under way. The tensor that holds all that is needed.
  const Tensor& finish();
  /// The same tensor while halos travel: its own elements are there.
  const Tensor& extended() const { return extended_; }

 private:
  Tensor extended_;
  std::unique_ptr<Exchange> exchange_;
};

/// The adjoint: gradients of all that was needed go back to their owners, who add them to their own. `local` is written
/// over, whatever it holds.
class HaloReturn {
 public:
  HaloReturn(const HaloPart& halo, const Tensor& local);
  /// Zeros to which gradients are added: `local` itself where nothing goes back.
  const Tensor& extended() const { return extended_; }
  /// Starts once all that goes to others has been added to `extended`.
  void start(const RankContext& rank);
  void finish();

 private:
  const HaloPart& halo_;
  Tensor local_, extended_;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace partita
