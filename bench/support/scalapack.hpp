#pragma once

// The distributed product of bare ScaLAPACK.

#include <vector>

namespace partita::bench {

/// C[n n] = A B by psgemm on `rows` x `columns` ranks, in a block-cyclic layout with blocks of `block`.
/// Collective: every rank of MPI_COMM_WORLD, which has rows x columns ranks, makes all calls.
class ScalapackProduct {
 public:
  ScalapackProduct(int n, int rows, int columns, int block);
  ~ScalapackProduct();
  ScalapackProduct(const ScalapackProduct&) = delete;
  ScalapackProduct& operator=(const ScalapackProduct&) = delete;
  void run();

 private:
  int n_, context_ = 0;
  int description_[9] = {};
  std::vector<float> a_, b_, c_;
};

}  // namespace partita::bench
