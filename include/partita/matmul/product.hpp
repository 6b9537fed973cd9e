#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/layouts/product/product.hpp"

#include <vector>

namespace partita {

/// One rank's part of a planned matrix product C = A B: what it gathers of A and B slab by slab, what it multiplies,
/// and what it sums of C.
class Product {
 public:
  Product(ProductPlan plan, int rank);

  /// C = A B, or C += A B. The tensors hold what the rank owns of the plan's layouts.
  /// Collective: every rank of `grid` calls it.
  void run(Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b, const Tensor& c, Write write,
           Stream stream = {}) const;
  /// C = f(A B + bias). The backend computes all of it at once where the rank multiplies once for all of C.
  void run(Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b, const Tensor& c,
           const Epilogue& epilogue, Stream stream = {}) const;
  const ProductPlan& plan() const { return plan_; }

 private:
  /// A part of an operand: the box that is multiplied, and the box that is gathered for it (empty if the rank holds all
  /// of it already).
  struct Part {
    Box used, gathered;
    TransferPlan transfer;
  };
  class Operand;
  class Run;

  std::vector<Part> parts(const ProductOperand& operand, const Layout& used, int rank) const;

  ProductPlan plan_;
  std::vector<Part> a_, b_;          // one part per slab, or a single part if panels do not cut the operand
  std::vector<Box> c_;               // the box of C that each slab contributes to
  std::vector<TransferPlan> sums_;   // for each part of C
  std::vector<std::size_t> panels_;  // number of slabs in each panel
  Box made_;
  bool k_is_empty_;  // this rank's block of A or B is empty: nothing is multiplied
};

}  // namespace partita
