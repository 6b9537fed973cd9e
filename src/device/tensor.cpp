#include "partita/device/tensor.hpp"

#include "partita/base/dispatch.hpp"
#include "src/base/rounded.hpp"

#include <algorithm>

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
    const int d = slowest_first[i];
    strides_[d] = stride;
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

std::array<int, max_dims> Tensor::order() const { return memory_order(names()); }

Index Tensor::offset(const std::array<Index, max_dims>& at) const {
  Index offset = 0;
  for (int d = 0; d < box_.dims(); ++d) offset += (at[d] - box_[d].lo) * stride(d);
  return offset;
}

double Tensor::get(Index i) const {
  return dispatch(dtype_, [&](auto t) { return static_cast<double>(as<decltype(t)>()[i]); });
}

void Tensor::set(Index i, double value) const {
  dispatch(dtype_, [&](auto t) { as<decltype(t)>()[i] = rounded<decltype(t)>(value); });
}

Tensor Tensor::like(const Box& box, Fill fill) const { return like(box, memory_, fill); }
Tensor Tensor::like(const Box& box, MemoryClass memory, Fill fill) const {
  return {dtype_, names(), box, allocator_, memory, fill};
}
Tensor Tensor::like(DType dtype) const { return {dtype, names(), box_, allocator_, memory_}; }
Tensor Tensor::beside(DType dtype, std::string_view names, const Box& box, MemoryClass memory) const {
  return {dtype, names, box, allocator_, memory, Fill::none};
}
Tensor Tensor::shifted(int d, Index by) const {
  Tensor other = *this;
  other.box_[d] = {box_[d].lo + by, box_[d].hi + by};
  return other;
}
Tensor Tensor::rows(Interval part) const {
  const int slowest = order()[0];
  const Interval all = box_[slowest];
  require(all.lo <= part.lo && part.lo <= part.hi && part.hi <= all.hi, "a part of a tensor must lie inside it");
  Tensor other = *this;
  other.box_[slowest] = part;
  const Index skipped = (part.lo - all.lo) * stride(slowest) * size_of(dtype_);
  other.data_ = std::shared_ptr<std::byte>(data_, data_.get() + skipped);
  return other;
}
ReleasedTensor::ReleasedTensor(const Tensor& tensor) : form_(tensor), address_(tensor.data()), held_(tensor.data_) {
  form_.data_ = nullptr;
}

Tensor ReleasedTensor::again() const {
  Tensor tensor = form_;
  tensor.data_ = held_.lock();
  if (address_ != nullptr && !tensor.data_)
    tensor.data_ = Allocator::allocate_again(form_.allocator_, address_, form_.bytes(), form_.memory_);
  return tensor;
}

void Tensor::zero(Stream stream) const { device().zero(data(), static_cast<std::size_t>(bytes()), stream); }

Tensor on_host(const Tensor& tensor, Stream stream) {
  Device& device = tensor.device();
  Tensor here = tensor;
  if (!device.host()) {
    here = Tensor(tensor.dtype(), tensor.names(), tensor.box());
    device.copy(tensor.data(), here.data(), static_cast<std::size_t>(tensor.bytes()), stream);
  }
  device.finish(stream);
  return here;
}

void from_host(const Tensor& from, const Tensor& to, Stream stream) {
  require(from.device().host() && from.box() == to.box() && from.names() == to.names() && from.dtype() == to.dtype(),
          "a tensor of the CPU must hold what it is copied to");
  if (from.data() != to.data() && to.bytes() > 0)
    to.device().copy(from.data(), to.data(), static_cast<std::size_t>(to.bytes()), stream);
}

std::vector<double> read(const Tensor& tensor, Stream stream) {
  const Tensor here = on_host(tensor, stream);
  std::vector<double> values;
  for (Index i = 0; i < here.volume(); ++i) values.push_back(here.get(i));
  return values;
}

