#pragma once

#include "partita/base/dispatch.hpp"
#include "partita/device/tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

namespace partita {

/// An uninitialized array with the alignment of tensors, so that kernels round in the same way on every rank.
template <class T>
class Scratch {
 public:
  explicit Scratch(Index count) : data_(allocate(count)) {}
  T* data() const { return data_.get(); }
  T& operator[](Index i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  static T* allocate(Index count) {
    constexpr std::size_t alignment = 64;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* data = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<T*>(data);
  }
  std::unique_ptr<T, Free> data_;
};

/// Returns a tensor for a kernel's own use, with the names and dtype of `like`. No plan knows what kernels need for
/// themselves, so it is not counted with the tensors of the rank. Released memory is kept for the next call.
inline Tensor scratch_tensor(const Tensor& like, const Box& box) {
  thread_local const auto allocator = std::make_shared<Allocator>();
  return {like.dtype(), like.names(), box, allocator, MemoryClass::workspace, Fill::none};
}

/// Returns a copy of `box` for a kernel's own use, zero outside the box of `from`.
inline Tensor scratch_copy(const Tensor& from, const Box& box) {
  const Tensor to = scratch_tensor(from, box);
  if (!from.box().contains(box)) to.zero({});
  copy_box(from, to, intersect(from.box(), box), {});
  return to;
}

/// An array in the type in which sums of T are formed: the array itself, or a copy for 16-bit types.
template <class T>
class Widened {
 public:
  using A = Accumulator<T>;
  Widened(T* array, Index count) : array_(array), count_(count), copy_(short_type ? count : 0) {
    if constexpr (short_type)
      for (Index i = 0; i < count; ++i) copy_[i] = static_cast<A>(array[i]);
  }
  A* data() const {
    if constexpr (short_type)
      return copy_.data();
    else
      return array_;
  }
  /// Writes the sums back; each is rounded once.
  void store() const {
    if constexpr (short_type)
      for (Index i = 0; i < count_; ++i) array_[i] = static_cast<T>(copy_[i]);
  }

 private:
  static constexpr bool short_type = !std::is_same_v<T, A>;
  T* array_;
  Index count_;
  Scratch<A> copy_;
};

}  // namespace partita
