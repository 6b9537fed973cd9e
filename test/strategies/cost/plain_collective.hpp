#pragma once

#include "partita/base/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace partita::test {

/// What a collective meets at one level of the network: so many of its ranks in a unit of this level, of which `inside`
/// share a unit of the level below; `groups` collectives alike share that unit. A rank's byte takes beta seconds if it
/// is alone, and longer if more ranks send than links can be busy.
struct PlainLevel {
  int ranks, inside;
  double groups, alpha, beta, busy_links;
  /// Seconds of the switches to add a byte that a link brings, or a negative number if they cannot.
  double added = -1;

  double seconds(double rounds, double bytes, double senders) const {
    return rounds * alpha + bytes * beta * std::max(1., senders / busy_links);
  }
  /// All ranks of a unit send, or one of each collective.
  double by_all(double rounds, double bytes) const { return seconds(rounds, bytes, groups * inside); }
  double by_one(double rounds, double bytes) const { return seconds(rounds, bytes, groups); }
  int units() const { return static_cast<int>(std::ceil(static_cast<double>(ranks) / inside)); }
};

/// Seconds of a collective among p ranks on n bytes of the full vector, by the cheapest way: a message of b bytes takes
/// alpha + b beta, b bytes are added in b gamma. Forms of Thakur, Rabenseifner and Gropp 2005, section 3; Bruck et al.
/// 1997. Where p is no power of two, recursive algorithms first pair the ranks beyond it with others, so that a power
/// of two is left (the same paper), and tell them the result at the end. Each message is priced by the level that it
/// crosses on the path of the first rank, and by who else sends.
struct PlainCollective {
  int p;
  double n, gamma;
  std::vector<PlainLevel> levels;  ///< with more than one unit, from the inside out; the last one has all p ranks
  bool innermost;                  ///< the last of them is the innermost of the machine

  double seconds(Verb verb) const {
    switch (verb) {
      case Verb::all_reduce: return std::min({all_reduce_flat(), one_shot(), all_reduce_by_levels(), in_network()});
      case Verb::all_gather: return std::min(all_gather_flat(), gather_by_levels());
      case Verb::reduce_scatter: return std::min(reduce_scatter_flat(), scatter_by_levels());
      default: ADD_FAILURE() << "no layer runs " << name(verb); return 0;
    }
  }

 private:
  static constexpr double never = 1e30;

  const PlainLevel& top() const { return levels.back(); }
  /// The level that a message to the rank at a distance crosses.
  const PlainLevel& at(int distance) const {
    for (const PlainLevel& level : levels)
      if (distance < level.ranks) return level;
    return top();
  }
  double pair(int distance, double bytes) const { return at(distance).by_all(1, bytes); }
  /// Rounds in which every rank sends to its neighbor, at the pace of the slowest border; each of `rings` of a unit
  /// has its share of the bytes.
  double ring(double rounds, double bytes, bool all_links = false) const {
    double slowest = 0;
    for (const PlainLevel& level : levels)
      slowest = std::max(slowest, all_links ? level.by_all(rounds, bytes / level.inside) : level.by_one(rounds, bytes));
    return slowest;
  }

