#include "partita/base/memory.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

namespace partita {

std::string_view name(MemoryClass memory) {
  constexpr std::array<std::string_view, memory_classes> names{"weights", "gradients", "optimizer", "activations",
                                                               "halos",   "workspace", "data"};
  return names[static_cast<std::size_t>(memory)];
}

Index MemoryUse::total() const { return std::accumulate(bytes.begin(), bytes.end(), Index{0}); }

MemoryUse Allocator::now() const {
  const std::scoped_lock lock(mutex_);
  return now_;
}

MemoryUse Allocator::peak() const {
  const std::scoped_lock lock(mutex_);
  return peak_;
}

void Allocator::add(Index bytes, MemoryClass memory) {
  const std::scoped_lock lock(mutex_);
  now_[memory] += bytes;
  peak_[memory] = std::max(peak_[memory], now_[memory]);
}

std::shared_ptr<std::byte> Allocator::allocate(const std::shared_ptr<Allocator>& self, Index bytes,
                                               MemoryClass memory) {
  constexpr std::size_t alignment = 64;
  const std::size_t padded = (static_cast<std::size_t>(bytes) / alignment + 1) * alignment;
  void* data = std::aligned_alloc(alignment, padded);
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, padded);
  self->add(bytes, memory);
  return {static_cast<std::byte*>(data), [self, bytes, memory](std::byte* p) {
            self->add(-bytes, memory);
            std::free(p);
          }};
}

}  // namespace partita
