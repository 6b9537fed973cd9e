#pragma once

#include "strategies/cost/cost_terms.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace partita {

/// The seconds of communication, and those of them that cannot overlap with computation. With computation c it takes
/// max(exposed, all - c). Of several ranks, or of links that are busy at the same time, the slowest in each number
/// count, which may be two.
struct Seconds {
  double exposed = 0, all = 0;
  Seconds& operator+=(const Seconds& other) {
    exposed += other.exposed;
    all += other.all;
    return *this;
  }
  void at_least(const Seconds& other) {
    exposed = std::max(exposed, other.exposed);
    all = std::max(all, other.all);
  }
  double hidden() const { return all - exposed; }
  double overlap() const { return all > 0 ? hidden() / all : 0; }
};

/// Turns terms into seconds with the constants of a machine.
/// @pre The terms and the machine outlive it.
class MachineRates {
 public:
  MachineRates(const CostTerms& terms, const Machine& machine);

  /// Links with the constants of the machine: seconds per message, per byte of a rank, and per byte of all ranks of a
  /// unit together.
  struct LinkRate {
    double latency = 0, per_byte = 0, per_byte_of_unit = 0, overlap = 0;
    const Curve* measured = nullptr;  ///< measurements of exchanges, or null
  };
  /// Returns the measurements of a collective with the ranks of a movement, or null.
  const Curve* measured(const Movement& movement) const { return measured_[movement.route]; }
  const LinkRate& rate(const LinkUse& use) const { return links_[use.link]; }
  /// Returns the seconds of a movement. The part on each level overlaps as far as that level allows.
  Seconds seconds(const Movement& movement) const;
  /// Returns the seconds of movements that run one after the other.
  Seconds seconds(const std::vector<Movement>& movements) const;
  /// Returns the seconds of messages of an exchange over one kind of links; `turns` as in CollectiveOption.
  double exchange_seconds(const LinkUse& use, double turns) const;
  /// Returns the messages of an exchange in the direction that takes longer.
  const CollectiveOption& slower_direction(const Movement& exchange) const;
  /// Returns the seconds of one call of a collective by one of its options.
  double seconds(const CollectiveOption& option) const;
  /// Returns the bytes per second that a rank reads or writes.
  double memory_bandwidth() const { return memory_; }
  /// Returns the seconds to add bytes to as many others.
  double combining_seconds(double bytes) const { return bytes * gamma_; }
  /// One of the options of a collective, and the seconds of one call.
  struct Choice {
    const CollectiveOption* option;
    double seconds = 0;
  };
  /// Returns the cheapest option of a collective.
  Choice cheapest(const Movement& movement) const;
  /// Returns the ways to run a movement.
  std::span<const CollectiveOption> options(const Movement& movement) const {
    return std::span(terms_.options)
        .subspan(static_cast<std::size_t>(movement.first), static_cast<std::size_t>(movement.end - movement.first));
  }
  /// Returns the uses of links that make up the time of one call: in each round the slowest, on the slowest rank.
  std::vector<LinkUse> slowest_uses(const CollectiveOption& option) const;
  /// Returns the share of the machine's peak that a kernel reaches.
  double share(const KernelTerm& kernel) const;
  /// Returns the seconds of one kernel, which moves `bytes` through memory, at the machine's rates.
  double seconds(const KernelTerm& kernel, double bytes) const;

  /// Calls f(movement, seconds, hidden) for each movement of a rank. `hidden` is the part of its seconds that hides
  /// behind the computing of `cost`, of which earlier movements have used some.
  template <class F>
  void each_movement(const RankTerms& rank, const LayerCost& cost, F&& f) const {
    const double recomputed = rank.kernel.recomputes ? cost.forward.compute : 0;
    const std::array<double, 4> all{cost.forward.compute, cost.backward_data.compute - recomputed,
                                    cost.backward_filter.compute, recomputed};  // by Computation
    std::array<double, 4> unused = all;
    for (const LayerMovement& each : rank.movements) {
      const Seconds taken = seconds(each.movement);
      double hidden = 0;
      if (each.hidden_by) {
        const auto number = static_cast<std::size_t>(*each.hidden_by);
        const double room = unused[number] - (1 - each.meanwhile) * all[number];
        hidden = std::max(0., std::min(each.travels * taken.hidden(), room));
        unused[number] -= hidden;
      }
      f(each, taken, hidden);
    }
  }
  LayerCost layer(const RankTerms& rank) const;
  // These functions return the cost of the slowest rank; of several numbers, the slowest ranks of each.
  LayerCost layer(const std::vector<RankTerms>& ranks) const;
  GradReduceCost grad_reduce(const std::vector<GradReduceTerms>& ranks) const;
  double update(const UpdateTerms& terms) const;
  StageTransfer transfer(const std::vector<Movement>& ranks) const;
  /// Returns what an option sends over each kind of links.
  std::span<const LinkUse> uses(const CollectiveOption& option) const {
    return std::span(terms_.uses)
        .subspan(static_cast<std::size_t>(option.first), static_cast<std::size_t>(option.end - option.first));
  }

 private:
  Seconds exchange_seconds(const CollectiveOption& messages) const;
  /// Returns the share of the seconds of an option that can overlap with computation.
  double overlap(const CollectiveOption& option) const;
  double seconds(const LinkUse& use) const {
    const LinkRate& link = rate(use);
    return use.rounds * link.latency + std::max(use.bytes * link.per_byte, use.of_unit * link.per_byte_of_unit);
  }
  template <class Time, class Of>
  Time in_turn(std::span<const LinkUse> uses, Of&& of) const;

  const CostTerms& terms_;
  const Machine& machine_;
  double memory_;  // bytes per second of a rank
  double gamma_;   // seconds to add a byte
  struct KernelRate {
    double peak = 0;                 // operations per second
    const Curve* reached = nullptr;  // the share of the peak; null if it is all of it
    double width = 0;                // Efficiency::width
  };
  std::array<KernelRate, 3> kernels_;   // by KernelKind
  std::vector<const Curve*> measured_;  // by route
  std::vector<LinkRate> links_;         // by link
};

}  // namespace partita
