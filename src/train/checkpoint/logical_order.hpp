#pragma once

#include "partita/base/dispatch.hpp"
#include "partita/device/tensor.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace partita {

/// Returns the element type in a file: f64, f32 or i32. f32 represents every bf16 and f16 exactly.
inline DType stored(DType dtype) { return dtype == DType::f64 || dtype == DType::i32 ? dtype : DType::f32; }

/// Calls f(offset) for each element in logical order, with the element's offset in the tensor.
template <class F>
void for_elements(const Tensor& tensor, F&& f) {
  std::array<Index, max_dims> extent, stride;
  extent.fill(1);
  stride.fill(0);
  const int dims = tensor.box().dims();
  for (int d = 0; d < dims; ++d) {
    extent[max_dims - dims + d] = tensor.box().extent(d);
    stride[max_dims - dims + d] = tensor.stride(d);
  }
  for (Index a = 0; a < extent[0]; ++a)
    for (Index b = 0; b < extent[1]; ++b)
      for (Index c = 0; c < extent[2]; ++c)
        for (Index d = 0; d < extent[3]; ++d)
          for (Index e = 0; e < extent[4]; ++e)
            f(a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3] + e * stride[4]);
}

/// Returns true if the tensor's memory is equal to its bytes in a file: in logical order and in the stored type.
inline bool is_logical(const Tensor& tensor) {
  Index stride = 1;
  for (int d = tensor.box().dims() - 1; d >= 0; stride *= tensor.box().extent(d--))
    if (tensor.box().extent(d) > 1 && tensor.stride(d) != stride) return false;
  return stored(tensor.dtype()) == tensor.dtype();
}

/// Returns the tensor's elements in logical order and in the stored type: in the tensor's memory if possible, else
/// converted in `room`.
inline std::span<const std::byte> to_logical(const Tensor& tensor, std::vector<std::byte>& room) {
  if (is_logical(tensor)) return {tensor.data(), static_cast<std::size_t>(tensor.bytes())};
  const Tensor converted = convert(tensor, stored(tensor.dtype()), {});
  room.resize(static_cast<std::size_t>(converted.bytes()));
  dispatch(converted.dtype(), [&](auto t) {
    auto* next = reinterpret_cast<decltype(t)*>(room.data());
    for_elements(converted, [&](Index offset) { *next++ = converted.as<decltype(t)>()[offset]; });
  });
  return room;
}

/// The inverse of `to_logical`: `read(place)` must write the elements to `place`.
template <class Read>
void from_logical(const Tensor& tensor, Read&& read) {
  if (is_logical(tensor)) return read(tensor.data());
  const Tensor dense(stored(tensor.dtype()), "F", Box(Shape{{'F', tensor.volume()}}));
  const Tensor converted(stored(tensor.dtype()), tensor.names(), tensor.box());
  read(dense.data());
  dispatch(converted.dtype(), [&](auto t) {
    const auto* next = dense.as<decltype(t)>();
    for_elements(converted, [&](Index offset) { converted.as<decltype(t)>()[offset] = *next++; });
  });
  unpack(convert(converted, tensor.dtype(), {}).data(), tensor.box(), tensor, {});
}

}  // namespace partita
