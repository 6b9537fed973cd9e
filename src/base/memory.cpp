#include "partita/base/memory.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

namespace partita {

namespace {

constexpr std::size_t alignment = 64;

}  // namespace

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

Index Allocator::peak_total() const {
  const std::scoped_lock lock(mutex_);
  return peak_total_;
}

Allocator::~Allocator() {
  for (const auto& [size, blocks] : released_)
    for (void* block : blocks) std::free(block);
}

void* Allocator::take(std::size_t size, MemoryClass memory, Index bytes) {
  const std::scoped_lock lock(mutex_);
  auto& blocks = released_[size];
  void* data = nullptr;
  if (blocks.empty()) {
    data = std::aligned_alloc(alignment, size);
    if (data == nullptr) throw std::bad_alloc();
  } else {
    data = blocks.back();
    blocks.pop_back();
  }
  now_[memory] += bytes;
  peak_[memory] = std::max(peak_[memory], now_[memory]);
  total_ += bytes;
  peak_total_ = std::max(peak_total_, total_);
  return data;
}

void Allocator::give_back(void* data, std::size_t size, MemoryClass memory, Index bytes) {
  const std::scoped_lock lock(mutex_);
  released_[size].push_back(data);
  now_[memory] -= bytes;
  total_ -= bytes;
}

std::shared_ptr<std::byte> Allocator::allocate(const std::shared_ptr<Allocator>& self, Index bytes, MemoryClass memory,
                                               Fill fill) {
  const std::size_t size = (static_cast<std::size_t>(bytes) / alignment + 1) * alignment;
  void* data = self->take(size, memory, bytes);
  if (fill == Fill::zeros) std::memset(data, 0, size);
  return {static_cast<std::byte*>(data),
          [self, size, memory, bytes](std::byte* p) { self->give_back(p, size, memory, bytes); }};
}

}  // namespace partita
