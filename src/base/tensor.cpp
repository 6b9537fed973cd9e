#include "partita/base/tensor.hpp"

#include "partita/base/dispatch.hpp"

#include <algorithm>
#include <cstring>

namespace partita {

Tensor::Tensor(DType dtype, std::string_view names, const Box& box, const std::shared_ptr<Allocator>& allocator,
               MemoryClass memory, Fill fill)
    : dtype_(dtype), box_(box), memory_(memory), allocator_(allocator) {
  set_format(names);
  data_ = Allocator::allocate(allocator_, bytes(), memory, fill);
}

Tensor::Tensor(DType dtype, std::string_view names, const Box& box)
    : Tensor(dtype, names, box, std::make_shared<Allocator>(), MemoryClass::workspace) {}

Tensor Tensor::flat(const Tensor& like, Index elements, MemoryClass memory) {
  return {like.dtype_, "F", Box(Shape{{'F', elements}}), like.allocator_, memory, Fill::none};
}

Tensor Tensor::view(const Tensor& flat, Index offset, std::string_view names, const Box& box) {
  require(offset >= 0 && offset + box.volume() <= flat.volume(), "the view lies inside the buffer");
  Tensor part;
  part.dtype_ = flat.dtype_;
  part.box_ = box;
  part.memory_ = flat.memory_;
  part.allocator_ = flat.allocator_;
  part.set_format(names);
  part.data_ = std::shared_ptr<std::byte>(flat.data_, flat.data() + offset * size_of(flat.dtype_));
  return part;
}

void Tensor::set_format(std::string_view names) {
  require(static_cast<int>(names.size()) == box_.dims(), "one name a dimension");
  std::copy(names.begin(), names.end(), names_.begin());
  Index stride = 1;
  const auto slowest_first = order();
  for (int i = box_.dims() - 1; i >= 0; --i) {
    const int d = slowest_first[static_cast<std::size_t>(i)];
    strides_[static_cast<std::size_t>(d)] = stride;
    stride *= box_.extent(d);
  }
}

int Tensor::find(char name) const {
  const auto at = names().find(name);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

Index Tensor::extent(char name) const {
  const int d = find(name);
  return d < 0 ? 1 : box_.extent(d);
}

std::array<int, max_dims> Tensor::order() const {
  std::array<int, max_dims> order{};
  std::size_t next = 0;
  const int channels = find('C');
  for (int d = 0; d < box_.dims(); ++d)
    if (d != channels) order[next++] = d;
  if (channels >= 0) order[next] = channels;
  return order;
}

Index Tensor::offset(const std::array<Index, max_dims>& at) const {
  Index offset = 0;
  for (int d = 0; d < box_.dims(); ++d) offset += (at[static_cast<std::size_t>(d)] - box_[d].lo) * stride(d);
  return offset;
}

double Tensor::get(Index i) const {
  return dispatch(dtype_, [&](auto t) { return static_cast<double>(as<decltype(t)>()[i]); });
}

void Tensor::set(Index i, double value) const {
  dispatch(dtype_, [&](auto t) { as<decltype(t)>()[i] = static_cast<decltype(t)>(value); });
}

Tensor Tensor::like(const Box& box) const { return like(box, memory_); }
Tensor Tensor::like(const Box& box, MemoryClass memory) const { return {dtype_, names(), box, allocator_, memory}; }
Tensor Tensor::like(DType dtype) const { return {dtype, names(), box_, allocator_, memory_}; }
void Tensor::zero() const { std::memset(data(), 0, static_cast<std::size_t>(bytes())); }

namespace {

/// Calls row(offset, row number, length) for each contiguous row (along the fastest dimension) of `part` of a tensor.
/// Dimensions that `part` covers entirely are merged into longer rows.
template <class Row>
void for_rows(const Tensor& tensor, const Box& part, Row&& row) {
  if (part.empty()) return;
  require(tensor.box().contains(part), "the part lies inside the tensor");
  const int dims = part.dims();
  const auto order = tensor.order();
  Index length = 1;
  int outer = dims;  // dimensions order[0..outer) are looped over
  while (outer > 0) {
    const int d = order[static_cast<std::size_t>(outer - 1)];
    length *= part.extent(d);
    --outer;
    if (part.extent(d) != tensor.box().extent(d)) break;
  }
  std::array<Index, max_dims> at{};
  for (int d = 0; d < dims; ++d) at[static_cast<std::size_t>(d)] = part[d].lo;
  for (Index number = 0;; ++number) {
    row(tensor.offset(at), number * length, length);
    int i = outer - 1;
    for (; i >= 0; --i) {
      const int d = order[static_cast<std::size_t>(i)];
      auto& x = at[static_cast<std::size_t>(d)];
      if (++x < part[d].hi) break;
      x = part[d].lo;
    }
    if (i < 0) return;
  }
}

template <class T>
void add_rows(const T* from, T* to, Index length) {
  using A = Accumulator<T>;
  for (Index i = 0; i < length; ++i) to[i] = static_cast<T>(static_cast<A>(to[i]) + static_cast<A>(from[i]));
}

}  // namespace

void pack(const Tensor& from, const Box& part, std::byte* out) {
  const Index size = size_of(from.dtype());
  for_rows(from, part, [&](Index offset, Index at, Index length) {
    std::memcpy(out + at * size, from.data() + offset * size, static_cast<std::size_t>(length * size));
  });
}

void unpack(const std::byte* in, const Box& part, const Tensor& to) {
  const Index size = size_of(to.dtype());
  for_rows(to, part, [&](Index offset, Index at, Index length) {
    std::memcpy(to.data() + offset * size, in + at * size, static_cast<std::size_t>(length * size));
  });
}

void unpack_add(const std::byte* in, const Box& part, const Tensor& to) {
  dispatch_float(to.dtype(), [&](auto t) {
    using T = decltype(t);
    for_rows(to, part, [&](Index offset, Index at, Index length) {
      add_rows(reinterpret_cast<const T*>(in) + at, to.as<T>() + offset, length);
    });
  });
}

void copy_box(const Tensor& from, const Tensor& to, const Box& part) {
  require(from.dtype() == to.dtype() && part.dims() > 0, "a copy keeps the dtype and has a dimension");
  if (part.empty()) return;
  require(from.box().contains(part) && to.box().contains(part), "the part lies inside both tensors");
  // Rows of the two tensors differ in length; a row common to both is one along the fastest dimension.
  const Index size = size_of(from.dtype());
  const int fastest = from.order()[static_cast<std::size_t>(part.dims() - 1)];
  if (from.box() == to.box()) {
    for_rows(from, part, [&](Index offset, Index, Index length) {
      std::memcpy(to.data() + offset * size, from.data() + offset * size, static_cast<std::size_t>(length * size));
    });
    return;
  }
  std::array<Index, max_dims> at{};
  for (int d = 0; d < part.dims(); ++d) at[static_cast<std::size_t>(d)] = part[d].lo;
  const auto bytes = static_cast<std::size_t>(part.extent(fastest) * size);
  for (;;) {
    std::memcpy(to.data() + to.offset(at) * size, from.data() + from.offset(at) * size, bytes);
    int d = part.dims() - 1;
    for (; d >= 0; --d) {
      if (d == fastest) continue;
      auto& x = at[static_cast<std::size_t>(d)];
      if (++x < part[d].hi) break;
      x = part[d].lo;
    }
    if (d < 0) return;
  }
}

void add_box(const Tensor& from, const Tensor& to, const Box& part) {
  const Tensor rows = extract(from, part, MemoryClass::workspace);
  unpack_add(rows.data(), part, to);
}

Tensor extract(const Tensor& from, const Box& box, MemoryClass memory) {
  Tensor to = from.like(box, memory);
  copy_box(from, to, intersect(from.box(), box));
  return to;
}

void add(const Tensor& from, const Tensor& to) {
  require(from.box() == to.box() && from.dtype() == to.dtype(), "a sum keeps box and dtype");
  dispatch_float(to.dtype(), [&](auto t) { add_rows(from.as<decltype(t)>(), to.as<decltype(t)>(), to.volume()); });
}

Tensor convert(const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  Tensor to(dtype, from.names(), from.box(), from.allocator_, MemoryClass::workspace, Fill::none);
  dispatch(from.dtype(), [&](auto f) {
    dispatch(dtype, [&](auto t) {
      const auto* in = from.as<decltype(f)>();
      auto* out = to.as<decltype(t)>();
      for (Index i = 0; i < from.volume(); ++i) out[i] = static_cast<decltype(t)>(static_cast<double>(in[i]));
    });
  });
  return to;
}

}  // namespace partita