  /// The largest power of two among p ranks, and how many there are beyond it.
  static int core(int ranks) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks))); }
  int core() const { return core(p); }
  int rest() const { return p - core(); }
  /// The first rank of a place: places below the rest have two ranks.
  int first_rank(int place) const { return place + std::min(place, rest()); }
  /// All of n but one of `blocks` equal blocks.
  double part(int blocks) const { return n * (blocks - 1) / blocks; }
  /// Folding a sum: a vector there, which is added, and the result back.
  double fold(double there, double back) const { return rest() > 0 ? pair(1, there) + pair(1, back) : 0; }
  double fold_sum(double there, double back) const { return fold(there, back) + (rest() > 0 ? there * gamma : 0); }
  /// Blocks of the places 0 to d-1.
  double blocks(int d) const { return first_rank(d); }

  template <class Of>
  double doubling(int end, Of&& of) const {
    double sum = 0;
    for (int d = 1; d < end; d *= 2) sum += of(d);
    return sum;
  }

  double all_reduce_flat() const {
    const double recursive =
        doubling(core(), [&](int d) { return pair(first_rank(d), n) + n * gamma; }) + fold_sum(n, n);
    const double rabenseifner = doubling(core(),
                                         [&](int d) {
                                           const double half = n * d / core();
                                           return 2 * pair(first_rank(d), half) + half * gamma;
                                         }) +
                                fold_sum(n, n);
    const double tree = doubling(p, [&](int d) { return 2 * at(d).by_one(1, n) + n * gamma; });
    return std::min({recursive, rabenseifner, tree, ring(2 * (p - 1), 2 * part(p)) + part(p) * gamma});
  }

  double all_gather_flat() const {
    const double recursive = doubling(core(), [&](int d) { return pair(first_rank(d), blocks(d) * n / p); });
    const double bruck = doubling(p, [&](int d) {
      return top().seconds(1, std::min(d, p - d) * n / p, top().groups * std::min(d, top().inside));
    });
    return std::min({recursive + fold(n / p, n), bruck, ring(p - 1, part(p))});
  }

  double reduce_scatter_flat() const {
    const double recursive =
        doubling(core(), [&](int d) { return pair(first_rank(d), blocks(d) * n / p) + blocks(d) * n / p * gamma; });
    double pairwise = part(p) * gamma;  // the peers of each level one after the other
    for (const PlainLevel& level : levels) {
      const int peers = level.ranks - level.inside;
      pairwise += level.by_all(peers, peers * n / p);
    }
    return std::min({recursive + fold_sum(n, n / p), pairwise, ring(p - 1, part(p)) + part(p) * gamma});
  }

  double one_shot() const {
    return innermost && p <= 8 ? top().seconds(1, (p - 1) * n, 1) + (p - 1) * n * gamma : never;
  }

  /// The collective of one level's units, of one rank's share of n.
  PlainCollective of_units(const PlainLevel& level) const {
    PlainLevel flat{level.units(), 1, level.groups * level.inside, level.alpha, level.beta, level.busy_links};
    return {level.units(), n / level.inside, gamma, {flat}, false};
  }
  double ring_scatter() const { return top().by_all(p - 1, part(p)) + part(p) * gamma; }
  double ring_gather() const { return top().by_all(p - 1, part(p)); }
  double halving_scatter() const {
    return doubling(core(), [&](int d) { return top().by_all(1, blocks(d) * n / p) + blocks(d) * n / p * gamma; }) +
           fold_sum(n, n / p);
  }
  double doubling_gather() const {
    return doubling(core(), [&](int d) { return top().by_all(1, blocks(d) * n / p); }) + fold(n / p, n);
  }

  double all_reduce_by_levels() const {
    if (levels.size() == 1) return never;
    double rings = 0, halves = 0;
    for (const PlainLevel& level : levels) {
      const PlainCollective units = of_units(level);
      const double m = units.n, k = units.p;
      if (&level != &top()) {
        rings += units.ring_scatter() + units.ring_gather();
        halves += units.halving_scatter() + units.doubling_gather();
      } else {
        rings += level.by_all(2 * (k - 1), 2 * units.part(units.p)) + units.part(units.p) * gamma;
        halves += units.doubling(units.core(), [&](int d) {
          const double half = m * d / units.core();
          return 2 * level.by_all(1, half) + half * gamma;
        }) + units.fold_sum(m, m);
      }
    }
    return std::min({rings, halves, ring(2 * (p - 1), 2 * part(p), true) + part(p) * gamma});
  }

  double gather_by_levels() const {
    if (levels.size() == 1) return never;
    double rings = 0, doubles = 0;
    for (const PlainLevel& level : levels) {
      rings += of_units(level).ring_gather();
      doubles += of_units(level).doubling_gather();
    }
    return std::min({rings, doubles, ring(p - 1, part(p), true)});
  }

  double scatter_by_levels() const {
    if (levels.size() == 1) return never;
    double rings = 0, halves = 0;
    for (const PlainLevel& level : levels) {
      rings += of_units(level).ring_scatter();
      halves += of_units(level).halving_scatter();
    }
    return std::min({rings, halves, ring(p - 1, part(p), true) + part(p) * gamma});
  }

  /// Rings inside units; the switches of the outermost level add.
  double in_network() const {
    if (top().added < 0) return never;
    double seconds = 0;
    for (const PlainLevel& level : levels)
      if (&level != &top()) seconds += of_units(level).ring_scatter() + of_units(level).ring_gather();
    PlainLevel switches = top();
    switches.beta = std::max(top().beta, top().added);
    return seconds + switches.by_all(2, n / top().inside);
  }
};

}  // namespace partita::test
