#pragma once

#include "partita/base/box.hpp"
#include "partita/base/error.hpp"
#include "partita/base/types.hpp"
#include "partita/device/device.hpp"
#include "partita/device/memory.hpp"

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace partita {

/// A dense local array that holds one box of a global tensor. Elements are addressed by global coordinates.
/// The format is channels last: dimension C varies fastest whatever its logical position, and the other dimensions keep
/// their logical order (N C H W is stored as N H W C, F C H W as F H W C). A Tensor is a handle: copies share the
/// buffer.
class Tensor {
 public:
  Tensor() = default;
  /// Allocates a tensor. `names` are the names of the dimensions of `box`, e.g. "NCHW".
  Tensor(DType dtype, std::string_view names, const Box& box, const std::shared_ptr<Allocator>& allocator,
         MemoryClass memory, Fill fill = Fill::zeros);
  /// Allocates a zeroed tensor with an allocator of its own, for tests and small tools.
  Tensor(DType dtype, std::string_view names, const Box& box);

  /// Returns a one-dimensional tensor ("F") of `elements` elements, uninitialized, with the dtype and allocator of
  /// `like`.
  static Tensor flat(const Tensor& like, Index elements, MemoryClass memory);
  /// Returns a tensor that holds `box` in the buffer of a flat tensor, from element `offset` on. It shares the buffer.
  static Tensor view(const Tensor& flat, Index offset, std::string_view names, const Box& box);

  /// True if another tensor holds the same buffer.
  bool shares() const { return data_.use_count() > 1; }
  /// False for a default-constructed tensor.
  explicit operator bool() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Box& box() const { return box_; }
  std::string_view names() const { return {names_.data(), static_cast<std::size_t>(box_.dims())}; }
  /// Returns the position of the dimension called `name`, or -1.
  int find(char name) const;
  /// Returns the extent of the dimension called `name`, or 1 if there is none.
  Index extent(char name) const;
  /// The distance in elements between neighbors along dimension d.
  Index stride(int d) const { return strides_[d]; }
  Index volume() const { return box_.volume(); }
  Index bytes() const { return volume() * size_of(dtype_); }
  /// Returns the dimensions from the slowest to the fastest in memory.
  std::array<int, max_dims> order() const;

  /// The device in whose memory the elements lie.
  Device& device() const { return allocator_ ? allocator_->device() : host_device(); }
  /// The stream in whose order the memory is used again.
  Stream stream() const { return allocator_ ? allocator_->stream() : Stream(); }
  /// The address of the first element, on the device.
  std::byte* data() const { return data_.get(); }
  /// The elements, for the CPU. Ends the process if they lie in memory that the CPU may not access.
  template <class T>
  T* as() const {
    if (!device().host()) broken("the CPU may not access a tensor in the memory of a device");
    return reinterpret_cast<T*>(data_.get());
  }
  /// Returns the offset, in elements, of the element at the given global coordinates.
  Index offset(const std::array<Index, max_dims>& at) const;

  /// Element i in memory order, converted to double. For tests, printing and files; too slow for kernels.
  double get(Index i) const;
  void set(Index i, double value) const;
  /// Returns the element at the given global coordinates.
  double at(const std::array<Index, max_dims>& at) const { return get(offset(at)); }

  /// Returns a new tensor that holds `box`, with the same names, dtype, allocator and memory class.
  Tensor like(const Box& box, Fill fill = Fill::zeros) const;
  /// Returns a new tensor that holds `box` in memory class `memory`, with the same names, dtype and allocator.
  Tensor like(const Box& box, MemoryClass memory, Fill fill = Fill::zeros) const;
  /// Returns a new zeroed tensor with elements of type `dtype`, with the same names, box, allocator and memory class.
  Tensor like(DType dtype) const;
  /// Returns a new uninitialized tensor in the memory of this one's allocator.
  Tensor beside(DType dtype, std::string_view names, const Box& box, MemoryClass memory) const;
  /// Returns the same elements under other coordinates: those of dimension d are `by` higher. It shares the buffer.
  Tensor shifted(int d, Index by) const;
  /// Returns the elements whose coordinate along the slowest dimension lies in a part of this tensor's interval. It
  /// shares the buffer.
  Tensor rows(Interval part) const;
  /// Sets all elements to zero.
  void zero(Stream stream) const;

 private:
  friend class ReleasedTensor;
  friend Tensor convert(const Tensor& from, DType dtype, Stream stream);
  void set_format(std::string_view names);

  DType dtype_ = DType::f64;
  std::array<char, max_dims> names_{};
  std::array<Index, max_dims> strides_{};
  Box box_;
  MemoryClass memory_ = MemoryClass::workspace;
  std::shared_ptr<Allocator> allocator_;
  std::shared_ptr<std::byte> data_;
};

/// Remembers a tensor, but does not keep its memory.
class ReleasedTensor {
 public:
  explicit ReleasedTensor(const Tensor& tensor);
  /// Returns a tensor at the same address: it shares the memory if that is still held, else it takes it again.
  /// @pre If it is not held, it was that of the tensor alone, and its allocator keeps it.
  Tensor again() const;

 private:
  Tensor form_;  // without memory
  std::byte* address_;
  std::weak_ptr<std::byte> held_;
};

/// Returns a tensor that the CPU can access: `tensor` itself, or a copy if it lies in the memory of a device. The CPU
/// waits until the stream has computed it.
Tensor on_host(const Tensor& tensor, Stream stream);
/// Overwrites the elements of `to` with those of a tensor of the CPU: the same box, dtype and memory order. If `from`
/// does not lie in the device's `staging`, the call returns when it has been read.
void from_host(const Tensor& from, const Tensor& to, Stream stream);
/// Returns all elements in memory order. The CPU waits until the stream has computed them.
std::vector<double> read(const Tensor& tensor, Stream stream);

/// Copies the elements of `part` from one tensor to another.
/// @pre `part` lies inside both boxes, and the dtypes are the same.
void copy_box(const Tensor& from, const Tensor& to, const Box& part, Stream stream);
/// Returns the bytes of `part` if they are contiguous in the tensor's memory, else an empty span.
std::span<std::byte> run_of(const Tensor& tensor, const Box& part);
/// Adds the elements of `part`: to += from. Each sum is rounded to the dtype once.
/// @pre `part` lies inside both boxes, and the dtypes are the same.
void add_box(const Tensor& from, const Tensor& to, const Box& part, Stream stream);
/// Writes the elements of `part` to `out`, densely, in the tensor's memory order. `out` lies on the tensor's device.
void pack(const Tensor& from, const Box& part, std::byte* out, Stream stream);
/// Reads the elements of `part` from the bytes that `pack` wrote.
void unpack(const std::byte* in, const Box& part, const Tensor& to, Stream stream);
/// Adds the bytes that `pack` wrote to the elements of `part`.
void unpack_add(const std::byte* in, const Box& part, const Tensor& to, Stream stream);
/// Returns a new tensor with a copy of `box`, zero outside the box of `from`.
Tensor extract(const Tensor& from, const Box& box, MemoryClass memory, Stream stream);
/// Adds element by element: to += from.
/// @pre Both tensors hold the same box and have the same dtype, or `from` has bf16 or f16 and `to` has f32.
void add(const Tensor& from, const Tensor& to, Stream stream);
/// Converts the elements to `dtype`, rounded to nearest even. Returns `from` itself, with its buffer, if the dtype is
/// the same.
Tensor convert(const Tensor& from, DType dtype, Stream stream);
/// Converts the elements to the dtype of `to`, which must hold the same box in the same memory order.
void convert(const Tensor& from, const Tensor& to, Stream stream);

}  // namespace partita
