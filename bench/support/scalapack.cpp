#include "bench/support/scalapack.hpp"

extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* at, const int* source, const int* count);
void descinit_(int* description, const int* m, const int* n, const int* block_m, const int* block_n, const int* row,
               const int* column, const int* context, const int* lead, int* info);
void psgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
             const float* alpha, const float* a, const int* ia, const int* ja, const int* desc_a, const float* b,
             const int* ib, const int* jb, const int* desc_b, const float* beta, float* c, const int* ic, const int* jc,
             const int* desc_c);
}

namespace partita::bench {

ScalapackProduct::ScalapackProduct(int n, int rows, int columns, int block) : n_(n) {
  Cblacs_get(-1, 0, &context_);
  Cblacs_gridinit(&context_, "Row", rows, columns);
  int row = 0, column = 0, zero = 0, info = 0;
  Cblacs_gridinfo(context_, &rows, &columns, &row, &column);
  const int height = numroc_(&n, &block, &row, &zero, &rows), width = numroc_(&n, &block, &column, &zero, &columns);
  const int lead = height > 1 ? height : 1;
  descinit_(description_, &n, &n, &block, &block, &zero, &zero, &context_, &lead, &info);
  for (auto* matrix : {&a_, &b_, &c_})
    matrix->assign(static_cast<std::size_t>(lead) * static_cast<std::size_t>(width), 0.5F);
}

ScalapackProduct::~ScalapackProduct() { Cblacs_gridexit(context_); }

void ScalapackProduct::run() {
  const float alpha = 1, beta = 0;
  const int one = 1;
  psgemm_("N", "N", &n_, &n_, &n_, &alpha, a_.data(), &one, &one, description_, b_.data(), &one, &one, description_,
          &beta, c_.data(), &one, &one, description_);
}

}  // namespace partita::bench