namespace {

Index first_offset(const Tensor& tensor, const Box& part) {
  std::array<Index, max_dims> at{};
  for (int d = 0; d < part.dims(); ++d) at[d] = part[d].lo;
  return tensor.offset(at);
}

std::byte* first_of(const Tensor& tensor, const Box& part) {
  return tensor.data() + first_offset(tensor, part) * size_of(tensor.dtype());
}

/// Returns a move of `part` between two tensors with the same dimensions.
BoxMove between(const Tensor& from, const Tensor& to, const Box& part) {
  require(from.box().contains(part) && to.box().contains(part), "the part must lie inside the tensors");
  BoxMove move{
      .from = first_of(from, part), .to = first_of(to, part), .from_type = from.dtype(), .to_type = to.dtype()};
  const auto order = from.order();
  for (int i = 0; i < part.dims(); ++i) {
    const int d = order[i];
    move.push(part.extent(d), from.stride(d), to.stride(d));
  }
  return move;
}

/// Returns a move of `part` between a tensor and a buffer that holds the part alone. `packed` are the buffer's strides.
BoxMove with_packed(const Tensor& tensor, const Box& part, std::array<Index, max_dims> BoxMove::*packed) {
  require(tensor.box().contains(part), "the part must lie inside the tensor");
  BoxMove move{.from_type = tensor.dtype(), .to_type = tensor.dtype()};
  const auto order = tensor.order();
  Index dense = part.volume();
  for (int i = 0; i < part.dims(); ++i) {
    const int d = order[i];
    dense /= part.extent(d);
    const Index stride = tensor.stride(d);
    const bool to = packed == &BoxMove::to_stride;
    move.push(part.extent(d), to ? stride : dense, to ? dense : stride);
  }
  return move;
}

void unpack(const std::byte* in, const Box& part, const Tensor& to, bool add, Stream stream) {
  if (part.empty()) return;
  BoxMove move = with_packed(to, part, &BoxMove::from_stride);
  move.from = in;
  move.to = first_of(to, part);
  if (add) move.combine = Combine::add;
  to.device().move({&move, 1}, stream);
}

}  // namespace

void pack(const Tensor& from, const Box& part, std::byte* out, Stream stream) {
  if (part.empty()) return;
  BoxMove move = with_packed(from, part, &BoxMove::to_stride);
  move.from = first_of(from, part);
  move.to = out;
  from.device().move({&move, 1}, stream);
}

void unpack(const std::byte* in, const Box& part, const Tensor& to, Stream stream) {
  unpack(in, part, to, false, stream);
}

void unpack_add(const std::byte* in, const Box& part, const Tensor& to, Stream stream) {
  unpack(in, part, to, true, stream);
}

void copy_box(const Tensor& from, const Tensor& to, const Box& part, Stream stream) {
  require(from.dtype() == to.dtype() && part.dims() > 0, "a copy must keep the dtype and have a dimension");
  if (part.empty()) return;
  const BoxMove move = between(from, to, part);
  to.device().move({&move, 1}, stream);
}

std::span<std::byte> run_of(const Tensor& tensor, const Box& part) {
  if (part.empty() || !tensor.box().contains(part) || !is_run(tensor.names(), tensor.box(), part)) return {};
  return {first_of(tensor, part), static_cast<std::size_t>(part.volume() * size_of(tensor.dtype()))};
}

void add_box(const Tensor& from, const Tensor& to, const Box& part, Stream stream) {
  if (part.empty()) return;
  BoxMove move = between(from, to, part);
  move.combine = Combine::add;
  to.device().move({&move, 1}, stream);
}

Tensor extract(const Tensor& from, const Box& box, MemoryClass memory, Stream stream) {
  Tensor to = from.like(box, memory, from.box().contains(box) ? Fill::none : Fill::zeros);
  copy_box(from, to, intersect(from.box(), box), stream);
  return to;
}

void add(const Tensor& from, const Tensor& to, Stream stream) {
  require(from.box() == to.box(), "a sum must keep the box");
  add_box(from, to, to.box(), stream);
}

Tensor convert(const Tensor& from, DType dtype, Stream stream) {
  if (from.dtype() == dtype) return from;
  Tensor to(dtype, from.names(), from.box(), from.allocator_, MemoryClass::workspace, Fill::none);
  convert(from, to, stream);
  return to;
}

void convert(const Tensor& from, const Tensor& to, Stream stream) {
  require(from.box() == to.box() && from.names() == to.names(), "a conversion must keep the box and the memory order");
  if (from.box().empty()) return;
  const BoxMove move = between(from, to, to.box());
  to.device().move({&move, 1}, stream);
}

}  // namespace partita
