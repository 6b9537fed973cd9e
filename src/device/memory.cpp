#include "partita/device/memory.hpp"

#include "partita/base/error.hpp"
#include "src/system/host.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace partita {

namespace {

std::size_t size_of_block(Index bytes) { return static_cast<std::size_t>(bytes_of_block(bytes)); }

/// A hash of an address. Sets of addresses are hashed by the XOR of their hashes (SplitMix64's mixing function).
std::uint64_t hash_of(const void* address) {
  auto h = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address)) + 0x9E3779B97F4A7C15;
  h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9;
  h = (h ^ (h >> 27U)) * 0x94D049BB133111EB;
  return h ^ (h >> 31U);
}

}  // namespace

std::string machine_memory_left() {
  const auto shown = [](const char* file, std::string_view row) {
    return print_bytes(proc_bytes(file, row).value_or(-1));
  };
  std::string text = fmt::format("this process holds {} in {} of addresses, and the machine has {} of {} left",
                                 shown("/proc/self/status", "VmRSS"), shown("/proc/self/status", "VmSize"),
                                 shown("/proc/meminfo", "MemAvailable"), shown("/proc/meminfo", "MemTotal"));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format("; its limit is {} of addresses (ulimit -v)", print_bytes(static_cast<Index>(limit.rlim_cur)));
  return text;
}

std::string out_of_memory_text(std::string_view what, const Device& device) {
  return fmt::format(
      "out of memory: {}; {}; use more ranks, a smaller --batch or `recompute` in the strategy, and let --memory-limit "
      "check the size",
      what, device.memory_left());
}

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

Index Allocator::peak_taken() const {
  const std::scoped_lock lock(mutex_);
  return peak_taken_;
}

Allocator::State Allocator::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

Allocator::~Allocator() {
  for (const auto& [size, blocks] : released_)
    for (void* block : blocks) device_.release(block);
}

void* Allocator::take(std::size_t size, MemoryClass memory, Index bytes) {
  const std::scoped_lock lock(mutex_);
  check_limit(memory, bytes);
  void* data = nullptr;
  if (auto& blocks = released_[size]; !blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
    kept_ -= static_cast<Index>(size);
  } else {
    make_room(bytes);
    ++state_.taken;
    data = device_.allocate(size);
    if (data == nullptr && kept_ > 0) {
      give_back_kept();
      data = device_.allocate(size);
    }
    if (data == nullptr)
      throw OutOfMemory(
          out_of_memory_text(fmt::format("{} for {} could not be allocated beside {} of tensors ({})",
                                         print_bytes(bytes), name(memory), print_bytes(total_), now_.print()),
                             device_));
    taken_ += static_cast<Index>(size);
    peak_taken_ = std::max(peak_taken_, taken_);
  }
  state_.in_use ^= hash_of(data);
  count(memory, bytes);
  return data;
}

/// @pre The mutex is locked.
void Allocator::count(MemoryClass memory, Index bytes) {
  now_[memory] += bytes;
  peak_[memory] = std::max(peak_[memory], now_[memory]);
  total_ += bytes;
  peak_total_ = std::max(peak_total_, total_);
}

void Allocator::check_limit(MemoryClass memory, Index bytes) const {
  const Index counted = total_ - now_[MemoryClass::workspace];
  if (limit_ > 0 && memory != MemoryClass::workspace && counted + bytes > limit_)
    fail("{} more bytes of {} would exceed the memory limit of {} bytes, of which {} are in use", bytes, name(memory),
         limit_, counted);
}

/// Gives kept memory back if `bytes` fresh bytes would exceed the limit together with it.
void Allocator::make_room(Index bytes) {
  if (limit_ > 0 && total_ + kept_ + bytes > limit_) give_back_kept();
}

/// Gives the memory of released buffers back to the device.
/// @pre The mutex is locked.
void Allocator::give_back_kept() {
  for (auto& [each, blocks] : released_) {
    for (void* block : blocks) device_.release(block);
    blocks.clear();
  }
  ++state_.given_back;
  taken_ -= kept_;
  kept_ = 0;
}

void Allocator::give_back(void* data, std::size_t size, MemoryClass memory, Index bytes) {
  const std::scoped_lock lock(mutex_);
  released_[size].push_back(data);
  state_.in_use ^= hash_of(data);
  kept_ += static_cast<Index>(size);
  now_[memory] -= bytes;
  total_ -= bytes;
}

std::shared_ptr<std::byte> Allocator::allocate(const std::shared_ptr<Allocator>& self, Index bytes, MemoryClass memory,
                                               Fill fill) {
  const std::size_t size = size_of_block(bytes);
  auto buffer = hold(self, self->take(size, memory, bytes), bytes, memory);
  if (fill == Fill::zeros) self->device_.zero(buffer.get(), size, self->stream_);
  return buffer;
}

std::shared_ptr<std::byte> Allocator::allocate_again(const std::shared_ptr<Allocator>& self, void* data, Index bytes,
                                                     MemoryClass memory) {
  const std::size_t size = size_of_block(bytes);
  {
    const std::scoped_lock lock(self->mutex_);
    auto& blocks = self->released_[size];
    require(std::erase(blocks, data) == 1, "memory that is used again must be kept");
    self->kept_ -= static_cast<Index>(size);
    self->state_.in_use ^= hash_of(data);
    self->count(memory, bytes);
  }
  return hold(self, data, bytes, memory);
}

/// Returns a buffer that gives its memory back.
std::shared_ptr<std::byte> Allocator::hold(const std::shared_ptr<Allocator>& self, void* data, Index bytes,
                                           MemoryClass memory) {
  return {static_cast<std::byte*>(data),
          [self, memory, bytes](std::byte* p) { self->give_back(p, size_of_block(bytes), memory, bytes); }};
}

std::shared_ptr<const void> Allocator::account(const std::shared_ptr<Allocator>& self, Index bytes,
                                               MemoryClass memory) {
  const std::scoped_lock lock(self->mutex_);
  self->check_limit(memory, bytes);
  self->make_room(bytes);
  self->count(memory, bytes);
  return {self.get(), [self, bytes, memory](const void*) {
            const std::scoped_lock unlock(self->mutex_);
            self->now_[memory] -= bytes;
            self->total_ -= bytes;
          }};
}

}  // namespace partita
