#pragma once

#include "partita/base/types.hpp"
#include "partita/comm/communicator.hpp"

#include <cstring>
#include <span>
#include <vector>

namespace partita {

/// A buffer divided into consecutive blocks of `counts` elements.
template <class Byte>
class Blocks {
 public:
  Blocks(Byte* data, std::span<const Index> counts, DType dtype) : data_(data), bounds_(counts.size() + 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) bounds_[i + 1] = bounds_[i] + counts[i] * size_of(dtype);
  }
  std::span<Byte> operator[](int block) const { return range(block, block + 1); }
  /// Returns the bytes of the blocks `first` to `last` - 1, which are contiguous.
  std::span<Byte> range(int first, int last) const {
    const Index begin = bounds_[first], end = bounds_[last];
    return {data_ + begin, static_cast<std::size_t>(end - begin)};
  }
  std::span<Byte> all() const { return range(0, static_cast<int>(bounds_.size()) - 1); }

 private:
  Byte* data_;
  std::vector<Index> bounds_;
};

inline Blocks<const std::byte> blocks_of(const void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<const std::byte*>(data), counts, dtype};
}
inline Blocks<std::byte> blocks_of(void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<std::byte*>(data), counts, dtype};
}

inline std::span<std::byte> buffer_of(void* data, Index count, DType dtype) {
  return {static_cast<std::byte*>(data), static_cast<std::size_t>(count * size_of(dtype))};
}

inline void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  require(from.size() == to.size(), "a copied block must keep its size");
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

/// Computes to = op(to, from) element by element, rounded to the dtype.
void combine(void* to, const void* from, Index count, DType dtype, ReduceOp op);

/// Combines values that are given as bytes.
struct Combining {
  DType dtype;
  ReduceOp op;

  void operator()(std::span<std::byte> to, std::span<const std::byte> from) const {
    require(to.size() == from.size(), "combined buffers must have the same size");
    combine(to.data(), from.data(), static_cast<Index>(to.size()) / size_of(dtype), dtype, op);
  }
};

}  // namespace partita
