#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/layouts/product/product.hpp"

#include <vector>

namespace partita {

/// One rank's side of a planned product: what it gathers of A and B slab by slab, what it multiplies, what it sums of C.
class Product {
 public:
  Product(ProductPlan plan, int rank);

  /// C = A B, or C += A B. The tensors hold what the rank owns of the plan's layouts. Collective over the grid.
  void run(Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b, const Tensor& c, Write write,
           Stream stream = {}) const;
  const ProductPlan& plan() const { return plan_; }

 private:
  /// A part of an operand: what is multiplied of it, and what is gathered for that, if it does not lie here.
  struct Part {
    Box used, gathered;
    TransferPlan transfer;
  };
  class Operand;
  class Run;

  std::vector<Part> parts(const ProductOperand& operand, const Layout& used, int rank) const;

  ProductPlan plan_;
  std::vector<Part> a_, b_;          // one a slab, or one of everything
  std::vector<Box> c_;               // what is made in each slab
  std::vector<TransferPlan> sums_;   // of each part of c
  std::vector<std::size_t> panels_;  // how many slabs each one has
  Box made_;
  bool k_is_empty_;  // or something else: nothing is multiplied
};

}  // namespace partita
