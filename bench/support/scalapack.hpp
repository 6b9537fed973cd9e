#pragma once

// ScaLAPACK's distributed product with nothing around it.

#include <vector>

namespace partita::bench {

/// C[n n] = A B by psgemm on `rows` x `columns` ranks, blocks of `block` dealt out cyclically. Collective over
/// MPI_COMM_WORLD, which has rows x columns ranks.
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
