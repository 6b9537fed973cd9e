#include "src/train/executor/arrival.hpp"

#include <utility>

namespace partita {

namespace {

/// Applies `copy` to both tensors of a batch. A rank may have one of them alone.
template <class Copy>
Batch each(const Batch& batch, Copy&& copy) {
  return {batch.images ? copy(batch.images) : Tensor(), batch.target ? copy(batch.target) : Tensor()};
}

}  // namespace

Arrival::Arrival(std::shared_ptr<Allocator> allocator)
    : allocator_(std::move(allocator)), device_(allocator_->device()), stream_(device_.make_stream(Priority::normal)) {}

void Arrival::expect(const std::function<Batch()>& read) {
  if (std::exchange(come_, false)) return device_.wait(allocator_->stream(), arrived_);
  here_ = {};
  traveling_ = read();
  here_ = each(traveling_, [&](const Tensor& from) {
    const Tensor to(from.dtype(), from.names(), from.box(), allocator_, MemoryClass::workspace, Fill::none);
    from_host(from, to, allocator_->stream());
    return to;
  });
}

Batch Arrival::take() const {
  return each(here_, [&](const Tensor& from) {
    const Tensor to(from.dtype(), from.names(), from.box(), allocator_, MemoryClass::activations, Fill::none);
    if (from.bytes() > 0)
      device_.copy(from.data(), to.data(), static_cast<std::size_t>(from.bytes()), allocator_->stream());
    return to;
  });
}

void Arrival::send(const Batch& next) {
  device_.wait(stream_, device_.record(allocator_->stream()));
  if (next.images) from_host(next.images, here_.images, stream_);
  if (next.target) from_host(next.target, here_.target, stream_);
  arrived_ = device_.record(stream_);
}

void Arrival::end_step(bool sent) {
  come_ = sent;
  traveling_ = {};
  if (!sent) here_ = {};
}

}  // namespace partita
