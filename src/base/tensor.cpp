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
  require(offset >= 0 && offset + box.volume() <= flat.volume(), "a view must lie inside the buffer");
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
  require(static_cast<int>(names.size()) == box_.dims(), "each dimension must have one name");
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

Tensor Tensor::like(const Box& box, Fill fill) const { return like(box, memory_, fill); }
Tensor Tensor::like(const Box& box, MemoryClass memory, Fill fill) const {
  return {dtype_, names(), box, allocator_, memory, fill};
}
Tensor Tensor::like(DType dtype) const { return {dtype, names(), box_, allocator_, memory_}; }
void Tensor::zero() const { std::memset(data(), 0, static_cast<std::size_t>(bytes())); }

namespace {

/// How to traverse `part` in two tensors: loops over the dimensions order[0..outer), and inside them runs of `length`
/// elements that are contiguous in both tensors. Fast dimensions that `part` covers entirely in both tensors are merged
/// into longer runs.
struct Runs {
  int outer;
  Index length = 1;

  Runs(const Tensor& a, const Tensor& b, const Box& part, const std::array<int, max_dims>& order) : outer(part.dims()) {
    while (outer > 0) {
      const int d = order[static_cast<std::size_t>(--outer)];
      length *= part.extent(d);
      if (part.extent(d) != a.box().extent(d) || part.extent(d) != b.box().extent(d)) break;
    }
  }
};

/// Calls row(offset in a, offset in b, number of elements before it, length) for each run of `part` that is contiguous
/// in both tensors, in memory order. The tensors must have the same dimensions.
template <class Row>
void for_rows(const Tensor& a, const Tensor& b, const Box& part, Row&& row) {
  if (part.empty()) return;
  require(a.box().contains(part) && b.box().contains(part), "the part must lie inside the tensors");
  const auto order = a.order();
  const auto [outer, length] = Runs(a, b, part, order);
  std::array<Index, max_dims> at{};
  for (int d = 0; d < part.dims(); ++d) at[static_cast<std::size_t>(d)] = part[d].lo;
  const int inner = outer > 0 ? order[static_cast<std::size_t>(outer - 1)] : -1;  // innermost: it decides the speed
  const Index count = inner < 0 ? 1 : part.extent(inner);
  const Index step_a = inner < 0 ? 0 : a.stride(inner), step_b = inner < 0 ? 0 : b.stride(inner);
  for (Index before = 0;;) {
    Index in_a = a.offset(at), in_b = b.offset(at);
    for (Index k = 0; k < count; ++k, in_a += step_a, in_b += step_b, before += length) row(in_a, in_b, before, length);
    int i = outer - 2;
    for (; i >= 0; --i) {
      const int d = order[static_cast<std::size_t>(i)];
      auto& x = at[static_cast<std::size_t>(d)];
      if (++x < part[d].hi) break;
      x = part[d].lo;
    }
    if (i < 0) return;
  }
}

/// Calls row(offset, number of elements before it, length) for each contiguous run of `part` in one tensor.
template <class Row>
void for_rows(const Tensor& tensor, const Box& part, Row&& row) {
  for_rows(tensor, tensor, part, [&](Index offset, Index, Index before, Index length) { row(offset, before, length); });
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
  require(from.dtype() == to.dtype() && part.dims() > 0, "a copy must keep the dtype and have a dimension");
  const Index size = size_of(from.dtype());
  for_rows(from, to, part, [&](Index source, Index target, Index, Index length) {
    std::memcpy(to.data() + target * size, from.data() + source * size, static_cast<std::size_t>(length * size));
  });
}

std::span<std::byte> run_of(const Tensor& tensor, const Box& part) {
  if (part.empty() || !tensor.box().contains(part)) return {};
  const auto order = tensor.order();
  const auto [outer, length] = Runs(tensor, tensor, part, order);
  if (length != part.volume()) return {};
  std::array<Index, max_dims> at{};
  for (int d = 0; d < part.dims(); ++d) at[static_cast<std::size_t>(d)] = part[d].lo;
  const Index size = size_of(tensor.dtype());
  return {tensor.data() + tensor.offset(at) * size, static_cast<std::size_t>(length * size)};
}

void add_box(const Tensor& from, const Tensor& to, const Box& part) {
  require(from.dtype() == to.dtype(), "a sum must keep the dtype");
  dispatch_float(to.dtype(), [&](auto t) {
    using T = decltype(t);
    for_rows(from, to, part, [&](Index source, Index target, Index, Index length) {
      add_rows(from.as<T>() + source, to.as<T>() + target, length);
    });
  });
}

Tensor extract(const Tensor& from, const Box& box, MemoryClass memory) {
  Tensor to = from.like(box, memory, from.box().contains(box) ? Fill::none : Fill::zeros);
  copy_box(from, to, intersect(from.box(), box));
  return to;
}

void add(const Tensor& from, const Tensor& to) {
  require(from.box() == to.box() && from.dtype() == to.dtype(), "a sum must keep the box and the dtype");
  dispatch_float(to.dtype(), [&](auto t) { add_rows(from.as<decltype(t)>(), to.as<decltype(t)>(), to.volume()); });
}

Tensor convert(const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  Tensor to(dtype, from.names(), from.box(), from.allocator_, MemoryClass::workspace, Fill::none);
  convert(from, to);
  return to;
}

void convert(const Tensor& from, const Tensor& to) {
  require(from.box() == to.box() && from.names() == to.names(), "a conversion must keep the box and the memory order");
  dispatch(from.dtype(), [&](auto f) {
    dispatch(to.dtype(), [&](auto t) {
      const auto* in = from.as<decltype(f)>();
      auto* out = to.as<decltype(t)>();
      for (Index i = 0; i < from.volume(); ++i) out[i] = static_cast<decltype(t)>(static_cast<double>(in[i]));
    });
  });
}

}  // namespace partita
