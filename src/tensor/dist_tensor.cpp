#include "partita/tensor/dist_tensor.hpp"

#include "partita/base/dispatch.hpp"

namespace partita {

DistTensor::DistTensor(Layout its_layout, int rank, DType dtype, const std::shared_ptr<Allocator>& allocator,
                       MemoryClass memory)
    : layout(std::move(its_layout)), local(dtype, layout.shape().names(), layout.owned(rank), allocator, memory) {}

namespace {

/// Moves `at` to the next coordinates of `box` in row-major order; false behind the last.
bool advance(std::array<Index, max_dims>& at, const Box& box) {
  for (int d = box.dims() - 1; d >= 0; --d) {
    auto& x = at[static_cast<std::size_t>(d)];
    if (++x < box[d].hi) return true;
    x = box[d].lo;
  }
  return false;
}

Index row_major(const std::array<Index, max_dims>& at, const Shape& shape) {
  Index index = 0;
  for (int d = 0; d < shape.dims(); ++d) index = index * shape.extent(d) + at[static_cast<std::size_t>(d)];
  return index;
}

}  // namespace

void fill(const Tensor& tensor, const Shape& global, const std::function<double(Index)>& f) {
  const Box& box = tensor.box();
  require(box.dims() == global.dims(), "the box lies in the shape");
  if (box.empty()) return;
  std::array<Index, max_dims> at{};
  for (int d = 0; d < box.dims(); ++d) at[static_cast<std::size_t>(d)] = box[d].lo;
  dispatch(tensor.dtype(), [&](auto t) {
    using T = decltype(t);
    do tensor.as<T>()[tensor.offset(at)] = static_cast<T>(f(row_major(at, global)));
    while (advance(at, box));
  });
}

}  // namespace partita
