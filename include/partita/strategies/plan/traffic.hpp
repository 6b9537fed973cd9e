#pragma once

#include "partita/base/traffic.hpp"
#include "partita/layouts/transfer.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/step_op.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita {

/// The time of a communication: in a pass of a microbatch, between stages, or once per step.
enum class Pass : std::uint8_t { forward, backward_data, backward_filter, stages, update };

/// Returns the time in which an operation communicates; nullopt if it has no messages.
constexpr std::optional<Pass> pass_of(const StepOp& op) {
  using enum StepOp::Kind;
  switch (op.kind) {
    case redistribute_input:
    case forward:
    case redistribute_output: return op.recompute ? Pass::backward_data : Pass::forward;
    case redistribute_dy:
    case start_backward:
    case backward_data:
    case redistribute_dx: return Pass::backward_data;
    case backward_filter:
    case scatter_gradients: return Pass::backward_filter;
    case gather_weights: return static_cast<Pass>(op.part);
    case send_output:
    case receive_input:
    case send_gradient:
    case receive_gradient: return Pass::stages;
    case sum_gradients:
    case sum_zero_gradients:
    case add_replicas:
    case add_copies:
    case update:
    case share_loss: return Pass::update;
    default: return std::nullopt;
  }
}

/// The purpose of a communication.
enum class Purpose : std::uint8_t {
  input,       ///< redistribution of an input to the layout that the layer needs, and of its gradient back
  output,      ///< redistribution of the output to the layout for its readers, and of its gradient back
  halo_x,      ///< halos of inputs, before forward
  halo_dy,     ///< halos of the output's gradient, before backward-data
  halo_dx,     ///< parts of the input's gradient that belong to neighbors, after backward-data
  ring,        ///< blocks and queries that travel around a ring of ranks
  ring_sums,   ///< results of these queries, and gradients
  product,     ///< panels and sums of a distributed matrix product
  gather,      ///< weights in shards, gathered before their use
  scatter,     ///< sums of a microbatch's gradients of such weights
  statistics,  ///< batch statistics and losses, in the middle of the layer's work
  stages,      ///< transfers from one stage to another
  sum,         ///< sums of weight gradients
  replicas,    ///< sums of gradients and running statistics over both replicas
  copies,      ///< sums of gradients over both copies of a tied table
  update,      ///< norms, and the all-gather of weights by a sharded optimizer
};

/// One communication of one layer, as one rank sees it.
struct PlannedTraffic {
  std::string role;  ///< the label in `explain` and in the executor's counters, e.g. "halo x", "dw"
  Verb verb = Verb::none;
  AxisSet axes = 0;  ///< axes of a collective; 0 for a collective over all ranks, or over two (other_rank)
  Traffic traffic;
  Pass pass = Pass::forward;
  Purpose purpose = Purpose::input;
  std::vector<PeerTraffic> peers{};  ///< exchanges: by peer, whose number is counted from the rank: -1 is one below
  StepOp op{};                       ///< the operation of the step that sends it
  int exchange = 0;                  ///< the number of the exchange among those of `op`, the same on all ranks
  int turns = 1;                     ///< exchanges: messages of one turn travel together, as a product's panel does
};

/// Returns what `rank` (of the world) sends for one layer in a step: the messages of the operations of its stage
/// (StepProgram). Items of full microbatches come first, then those of remainder microbatches, of a second replica, and
/// those of once per step; each part is in the order of execution. Items without messages are left out.
std::vector<PlannedTraffic> layer_traffic(const Plan& plan, int layer, int rank);
/// Returns the bytes that leave a rank in one communication: those of an exchange, and of a collective what the
/// algorithms with the fewest bytes send. With n bytes among p ranks these are 2 (p-1)/p n for an all-reduce, and
/// (p-1)/p n for the others (Thakur, Rabenseifner, Gropp 2005).
double sent_bytes(const Plan& plan, const PlannedTraffic& item, int rank);

/// Returns the rank with which `rank` shares a collective over both replicas or both copies of a table; nullopt for
/// other communications.
std::optional<int> other_rank(const Plan& plan, const PlannedTraffic& item, int rank);

/// What a rank sends in a step.
struct RankTraffic {
  Traffic counted;  ///< the sum of layer_traffic() over all layers
  double sent = 0;  ///< the sum of sent_bytes()
};
RankTraffic rank_traffic(const Plan& plan, int rank);
/// Returns the part of layer_traffic() of one microbatch in the first replica. The microbatch has the larger size or,
/// with `of_remainder`, the smaller one. `received`: also lists exchanges in which the rank receives but sends nothing.
std::vector<PlannedTraffic> microbatch_traffic(const Plan& plan, int layer, int rank, bool of_remainder = false,
                                               bool received = false);
/// Returns the part of layer_traffic() that occurs once per step: sums of gradients, norms, gathered weights, and the
/// loss that all stages receive.
std::vector<PlannedTraffic> step_traffic(const Plan& plan, int layer, int rank);

}  // namespace partita
