#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/device/tensor.hpp"
#include "partita/layouts/transfer.hpp"

namespace partita {

/// Moves boxes between ranks, from one tensor into another, as a TransferPlan says. Between the constructor and
/// `finish`, compute what needs nothing from other ranks.
///
///     Exchange halo(plan, x, extended, comm);   // messages are on their way, own boxes are copied
///     ...                                       // work that overlaps the exchange
///     halo.finish();                            // the received boxes are in `extended`
class Exchange {
 public:
  /// Starts the exchange. `from` holds every box that is sent or copied locally, `to` every box that is received or
  /// copied locally.
  Exchange(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm, Stream stream);
  /// Starts the adjoint exchange: the boxes that `plan` receives go back and are added where they came from. `from` is
  /// the tensor that the forward exchange filled, `to` the one that it read. `plan` is the plan of the forward
  /// exchange.
  static Exchange adjoint(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm,
                          Stream stream);

  Exchange(Exchange&&) = default;
  /// Makes progress without waiting.
  void progress() { request_.progress(); }
  /// What the stream runs later finds the received boxes in place and may overwrite the sent ones.
  void finish();

 private:
  explicit Exchange(Stream stream) : stream_(stream) {}

  Stream stream_;
  Request request_;
};

}  // namespace partita
