#pragma once

#include "partita/comm/communicator.hpp"
#include "src/comm/levels/placement.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace partita {

/// Collectives of ranks on several nodes with equally many ranks each, in steps inside nodes and between them. Of m
/// nodes with q ranks, the ranks at the same place of all nodes form a rail, and the q rails work at once. With n bytes
/// of the full vector:
///
///     all_reduce      reduce_scatter inside, all_reduce of n/q along the rails, all_gather inside
///     reduce_scatter  reduce_scatter inside, reduce_scatter along the rails
///     all_gather      all_gather along the rails, all_gather inside
///     broadcast       along the rail of the root, and then inside
///
/// A node sends 2(m-1)/m n bytes in an all_reduce, and 2(p-1)/p n in a flat ring of p ranks (Jia et al., "Highly
/// Scalable Deep Learning Training System with Mixed-Precision", 2018). Each element is summed in the order of places
/// and then of nodes, which depends on the placement alone.
class Levels : public std::enable_shared_from_this<Levels> {
 public:
  /// Communicators of the ranks of this node, by place, and of this rank's rail, by node. The first and the last step
  /// inside a node have one each: so each of them begins its collectives in the order in which those of all levels were
  /// started, on every rank.
  struct Parts {
    std::shared_ptr<Communicator> first, rail, last;
  };
  /// @pre placement.has_levels(), and `rank` is this rank's number in it.
  Levels(Placement placement, int rank, Parts parts);

  // As in Communicator.
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op);
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype);
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype);
  Request broadcast(void* data, Index count, DType dtype, int root);

  /// Advances everything that was started, without waiting. Who waits for anything else calls it meanwhile, since other
  /// ranks may wait for a step of this one.
  void progress();
  Index shared_bytes() const { return parts_.first->shared_bytes() + parts_.last->shared_bytes(); }

  /// Sums of at most this many bytes are formed inside a node first, and then whole along every rail: two waits instead
  /// of three.
  static constexpr Index small_bytes = Index{8} << 10;

 private:
  class Waiting;
  enum Part : std::uint8_t { first, rail, last };
  struct Step {
    Part part;
    std::function<Request()> start;
  };
  /// A collective that was started.
  struct Operation {
    std::vector<std::byte> share, packed;  // of the rank, and of all ranks in the order of places
    std::vector<Step> steps;
    std::function<void()> end;
    std::size_t started = 0;  // steps
    bool waits = false;       // somebody waits for `request`
    Request request;          // the last step that was started
    bool done = false;
  };

  std::shared_ptr<Operation> packing(std::span<const Index> counts, DType dtype) const;
  Request start(std::shared_ptr<Operation> operation);
  bool may_start(std::size_t number) const;
  bool advance(std::size_t number);
  void wait(const Operation& operation);
  std::vector<Index> counts_of_rail(int place, std::span<const Index> counts) const;
  std::vector<Index> counts_of_places(std::span<const Index> counts) const;
  std::vector<int> packed_order() const;

  Placement placement_;
  int node_, place_;
  Parts parts_;
  std::deque<std::shared_ptr<Operation>> under_way_;
  bool advancing_ = false;
};

}  // namespace partita
