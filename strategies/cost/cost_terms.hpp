#pragma once

#include "partita/base/algorithm.hpp"
#include "partita/strategies/cost/collective_cost.hpp"
#include "partita/strategies/cost/estimate.hpp"

#include <array>
#include <vector>

namespace partita {

/// Which way messages or a collective take: what of it the plan and the machine's levels say, not its constants.
struct Route {
  Verb verb = Verb::none;
  int level = 0;
  int ranks = 1;       ///< that take part
  double sharing = 1;  ///< ranks that use one unit's links at once
  bool operator==(const Route&) const = default;
};

/// An algorithm that a collective can take, and the coefficients of its latencies, bytes and sums.
struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  CollectiveCost cost;
};

/// One communication: so many messages of an exchange, or calls of a collective, and their bytes.
struct Movement {
  int route = 0;  ///< of CostTerms::routes
  double messages = 0, bytes = 0;
  int candidates = 0;  ///< the first of CostTerms::candidates; as many as the verb has algorithms
};

/// Of a backward that computes the forward once more: that part of it.
inline constexpr int forward_again = 3;

/// A movement of a layer: where its seconds count.
struct LayerMovement {
  Movement movement;
  std::size_t pass = 0;  ///< 0 to 2: forward, backward data, backward filter
  double PassCost::*part = nullptr;
  int behind =
      -1;  ///< the pass whose computing can hide it, as the executor goes on with that, or forward_again; -1 for none
  bool input = false;  ///< to or from the layout in which an input is needed
};

/// Under which Machine::efficiency has it.
std::string_view key(KernelKind kind);

/// What a rank computes of a layer's forward; each half of its backward is taken to be as much.
struct KernelTerm {
  KernelKind kind = KernelKind::others;
  double flops = 0, bytes = 0;
  bool measured = false;            ///< then `seconds` hold and nothing else
  std::array<double, 3> seconds{};  ///< by pass
  std::array<double, 3> calls{};    ///< by pass: so many times as much as a forward; 2 where it runs once more
  bool again = false;               ///< backward data begins with the forward once more
  bool operator==(const KernelTerm&) const = default;
};

/// A layer on one rank.
struct RankTerms {
  int rank = 0;  ///< of the layer's grid
  KernelTerm kernel;
  std::vector<LayerMovement> movements;
};

/// What the layer completes once a step, on one rank.
struct GradReduceTerms {
  std::vector<Movement> sums;      ///< of gradients
  std::vector<Movement> replicas;  ///< of both replicas
  std::vector<Movement> after;     ///< norms, weights that are gathered, a loss for all stages
};

/// An update of weights: bytes that the memory moves at its bandwidth, or as measured; what takes longer.
struct UpdateTerms {
  double bytes = 0, seconds = 0;
};

/// What the terms of a plan refer to: every route and every collective's algorithms.
struct CostTerms {
  std::vector<Route> routes;
  std::vector<Candidate> candidates;
};

/// What summing a layer's buckets takes.
struct GradReduceCost {
  double seconds = 0;   ///< of gradients, from when backward completes them
  double overlap = 0;   ///< the share of these that goes on while a rank computes
  double replicas = 0;  ///< of gradients and running statistics of both replicas, then
  double after = 0;     ///< of norms, and of weights that are gathered
  double total() const { return seconds + replicas + after; }
};

/// What a microbatch's transfer to another stage takes.
struct StageTransfer {
  double seconds = 0;  ///< from its first byte sent to its last received
  double overlap = 0;
};

/// What a machine's constants make of terms. Refers to both.
class MachineRates {
 public:
  MachineRates(const CostTerms& terms, const Machine& machine);

  /// A route with the machine's numbers.
  struct Way {
    double latency = 0, bandwidth = 0, overlap = 0;
    const Curve* measured = nullptr;  ///< of the verb among so many ranks; null if there is none
  };
  const Way& way(const Movement& movement) const { return ways_[static_cast<std::size_t>(movement.route)]; }
  double seconds(const Movement& movement) const;
  /// The algorithm that a collective takes.
  const Candidate& cheapest(const Movement& movement) const;
  /// The share of the machine's arithmetic that a kernel reaches.
  double share(const KernelTerm& kernel) const;
  /// Seconds of forward's work at the machine's rates.
  double seconds(const KernelTerm& kernel) const;

  LayerCost layer(const RankTerms& rank) const;
  /// Of the rank that takes longest, as all that follow.
  LayerCost layer(const std::vector<RankTerms>& ranks) const;
  GradReduceCost sums(const std::vector<GradReduceTerms>& ranks) const;
  double update(const UpdateTerms& terms) const;
  StageTransfer transfer(const std::vector<Movement>& ranks) const;

 private:
  const CostTerms& terms_;
  const Machine& machine_;
  double gamma_;                         // seconds to add a byte
  std::array<const Curve*, 3> kernels_;  // by KernelKind; null without one
  std::vector<Way> ways_;                // by route
};

}  // namespace partita
