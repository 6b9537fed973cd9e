#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/collective_options.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace partita {

/// The passes of a microbatch.
inline constexpr std::array microbatch_passes{Pass::forward, Pass::backward_data, Pass::backward_filter};

/// What a layer costs in one of them.
inline PassCost& cost_of(LayerCost& layer, Pass pass) {
  return pass == Pass::forward         ? layer.forward
         : pass == Pass::backward_data ? layer.backward_data
                                       : layer.backward_filter;
}
inline const PassCost& cost_of(const LayerCost& layer, Pass pass) {
  return cost_of(const_cast<LayerCost&>(layer), pass);
}

/// A number for each of them.
struct PassNumbers : std::array<double, 3> {
  using std::array<double, 3>::operator[];
  double& operator[](Pass pass) { return (*this)[static_cast<std::size_t>(pass)]; }
  double operator[](Pass pass) const { return (*this)[static_cast<std::size_t>(pass)]; }
};

/// The ends of messages or of a collective. It depends on the plan and on the levels of the machine, but not on the
/// machine's constants.
struct Route {
  Verb verb = Verb::none;
  int level = 0;   ///< the farthest level that it crosses
  int ranks = 1;   ///< ranks that take part
  int inside = 1;  ///< of these, ranks in one unit of the level below
  bool operator==(const Route&) const = default;
};

/// One communication: the messages of an exchange or the calls of a collective, and their bytes.
struct Movement {
  int route = 0;  ///< index into CostTerms::routes
  double messages = 0, bytes = 0;
  /// The range of its options: the ways to run one call of a collective; of an exchange what a rank sends and, if it
  /// differs, what it receives at the same time.
  int first = 0, end = 0;
};

/// What a layer computes while its messages travel. `recomputed_forward` is a part of the pass backward data.
enum class Computation : std::uint8_t { forward, backward_data, backward_filter, recomputed_forward };

/// A movement of a layer, and where its seconds count.
struct LayerMovement {
  Movement movement;
  Pass pass = Pass::forward;         ///< one of microbatch_passes
  double PassCost::*part = nullptr;  ///< the number that its seconds are added to
  /// The computation that the executor runs during the transfer, which can hide it.
  std::optional<Computation> hidden_by{};
  bool input = false;    ///< redistributes an input or its gradient
  double travels = 1;    ///< the share of its seconds that it travels during that computation
  double meanwhile = 1;  ///< the share of that computation that runs at the same time
};

/// The kernels of a layer on one rank. Each half of the backward pass has the operations of the forward pass.
struct KernelTerm {
  KernelKind kind = KernelKind::others;
  double flops = 0;                      ///< operations of one kernel
  double bytes = 0, backward_bytes = 0;  ///< bytes that a kernel of the forward and of the backward pass moves
  /// The smallest extent of a matrix product or of the product that a convolution stands for: m, n or k.
  double narrowest = std::numeric_limits<double>::infinity();
  bool measured = false;    ///< if true, only `seconds` counts
  PassNumbers seconds{};    ///< measured seconds
  PassNumbers forwards{};   ///< how many kernels of the forward pass it runs
  PassNumbers backwards{};  ///< how many kernels of the backward pass it runs
  /// Bytes moved by kernels of their own (MemoryPasses::apart), and to add the gradients of a microbatch to sums in
  /// another type (Plan::gradient_dtype).
  PassNumbers added{};
  bool recomputes = false;  ///< backward data starts with a recomputed forward
  bool operator==(const KernelTerm&) const = default;
};

/// The terms of a layer on one rank.
struct RankTerms {
  int rank = 0;  ///< rank of the layer's grid
  KernelTerm kernel;
  std::vector<LayerMovement> movements;
};

/// The communication of a layer that happens once per step, on one rank.
struct GradReduceTerms {
  std::vector<Movement> sums{};      ///< gradient sums
  std::vector<Movement> replicas{};  ///< sums over both replicas, or both copies of a table
  std::vector<Movement> after{};     ///< norms, gathered weights
  std::vector<Movement> loss{};      ///< the loss for all stages, which all ranks add when the last stage has ended
  int replica = 0, rank = 0;         ///< where: a rank of the replica's grid
};

/// An update of weights: bytes at the memory bandwidth, and measured seconds.
struct UpdateTerms {
  double bytes = 0, seconds = 0;
};

/// The tables that the terms of a plan refer to: all routes, and the links and options of all communications.
struct CostTerms : LinkTables {
  std::vector<Route> routes;
  DType dtype = DType::f32;  ///< what kernels compute in
  int ranks = 1;             ///< ranks of the plan, which may share their memory (Socket)
};

/// The seconds of the sums of a layer's buckets.
struct GradReduceCost {
  double seconds = 0;   ///< gradient sums; they start when the backward pass completes a gradient
  double overlap = 0;   ///< the share of `seconds` that can overlap with computation
  double replicas = 0;  ///< afterwards: sums of gradients and running statistics over both replicas
  double after = 0;     ///< afterwards: norms, gathered weights
  double loss = 0;      ///< when all stages have ended: the loss for all of them
  double total() const { return seconds + replicas + after + loss; }
};

/// The time of the transfer of one microbatch to another stage.
struct StageTransfer {
  double seconds = 0;  ///< from the first byte sent to the last byte received
  double overlap = 0;  ///< the share of `seconds` that can overlap with computation
  double latency = 0;  ///< the part of `seconds` for which the links are free
  int level = 0;       ///< the farthest that it crosses
  /// Seconds for which it keeps each of the two stages from computing.
  double busy() const { return seconds * (1 - overlap) / 2; }
};

}  // namespace partita
