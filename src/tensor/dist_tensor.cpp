#include "partita/tensor/dist_tensor.hpp"

#include "partita/base/dispatch.hpp"
#include "src/device/rows.hpp"

namespace partita {

DistTensor::DistTensor(Layout its_layout, int rank, DType dtype, const std::shared_ptr<Allocator>& allocator,
                       MemoryClass memory)
    : layout(std::move(its_layout)), local(dtype, layout.shape().names(), layout.owned(rank), allocator, memory) {}

void fill(const Tensor& tensor, const Shape& global, const std::function<double(Index)>& f) {
  dispatch(tensor.dtype(), [&](auto t) {
    using T = decltype(t);
    for_rows(tensor, global, [&](const Row& row) {
      for (Index i = 0; i < row.length; ++i)
        tensor.as<T>()[row.offset + i * row.stride] = static_cast<T>(f(row.first + i));
    });
  });
}

}  // namespace partita
