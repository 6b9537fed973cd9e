#include "src/device/rows.hpp"

namespace partita {

namespace {

/// Moves `at` to the next row of `box` in row-major order. Returns false after the last row.
bool advance(std::array<Index, max_dims>& at, const Box& box) {
  for (int d = box.dims() - 2; d >= 0; --d) {
    auto& x = at[d];
    if (++x < box[d].hi) return true;
    x = box[d].lo;
  }
  return false;
}

Index row_major(const std::array<Index, max_dims>& at, const Shape& shape) {
  Index index = 0;
  for (int d = 0; d < shape.dims(); ++d) index = index * shape.extent(d) + at[d];
  return index;
}

}  // namespace

void for_rows(const Tensor& tensor, const Shape& global, const std::function<void(const Row&)>& f) {
  const Box& box = tensor.box();
  require(box.dims() == global.dims(), "the box must have the dimensions of the shape");
  if (box.dims() == 0) return f({0, 1, 0, 1});  // a scalar is one row
  if (box.empty()) return;
  std::array<Index, max_dims> at{};
  for (int d = 0; d < box.dims(); ++d) at[d] = box[d].lo;
  const int last = box.dims() - 1;
  do f({tensor.offset(at), tensor.stride(last), row_major(at, global), box.extent(last)});
  while (advance(at, box));
}

}  // namespace partita
