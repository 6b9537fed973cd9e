#pragma once

#include "partita/base/box.hpp"
#include "partita/base/memory.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <memory>
#include <span>
#include <string_view>

namespace partita {

/// A dense local array that knows which box of the global tensor it holds; elements are addressed by global
/// coordinates. The format is channels last: dimension C varies fastest whatever its logical position (N C H W lies as
/// N H W C, F C H W as F H W C), the others in logical order. A handle: copies share the buffer. Zero when made.
class Tensor {
 public:
  Tensor() = default;
  /// `names` are the dimensions of `box`, e.g. "NCHW".
  Tensor(DType dtype, std::string_view names, const Box& box, const std::shared_ptr<Allocator>& allocator,
         MemoryClass memory, Fill fill = Fill::zeros);
  /// For tests and small tools: accounted for nowhere.
  Tensor(DType dtype, std::string_view names, const Box& box);

  /// `elements` in one row ("F"), of the dtype and allocator of `like`, with any content.
  static Tensor flat(const Tensor& like, Index elements, MemoryClass memory);
  /// A part of a flat tensor's buffer, from element `offset` on, as a tensor that holds `box`.
  static Tensor view(const Tensor& flat, Index offset, std::string_view names, const Box& box);

  /// False for a default-made tensor.
  explicit operator bool() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Box& box() const { return box_; }
  std::string_view names() const { return {names_.data(), static_cast<std::size_t>(box_.dims())}; }
  /// Position of the dimension called `name`, or -1.
  int find(char name) const;
  /// Extent of the dimension called `name`; 1 if there is none.
  Index extent(char name) const;
  /// Elements between neighbours along dimension d.
  Index stride(int d) const { return strides_[static_cast<std::size_t>(d)]; }
  Index volume() const { return box_.volume(); }
  Index bytes() const { return volume() * size_of(dtype_); }
  /// Dimensions from the slowest to the fastest in memory.
  std::array<int, max_dims> order() const;

  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  /// Element offset of global coordinates (one a dimension).
  Index offset(const std::array<Index, max_dims>& at) const;

  /// Element i in memory order, converted; for tests, printing and files, not for kernels.
  double get(Index i) const;
  void set(Index i, double value) const;
  /// The same for global coordinates.
  double at(const std::array<Index, max_dims>& at) const { return get(offset(at)); }

  /// A fresh tensor of the same names, dtype, allocator and class that holds another box.
  Tensor like(const Box& box, Fill fill = Fill::zeros) const;
  /// The same, in another class of memory.
  Tensor like(const Box& box, MemoryClass memory, Fill fill = Fill::zeros) const;
  /// The same box, allocator and class with elements of another type; zeroed.
  Tensor like(DType dtype) const;
  /// All elements zero.
  void zero() const;

 private:
  friend Tensor convert(const Tensor& from, DType dtype);
  void set_format(std::string_view names);

  DType dtype_ = DType::f64;
  std::array<char, max_dims> names_{};
  std::array<Index, max_dims> strides_{};
  Box box_;
  MemoryClass memory_ = MemoryClass::workspace;
  std::shared_ptr<Allocator> allocator_;
  std::shared_ptr<std::byte> data_;
};

/// Copies the elements of `part` (inside both boxes) from one tensor to another of the same dtype.
void copy_box(const Tensor& from, const Tensor& to, const Box& part);
/// The bytes of `part` in the tensor where they are neighbours in memory; nothing where they are not.
std::span<std::byte> run_of(const Tensor& tensor, const Box& part);
/// Adds them: to += from, rounded to the dtype once an element.
void add_box(const Tensor& from, const Tensor& to, const Box& part);
/// Writes the elements of `part` to `out`, densely, in the tensor's memory order.
void pack(const Tensor& from, const Box& part, std::byte* out);
/// The inverse of `pack`.
void unpack(const std::byte* in, const Box& part, const Tensor& to);
/// `unpack`, adding.
void unpack_add(const std::byte* in, const Box& part, const Tensor& to);
/// A dense copy of `box`, zero where `from` does not reach.
Tensor extract(const Tensor& from, const Box& box, MemoryClass memory);
/// to += from, element by element; both hold the same box.
void add(const Tensor& from, const Tensor& to);
/// Another dtype, rounded to nearest even; the same buffer if it is the same.
Tensor convert(const Tensor& from, DType dtype);

}  // namespace partita
