#pragma once

#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <optional>
#include <vector>

namespace partita {

/// What one rank does in one step of a ring. In step t it computes with the block that it has, and passes it on at the
/// same time. In a backward it adds to the gradient of that block, and passes on the gradient of the block of step t-1.
struct RingStep {
  std::optional<Box> block;       ///< of what travels; the rank's own one in step 0; nothing once all have passed
  std::optional<int> block_to;    ///< the rank that receives the block
  std::optional<int> block_from;  ///< the rank that sends the block of the next step
  std::optional<int> sum_to;      ///< backward: the rank that receives the gradient of the block of the step before
  std::optional<int> sum_from;    ///< backward: the rank that sends what others have added to the gradient of the block
  std::optional<int> own_from;    ///< backward: the rank that sends what all others have added to that of the own block
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
struct Ring {
  Layout blocks;        ///< of what travels, with a dimension L that is cut: each rank's block at the beginning
  Index row = 1;        ///< elements of a block that follow one another in the tensor from which it leaves
  bool causal = false;  ///< a place meets itself and those before it

  /// The axes along which blocks travel.
  AxisSet axes() const { return blocks.sharding('L'); }
  /// True if there are ranks between which blocks could travel.
  bool moves() const { return blocks.grid().group_size(axes()) > 1; }
  /// Returns the steps of a rank. One that meets no other rank has one step, with its own block.
  std::vector<RingStep> steps(int rank) const;
  /// Returns the last rank of the ring of `rank`. In a causal ring it has the most work, and the most to receive.
  int last(int rank) const;
  /// Returns the times that a rank's work is that of the queries of its own block with the keys of its own block.
  double work(int rank) const;
  /// Returns what a rank exchanges of blocks in a forward, or in a backward, if an element has `element` bytes.
  std::vector<PeerTraffic> traffic(int rank, Index element) const;
  /// Returns what it exchanges of gradients in a backward, if an element has `element` bytes.
  std::vector<PeerTraffic> gradient_traffic(int rank, Index element) const;
  /// Returns the most bytes that a rank holds at once of blocks that travel and, in a backward, of their gradients. An
  /// element of a block has `element` bytes; one of a gradient has `sum` bytes, and 0 stands for a forward. `packs`:
  /// messages of boxes that are not contiguous pass through buffers.
  Index workspace(int rank, Index element, Index sum, bool packs) const;
  /// Returns this ring on another grid with the same axes.
  Ring on(const Grid& grid) const { return {blocks.on(grid), row, causal}; }
  bool operator==(const Ring&) const = default;

 private:
  std::vector<int> members(int rank) const;
};

}  // namespace partita
