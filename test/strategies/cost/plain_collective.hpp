#pragma once

#include "partita/base/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

namespace partita::test {

/// Seconds of a collective among p ranks on n bytes of the full vector, by its cheapest algorithm: a message of b bytes
/// takes alpha + b beta, b bytes are added in b gamma. Closed forms of Thakur, Rabenseifner and Gropp 2005, section 3;
/// Bruck et al. 1997. Where p is no power of two, recursive algorithms first pair the ranks beyond it with others, so
/// that a power of two is left (the same paper), and tell them the result at the end.
struct PlainCollective {
  int p;
  double n, alpha, beta, gamma;

  double seconds(Verb verb) const {
    const double doubling = std::log2(core()), depth = std::ceil(std::log2(p)), ring = (p - 1) * alpha + part(p) * beta;
    switch (verb) {
      case Verb::all_reduce:
        return std::min({doubling * (alpha + n * beta + n * gamma) + fold(n, n),                 // doubling
                         2 * doubling * alpha + part(core()) * (2 * beta + gamma) + fold(n, n),  // Rabenseifner
                         2 * ring + part(p) * gamma,                                             // ring
                         depth * (alpha + n * beta + n * gamma) + depth * (alpha + n * beta)});  // binomial tree
      case Verb::all_gather:
        return std::min({ring, depth * alpha + part(p) * beta /* Bruck */,
                         doubling * alpha + largest_halves() * beta + fold_blocks(n / p, n)});  // recursive doubling
      case Verb::reduce_scatter:
        return std::min(ring + part(p) * gamma, doubling * alpha + largest_halves() * (beta + gamma) +
                                                    fold_blocks(n, n / p) +
                                                    (rest() > 0 ? n * gamma : 0));  // recursive halving
      default: ADD_FAILURE() << "no layer runs " << name(verb); return 0;
    }
  }

 private:
  /// The largest power of two among p ranks, and how many there are beyond it.
  int core() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(p))); }
  int rest() const { return p - core(); }
  /// All of n but one of `blocks` equal blocks.
  double part(int blocks) const { return n * (blocks - 1) / blocks; }
  /// Folding a sum: a vector there, which is added, and the result back.
  double fold(double there, double back) const { return rest() > 0 ? fold_blocks(there, back) + there * gamma : 0; }
  double fold_blocks(double there, double back) const { return rest() > 0 ? 2 * alpha + (there + back) * beta : 0; }
  /// Bytes of log2(core) rounds in which halves of 1, 2, 4, ... places pass, each time of the places that hold most: a
  /// place that acts for two ranks has two blocks of n/p.
  double largest_halves() const {
    std::vector<double> blocks(static_cast<std::size_t>(core()), 1);
    std::fill_n(blocks.begin(), rest(), 2);
    double sum = 0;
    for (std::ptrdiff_t places = 1; places < core(); places *= 2) {
      double largest = 0;
      for (auto at = blocks.begin(); at != blocks.end(); at += places)
        largest = std::max(largest, std::accumulate(at, at + places, 0.0));
      sum += largest;
    }
    return sum * n / p;
  }
};

}  // namespace partita::test
