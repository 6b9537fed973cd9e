#pragma once

#include "partita/base/transfer.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <array>
#include <optional>
#include <vector>

namespace partita {

/// What one rank does in one step of a ring: it computes, while what the next step needs and what the step before left
/// travel. Boxes are those of keys and values; boxes of queries have the same places. Both ranks of a message list it
/// in the same step.
struct RingStep {
  /// What travels. In a step, messages start in this order on all ranks.
  enum Part : std::uint8_t {
    block,    ///< keys and values: to the rank that computes with them in the next step
    sum,      ///< backward: what the ranks so far have added to the gradient of the block of the step before
    own_sum,  ///< backward: the same, from the last rank that adds to it to the rank that has the block
    queries,  ///< queries of the rank that is helped in the next step
    results,  ///< what was computed of queries in the step before, to the rank that has them
  };
  /// What a rank sends of a part, and what it receives.
  struct Move {
    std::optional<Transfer> send = std::nullopt, receive = std::nullopt;
  };
  std::optional<Box> keys = std::nullopt;  ///< with which it computes: its own ones, or those that visit it
  Box computed{};                          ///< the queries of which it computes: its own ones, or those of another rank
  std::array<Move, results + 1> moves{};
};

/// What a rank exchanges in a pass.
struct RingTraffic {
  std::vector<PeerTraffic> peers;
  int hops = 0;  ///< the steps in which it sends or in which it receives, whichever are more
};

/// Blocks of a sequence that travel around the ranks that share it, while each rank computes with the block that it
/// has: keys and values, which the queries of all ranks must meet (Liu, Zaharia and Abbeel, "Ring Attention with
/// Blockwise Transformers for Near-Infinite Context", 2023).
///
///     step     0   1   2   3          step    0   1   2   3     causal: a rank needs its own block and those
///     rank 0  b0  b3  b2  b1          rank 0  b0                before it, so that blocks go up alone, and a
///     rank 1  b1  b0  b3  b2          rank 1  b1  b0            block ends at the last rank
///     rank 2  b2  b1  b0  b3          rank 2  b2  b1  b0
///     rank 3  b3  b2  b1  b0          rank 3  b3  b2  b1  b0
///
/// The gradient of a block begins at the rank that meets it in step 1. It follows the block from rank to rank, and goes
/// home from the last of them. Ranks without places take no part.
///
/// In a balanced causal ring of p ranks, blocks go up p/2 ranks. A rank that has no block to meet helps a later one: it
/// gets queries q of that rank, computes what these take from its own block, and returns the results (Li et al.,
/// "DistFlashAttn", 2024). If p is even, both ranks of a pair meet in the last step. Each computes half of the queries.
///
///     step        0        1        2         step       0        1        2
///     rank 0  q0 b0    q4 b0    q3 b0         rank 0  q0 b0    q3 b0   ½q2 b0
///     rank 1  q1 b1    q1 b0    q4 b1         rank 1  q1 b1    q1 b0   ½q3 b1
///     rank 2  q2 b2    q2 b1    q2 b0         rank 2  q2 b2    q2 b1   ½q2 b0
///     rank 3  q3 b3    q3 b2    q3 b1         rank 3  q3 b3    q3 b2   ½q3 b1
///     rank 4  q4 b4    q4 b3    q4 b2
struct Ring {
  Layout blocks;          ///< of what travels, N C L, with L cut: each rank's block at the beginning
  Index row = 1;          ///< elements of a block that follow one another in the tensor from which it leaves
  bool causal = false;    ///< a place meets itself and those before it
  bool balanced = false;  ///< causal: ranks with few blocks to meet help others
  Index queries = 0;      ///< numbers of queries, and as many of results, that a row of keys and values meets
  Index heads = 0;        ///< heads of these queries; in backward each has a number more

  /// The axes along which blocks travel.
  AxisSet axes() const { return blocks.sharding('L'); }
  /// True if there are ranks between which blocks could travel.
  bool moves() const { return blocks.grid().group_size(axes()) > 1; }
  /// Returns the steps of a rank. One that meets no other rank has one step, with its own block.
  std::vector<RingStep> steps(int rank) const;
  /// Returns the last rank of the ring of `rank`. In a causal ring of equal blocks, none has more work, or more to send
  /// or to receive.
  int last(int rank) const;
  /// Returns the times that a rank's work is that of the queries of its own block with the keys of its own block.
  double work(int rank) const;
  /// Returns what a rank exchanges of blocks and queries in a forward or a backward. An element has `element` bytes, a
  /// log of sums `sum` bytes.
  RingTraffic traffic(int rank, bool back, Index element, Index sum) const;
  /// Returns what it exchanges of results: outputs with logs of sums in a forward, gradients in a backward. A number
  /// has `sum` bytes.
  RingTraffic result_traffic(int rank, bool back, Index sum) const;
  /// Returns the most bytes that a rank holds at once of what travels. An element has `element` bytes, a number of
  /// results `sum` bytes. `packs`: messages of boxes that are not contiguous pass through buffers.
  Index workspace(int rank, bool back, Index element, Index sum, bool packs) const;
  /// Returns this ring on another grid with the same axes.
  Ring on(const Grid& grid) const {
    Ring ring = *this;
    ring.blocks = blocks.on(grid);
    return ring;
  }
  bool operator==(const Ring&) const = default;

 private:
  std::vector<int> members(int rank) const;
};

/// True if a rank adds to results of its own queries after the first step.
bool adds_results(const std::vector<RingStep>& steps);

}  // namespace partita
