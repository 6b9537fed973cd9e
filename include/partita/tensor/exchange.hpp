#pragma once

#include "partita/base/tensor.hpp"
#include "partita/comm/communicator.hpp"
#include "partita/layouts/transfer.hpp"

namespace partita {

/// Moves boxes between ranks as a TransferPlan says, from one tensor into another: `start`, compute what needs nothing
/// from others, `finish`.
///
///     Exchange halo(plan, x, extended, comm);   // sends are on their way, own boxes are copied
///     ...                                       // work beside the exchange
///     halo.finish();                            // received boxes are in place
class Exchange {
 public:
  /// Starts. `from` holds every sent and local box, `to` every received and local one.
  Exchange(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm, Stream stream);
  /// The adjoint: received boxes of `plan` go back and are added where they came from. `from` is the tensor that the
  /// forward exchange filled, `to` the one that it read; both keep the plan's names for sends and receives.
  static Exchange adjoint(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm,
                          Stream stream);

  Exchange(Exchange&&) = default;
  /// Lets it go on as far as it can without waiting.
  void progress() { request_.progress(); }
  /// Waits and puts what arrived in place.
  void finish();

 private:
  Exchange() = default;

  Request request_;
};

}  // namespace partita
