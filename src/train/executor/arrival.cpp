#include "src/train/executor/arrival.hpp"

#include <utility>

namespace partita {

namespace {

/// Applies `make` to the tensors of a batch. A rank may have some of them alone.
template <class Make>
Batch each(const Batch& batch, Make&& make) {
  return batch.each([&](const Tensor& tensor) { return tensor ? make(tensor) : Tensor(); });
}

Tensor like(const Tensor& tensor, const std::shared_ptr<Allocator>& allocator, MemoryClass memory) {
  return {tensor.dtype(), tensor.names(), tensor.box(), allocator, memory, Fill::none};
}

}  // namespace

Arrival::Arrival(std::shared_ptr<Allocator> allocator)
    : allocator_(std::move(allocator)), device_(allocator_->device()), stream_(device_.make_stream(Priority::normal)) {}

void Arrival::expect(const std::function<Batch()>& read) {
  if (std::exchange(has_arrived_, false)) return;
  here_ = {};
  first_ = read();
  here_ = each(first_, [&](const Tensor& from) {
    const Tensor to = like(from, allocator_, MemoryClass::workspace);
    from_host(from, to, allocator_->stream());
    return to;
  });
}

Batch Arrival::take() const {
  return each(here_, [&](const Tensor& from) {
    const Tensor to = like(from, allocator_, MemoryClass::activations);
    if (from.bytes() > 0)
      device_.copy(from.data(), to.data(), static_cast<std::size_t>(from.bytes()), allocator_->stream());
    return to;
  });
}

void Arrival::send(const Batch& next) {
  device_.wait(stream_, device_.record(allocator_->stream()));
  for (std::size_t i = 0; i < next.images.size(); ++i)
    if (next.images[i]) from_host(next.images[i], here_.images[i], stream_);
  if (next.target) from_host(next.target, here_.target, stream_);
  arrived_ = device_.record(stream_);
}

void Arrival::join() const { device_.wait(allocator_->stream(), arrived_); }

void Arrival::end_step(bool sent) {
  has_arrived_ = sent;
  first_ = {};
  if (!sent) here_ = {};
}

void Arrival::forget() {
  device_.finish(stream_);
  device_.finish(allocator_->stream());
  end_step(false);
}

}  // namespace partita
