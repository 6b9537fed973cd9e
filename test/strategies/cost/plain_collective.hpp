#pragma once

#include "partita/base/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <vector>

namespace partita::test {

/// Seconds of messages, for how many of them the rank cannot compute, and seconds in which it adds what has come. It
/// can compute during the same share of these.
struct PlainTime {
  double messages = 0, waits = 0, adds = 0;
  double total() const { return messages + adds; }
  double exposed() const { return messages > 0 ? total() * waits / messages : total(); }
  PlainTime operator+(const PlainTime& other) const {
    return {messages + other.messages, waits + other.waits, adds + other.adds};
  }
  PlainTime operator*(double times) const { return {messages * times, waits * times, adds * times}; }
  bool operator<(const PlainTime& other) const { return total() < other.total(); }
};

/// What a collective meets at one level of the network: so many of its ranks in a unit of this level, of which `inside`
/// share a unit of the level below, and in how many of those they lie; `groups` collectives alike share that unit. A
/// rank's byte takes beta seconds if it is alone, and longer if more ranks send than links can be busy. The rank can
/// compute for the share `overlap` of them.
struct PlainLevel {
  int ranks, inside, units;
  double groups, alpha, beta, busy_links, overlap;
  /// Seconds of the switches to add a byte that a link brings, or a negative number if they cannot.
  double added = -1;

  PlainTime time(double rounds, double bytes, double senders) const {
    const double seconds = rounds * alpha + bytes * beta * std::max(1., senders / busy_links);
    return {seconds, seconds * (1 - overlap), 0};
  }
  /// All ranks of a unit send, or one of each collective.
  PlainTime by_all(double rounds, double bytes) const { return time(rounds, bytes, groups * inside); }
  PlainTime by_one(double rounds, double bytes) const { return time(rounds, bytes, groups); }
};

/// Seconds of a collective among p ranks on n bytes of the full vector, by the cheapest way: a message of b bytes takes
/// alpha + b beta, b bytes are added in b gamma. Forms of Thakur, Rabenseifner and Gropp 2005, section 3; Bruck et al.
/// 1997. Where p is no power of two, recursive algorithms first pair the ranks beyond it with others, so that a power
/// of two is left (the same paper), and tell them the result at the end. Each message is priced by the level that it
/// crosses on the path of the first rank, and by who else sends. Each unit of a level holds equally many of the ranks.
struct PlainCollective {
  int p;
  double n, gamma;
  std::vector<PlainLevel> levels;  ///< with more than one unit, from the inside out; the last one has all p ranks
  bool innermost;                  ///< the last of them is the innermost of the machine

  /// The times of all ways.
  std::vector<PlainTime> times(Verb verb) const {
    switch (verb) {
      case Verb::all_reduce: return all({all_reduce_flat(), {one_shot()}, all_reduce_by_levels(), {in_network()}});
      case Verb::all_gather: return all({all_gather_flat(), gather_by_levels()});
      case Verb::reduce_scatter: return all({reduce_scatter_flat(), scatter_by_levels()});
      default: ADD_FAILURE() << "no layer runs " << name(verb); return {};
    }
  }

 private:
  using Times = std::vector<PlainTime>;
  static constexpr PlainTime never{1e30, 1e30, 0};

