#pragma once

#include "strategies/cost/cost_terms.hpp"

#include <array>
#include <span>
#include <vector>

namespace partita {

/// Turns terms into seconds with the constants of a machine.
/// @pre The terms and the machine outlive it.
class MachineRates {
 public:
  MachineRates(const CostTerms& terms, const Machine& machine);

  /// A route with the constants of the machine.
  struct Way {
    double overlap = 0;               ///< the share of its seconds that can overlap
    const Curve* measured = nullptr;  ///< measurements of a collective with these ranks, or null
  };
  /// Links with the constants of the machine: seconds per message and per byte.
  struct LinkRate {
    double latency = 0, per_byte = 0;
    const Curve* measured = nullptr;  ///< measurements of exchanges, or null
  };
  const Way& way(const Movement& movement) const { return ways_[static_cast<std::size_t>(movement.route)]; }
  const LinkRate& rate(const LinkUse& use) const { return links_[static_cast<std::size_t>(use.link)]; }
  double seconds(const Movement& movement) const;
  /// Returns the seconds of messages of an exchange over one kind of links; `turns` as in CollectiveOption.
  double exchange_seconds(const LinkUse& use, double turns) const;
  /// Returns the seconds of one call of a collective by one of its options.
  double seconds(const CollectiveOption& option) const;
  /// Returns the seconds to add bytes to as many others.
  double combining_seconds(double bytes) const { return bytes * gamma_; }
  /// Returns the cheapest option of a collective.
  const CollectiveOption& cheapest(const Movement& movement) const;
  /// Returns the share of the machine's peak that a kernel reaches.
  double share(const KernelTerm& kernel) const;
  /// Returns the seconds of one kernel, which moves `bytes` through memory, at the machine's rates.
  double seconds(const KernelTerm& kernel, double bytes) const;

  LayerCost layer(const RankTerms& rank) const;
  // These functions return the cost of the slowest rank; of several numbers, the slowest ranks of each.
  LayerCost layer(const std::vector<RankTerms>& ranks) const;
  GradReduceCost grad_reduce(const std::vector<GradReduceTerms>& ranks) const;
  double update(const UpdateTerms& terms) const;
  StageTransfer transfer(const std::vector<Movement>& ranks) const;
  /// Returns the ways to run a movement.
  std::span<const CollectiveOption> options(const Movement& movement) const {
    return std::span(terms_.options)
        .subspan(static_cast<std::size_t>(movement.first), static_cast<std::size_t>(movement.end - movement.first));
  }
  /// Returns what an option sends over each kind of links.
  std::span<const LinkUse> uses(const CollectiveOption& option) const {
    return std::span(terms_.uses)
        .subspan(static_cast<std::size_t>(option.first), static_cast<std::size_t>(option.end - option.first));
  }

 private:
  const CostTerms& terms_;
  const Machine& machine_;
  double gamma_;  // seconds to add a byte
  struct KernelRate {
    double peak = 0;                 // operations per second
    const Curve* reached = nullptr;  // the share of the peak; null if it is all of it
    double width = 0;                // Efficiency::width
  };
  std::array<KernelRate, 3> kernels_;  // by KernelKind
  std::vector<Way> ways_;              // by route
  std::vector<LinkRate> links_;        // by link
};

}  // namespace partita
