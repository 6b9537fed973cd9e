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
  /// Returns the share of the seconds of one of the options that can overlap with computation.
  double overlap(const Movement& movement, int number) const;
  /// Returns the bytes per second that a rank reads or writes.
  double memory_bandwidth() const { return memory_; }
  /// Returns the seconds to add bytes to as many others.
  double combining_seconds(double bytes) const { return bytes * gamma_; }
  /// One of the options of a collective, and the seconds of one call.
  struct Choice {
    int number = 0;
    double seconds = 0;
  };
  /// Returns the cheapest option of a collective.
  Choice cheapest(const Movement& movement) const;
  /// Returns the number of ways to run a movement.
  int options(const Movement& movement) const { return (movement.end - movement.first) / movement.kinds; }
  /// Returns one of them, as the ranks run it that take longest.
  const CollectiveOption& option(const Movement& movement, int number) const;
  /// Returns the seconds of one call by one of them.
  double seconds(const Movement& movement, int number) const;
  /// Returns what the ranks send over each kind of links. If they lie in different ways, they wait for those that take
  /// longest: by levels in each round, since units wait for each other; in a flat collective until the end, since each
  /// rank waits for its own partners only.
  std::vector<LinkUse> waited_for(const Movement& movement, int number) const;
  /// Returns the share of the machine's peak that a kernel reaches.
  double share(const KernelTerm& kernel) const;
  /// Returns the seconds of one kernel, which moves `bytes` through memory, at the machine's rates.
  double seconds(const KernelTerm& kernel, double bytes) const;

  /// Calls f(movement, seconds, hidden) for each movement of a rank. `hidden` is the part of its seconds that hides
  /// behind the computing of `cost`, of which earlier movements have used some.
  template <class F>
  void each_movement(const RankTerms& rank, const LayerCost& cost, F&& f) const {
    const double recomputed = rank.kernel.recomputes ? cost.forward.compute : 0;
    std::array<double, 4> unused{cost.forward.compute, cost.backward_data.compute - recomputed,
                                 cost.backward_filter.compute, recomputed};  // by Computation
    for (const LayerMovement& each : rank.movements) {
      const Seconds taken = seconds(each.movement);
      double hidden = 0;
      if (each.hidden_by) {
        double& room = unused[static_cast<std::size_t>(*each.hidden_by)];
        hidden = std::min(taken.hidden(), room);
        room -= hidden;
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
  double seconds(const LinkUse& use) const { return use.rounds * rate(use).latency + use.bytes * rate(use).per_byte; }
  /// As one of the kinds of ranks runs it.
  const CollectiveOption& of_kind(const Movement& movement, int kind, int number) const {
    const int first = kind == 0 ? movement.first : movement.first + kind * options(movement);
    return terms_.options[first + number];
  }

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
