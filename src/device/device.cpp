#include "partita/device/device.hpp"

#include "partita/base/dispatch.hpp"
#include "partita/base/error.hpp"
#include "partita/device/memory.hpp"
#include "src/base/rounded.hpp"
#include "src/system/clock.hpp"

#include <cstdlib>
#include <cstring>

namespace partita {

Device& Device::staging() { return host_device(); }

void BoxMove::push(Index elements, Index from_step, Index to_step) {
  if (elements == 1) return;
  if (dims > 0) {
    const auto last = static_cast<std::size_t>(dims - 1);
    if (from_stride[last] == elements * from_step && to_stride[last] == elements * to_step) {
      extent[last] *= elements;
      from_stride[last] = from_step;
      to_stride[last] = to_step;
      return;
    }
  }
  const auto next = static_cast<std::size_t>(dims++);
  extent[next] = elements;
  from_stride[next] = from_step;
  to_stride[next] = to_step;
}

namespace {

/// Calls run(offset in the source, offset in the target, length) for each run of elements that is contiguous in both,
/// in order. The two innermost loops decide the speed.
template <class Run>
void for_runs(const BoxMove& move, Run&& run) {
  int outer = move.dims;
  const auto at = [](int d) { return static_cast<std::size_t>(d); };
  const bool contiguous = outer > 0 && move.from_stride[at(outer - 1)] == 1 && move.to_stride[at(outer - 1)] == 1;
  const Index length = contiguous ? move.extent[at(--outer)] : 1;
  const Index count = outer > 0 ? move.extent[at(outer - 1)] : 1;
  const Index from_step = outer > 0 ? move.from_stride[at(outer - 1)] : 0,
              to_step = outer > 0 ? move.to_stride[at(outer - 1)] : 0;
  std::array<Index, max_dims> index{};
  Index from = 0, to = 0;
  for (;;) {
    for (Index k = 0; k < count; ++k) run(from + k * from_step, to + k * to_step, length);
    int d = outer - 2;
    for (; d >= 0; --d) {
      from += move.from_stride[at(d)];
      to += move.to_stride[at(d)];
      if (++index[at(d)] < move.extent[at(d)]) break;
      from -= index[at(d)] * move.from_stride[at(d)];
      to -= index[at(d)] * move.to_stride[at(d)];
      index[at(d)] = 0;
    }
    if (d < 0) return;
  }
}

void copy(const BoxMove& move) {
  const Index size = size_of(move.from_type);
  const auto* source = static_cast<const std::byte*>(move.from);
  auto* target = static_cast<std::byte*>(move.to);
  for_runs(move, [&](Index from, Index to, Index length) {
    std::memcpy(target + to * size, source + from * size, static_cast<std::size_t>(length * size));
  });
}

void add(const BoxMove& move) {
  dispatch_sum(move.from_type, move.to_type, [&](auto s, auto t) {
    using T = decltype(t);
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    const auto* source = static_cast<const decltype(s)*>(move.from);
    auto* target = static_cast<T*>(move.to);
    for_runs(move, [&](Index from, Index to, Index length) {
      const auto* x = source + from;
      T* y = target + to;
      for (Index i = 0; i < length; ++i) y[i] = static_cast<T>(static_cast<A>(y[i]) + static_cast<A>(x[i]));
    });
  });
}

void keep_largest(const BoxMove& move) {
  require(move.from_type == move.to_type, "a comparison must keep the dtype");
  dispatch(move.to_type, [&](auto t) {
    using T = decltype(t);
    const auto* source = static_cast<const T*>(move.from);
    auto* target = static_cast<T*>(move.to);
    for_runs(move, [&](Index from, Index to, Index length) {
      const T* x = source + from;
      T* y = target + to;
      for (Index i = 0; i < length; ++i) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
    });
  });
}

void convert(const BoxMove& move) {
  dispatch(move.from_type, [&](auto f) {
    dispatch(move.to_type, [&](auto t) {
      const auto* source = static_cast<const decltype(f)*>(move.from);
      auto* target = static_cast<decltype(t)*>(move.to);
      for_runs(move, [&](Index from, Index to, Index length) {
        for (Index i = 0; i < length; ++i) target[to + i] = rounded<decltype(t)>(source[from + i]);
      });
    });
  });
}

class HostDevice final : public HostMemory {
 public:
  std::string_view name() const override { return "cpu"; }
  void* allocate(std::size_t bytes) override { return std::aligned_alloc(64, bytes); }
  void release(void* data) override { std::free(data); }
};

}  // namespace

std::string Device::memory_left() const { return machine_memory_left(); }

void HostMemory::zero(void* data, std::size_t bytes, Stream) { std::memset(data, 0, bytes); }

void HostMemory::move(std::span<const BoxMove> moves, Stream) {
  for (const BoxMove& each : moves)
    each.combine == Combine::add       ? add(each)
    : each.combine == Combine::largest ? keep_largest(each)
    : each.from_type == each.to_type   ? partita::copy(each)
                                       : convert(each);
}

void HostMemory::copy(const void* from, void* to, std::size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Device::run(std::string_view what, std::span<const Touched>, std::function<void()>, Stream) {
  fail("{} is a function of the CPU, and device '{}' cannot run it; compile it for the device", what, name());
}

void HostMemory::run(std::string_view, std::span<const Touched>, std::function<void()> function, Stream) { function(); }

Event HostMemory::mark(Stream) { return {std::make_shared<double>(now())}; }

double HostMemory::seconds(const Event& from, const Event& to) {
  return *static_cast<const double*>(to.native.get()) - *static_cast<const double*>(from.native.get());
}

Device& host_device() {
  static HostDevice device;
  return device;
}

StreamClock::StreamClock(Device& device, Stream stream) : device_(&device), stream_(stream) {
  device.finish(stream);
  origin_ = device.mark(stream);
  start_ = now();
}

}  // namespace partita