  static Times all(std::initializer_list<Times> lists) {
    Times joined;
    for (const Times& list : lists) joined.insert(joined.end(), list.begin(), list.end());
    return joined;
  }
  PlainTime adding(double bytes) const { return {0, 0, bytes * gamma}; }
  const PlainLevel& top() const { return levels.back(); }
  /// The level that a message to the rank at a distance crosses.
  const PlainLevel& at(int distance) const {
    for (const PlainLevel& level : levels)
      if (distance < level.ranks) return level;
    return top();
  }
  PlainTime pair(int distance, double bytes) const { return at(distance).by_all(1, bytes); }
  /// Rounds in which every rank sends to its neighbor, at the pace of the slowest border; each of `rings` of a unit
  /// has its share of the bytes.
  PlainTime ring(double rounds, double bytes, bool all_links = false) const {
    PlainTime slowest;
    for (const PlainLevel& level : levels) {
      const PlainTime time = all_links ? level.by_all(rounds, bytes / level.inside) : level.by_one(rounds, bytes);
      slowest = {std::max(slowest.messages, time.messages), std::max(slowest.waits, time.waits), 0};
    }
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
  PlainTime fold(double there, double back) const { return rest() == 0 ? PlainTime() : pair(1, there) + pair(1, back); }
  PlainTime fold_sum(double there, double back) const {
    return rest() == 0 ? PlainTime() : fold(there, back) + adding(there);
  }
  /// Blocks of the places 0 to d-1.
  double blocks(int d) const { return first_rank(d); }

  template <class Of>
  PlainTime doubling(int end, Of&& of) const {
    PlainTime all;
    for (int d = 1; d < end; d *= 2) all = all + of(d);
    return all;
  }

  Times all_reduce_flat() const {
    const PlainTime recursive =
        fold_sum(n, n) + doubling(core(), [&](int d) { return pair(first_rank(d), n) + adding(n); });
    const PlainTime rabenseifner = doubling(core(),
                                            [&](int d) {
                                              const double half = n * d / core();
                                              return pair(first_rank(d), half) * 2 + adding(half);
                                            }) +
                                   fold_sum(n, n);
    const PlainTime tree = doubling(p, [&](int d) { return at(d).by_one(1, n) * 2 + adding(n); });
    return {recursive, rabenseifner, tree, ring(2 * (p - 1), 2 * part(p)) + adding(part(p))};
  }

  Times all_gather_flat() const {
    const PlainTime recursive = doubling(core(), [&](int d) { return pair(first_rank(d), blocks(d) * n / p); });
    const PlainTime bruck = doubling(
        p, [&](int d) { return top().time(1, std::min(d, p - d) * n / p, top().groups * std::min(d, top().inside)); });
    return {recursive + fold(n / p, n), bruck, ring(p - 1, part(p))};
  }

  Times reduce_scatter_flat() const {
    const PlainTime recursive =
        doubling(core(), [&](int d) { return pair(first_rank(d), blocks(d) * n / p) + adding(blocks(d) * n / p); });
    PlainTime pairwise = adding(part(p));  // the peers of each level one after the other
    for (const PlainLevel& level : levels) {
      const int peers = level.ranks - level.inside;
      pairwise = pairwise + level.by_all(peers, peers * n / p);
    }
    return {recursive + fold_sum(n, n / p), pairwise, ring(p - 1, part(p)) + adding(part(p))};
  }

  PlainTime one_shot() const {
    return innermost && p <= 8 ? top().time(1, (p - 1) * n, 1) + adding((p - 1) * n) : never;
  }

  /// The collective of one level's units, of one rank's share of n.
  PlainCollective of_units(const PlainLevel& level) const {
    PlainLevel flat{level.units, 1,          level.units,      level.groups * level.inside,
                    level.alpha, level.beta, level.busy_links, level.overlap};
    return {level.units, n / level.inside, gamma, {flat}, false};
  }
  PlainTime ring_scatter() const { return top().by_all(p - 1, part(p)) + adding(part(p)); }
  PlainTime ring_gather() const { return top().by_all(p - 1, part(p)); }
  PlainTime halving_scatter() const {
    return doubling(core(), [&](int d) { return top().by_all(1, blocks(d) * n / p) + adding(blocks(d) * n / p); }) +
           fold_sum(n, n / p);
  }
  PlainTime doubling_gather() const {
    return doubling(core(), [&](int d) { return top().by_all(1, blocks(d) * n / p); }) + fold(n / p, n);
  }

  Times all_reduce_by_levels() const {
    if (levels.size() == 1) return {};
    PlainTime rings, halves;
    for (const PlainLevel& level : levels) {
      const PlainCollective units = of_units(level);
      const double m = units.n, k = units.p;
      if (&level != &top()) {
        rings = rings + units.ring_scatter() + units.ring_gather();
        halves = halves + units.halving_scatter() + units.doubling_gather();
      } else {
        rings = rings + level.by_all(2 * (k - 1), 2 * units.part(units.p)) + adding(units.part(units.p));
        halves = halves + units.doubling(units.core(), [&](int d) {
          const double half = m * d / units.core();
          return level.by_all(1, half) * 2 + adding(half);
        }) + units.fold_sum(m, m);
      }
    }
    return {rings, halves, ring(2 * (p - 1), 2 * part(p), true) + adding(part(p))};
  }

  Times gather_by_levels() const {
    if (levels.size() == 1) return {};
    PlainTime rings, doubles;
    for (const PlainLevel& level : levels) {
      rings = rings + of_units(level).ring_gather();
      doubles = doubles + of_units(level).doubling_gather();
    }
    return {rings, doubles, ring(p - 1, part(p), true)};
  }

  Times scatter_by_levels() const {
    if (levels.size() == 1) return {};
    PlainTime rings, halves;
    for (const PlainLevel& level : levels) {
      rings = rings + of_units(level).ring_scatter();
      halves = halves + of_units(level).halving_scatter();
    }
    return {rings, halves, ring(p - 1, part(p), true) + adding(part(p))};
  }

  /// Rings inside units; the switches of the outermost level add.
  PlainTime in_network() const {
    if (top().added < 0) return never;
    PlainTime times;
    for (const PlainLevel& level : levels)
      if (&level != &top()) times = times + of_units(level).ring_scatter() + of_units(level).ring_gather();
    PlainLevel switches = top();
    switches.beta = std::max(top().beta, top().added);
    times = times + switches.by_all(2, n / top().inside);
    return times;
  }
};

}  // namespace partita::test
