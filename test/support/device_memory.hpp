#pragma once

#include "partita/base/error.hpp"
#include "partita/device/device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace partita::test {

/// Memory, of which each block starts on a page of its own. The CPU may access it only while it is open.
class Arena {
 public:
  Arena() : base_(static_cast<std::byte*>(map())) { require(base_ != MAP_FAILED, "there must be addresses"); }
  ~Arena() { munmap(base_, most); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns a block in which all numbers are NaN; null if there is no room.
  void* allocate(std::size_t bytes) {
    const std::size_t size = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
    std::size_t held = size;
    for (const auto& [address, block] : blocks_) held += block.size;
    if (held > limit_) return nullptr;
    auto& kept = released_[size];
    if (kept.empty() && used_ + size > most) return nullptr;
    std::byte* data = base_ + used_;
    if (kept.empty()) {
      used_ += size;
    } else {
      data = kept.back();
      kept.pop_back();
    }
    blocks_[data] = {bytes, size};
    mprotect(data, size, PROT_READ | PROT_WRITE);
    std::memset(data, 0xFF, size);
    mprotect(data, size, PROT_NONE);
    return data;
  }
  void release(void* data) {
    const auto at = blocks_.find(static_cast<std::byte*>(data));
    require(at != blocks_.end(), "memory must be released once");
    released_[at->second.size].push_back(at->first);
    blocks_.erase(at);
  }
  void open(bool opens) const { mprotect(base_, used_, opens ? PROT_READ | PROT_WRITE : PROT_NONE); }
  /// Returns the block that holds an address; empty if none does.
  std::span<std::byte> block_of(const void* address) const {
    const auto* data = static_cast<const std::byte*>(address);
    if (data < base_ || data >= base_ + used_) return {};
    auto at = blocks_.upper_bound(const_cast<std::byte*>(data));
    if (at == blocks_.begin()) return {};
    --at;
    return data < at->first + at->second.size ? std::span(at->first, at->second.bytes) : std::span<std::byte>();
  }
  std::size_t blocks() const { return blocks_.size(); }
  /// From now on, blocks have `bytes` bytes at most, all together.
  void limit(std::size_t bytes) { limit_ = bytes; }

 private:
  static constexpr std::size_t page = 4096, most = std::size_t{1} << 28;
  struct Block {
    std::size_t bytes = 0, size = 0;
  };
  static void* map() { return mmap(nullptr, most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

  std::byte* base_;
  std::size_t used_ = 0, limit_ = most;
  std::map<std::byte*, Block> blocks_;
  std::map<std::size_t, std::vector<std::byte*>> released_;
};

/// Memory of the CPU from which and to which a device copies in the order of its streams. Before it is released, the
/// device does everything, as CUDA does.
class StagingMemory final : public HostMemory {
 public:
  /// `finish(data, bytes)`: the device does everything, and forgets what touched these bytes.
  using Finish = std::function<void(const void* data, std::size_t bytes)>;

  explicit StagingMemory(Finish finish) : finish_(std::move(finish)) {}
  std::string_view name() const override { return "staging"; }
  void* allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    void* data = host_device().allocate(bytes);
    blocks_[static_cast<std::byte*>(data)] = bytes;
    return data;
  }
  void release(void* data) override {
    finish_(data, bytes_of(data));
    const std::scoped_lock lock(mutex_);
    blocks_.erase(static_cast<std::byte*>(data));
    host_device().release(data);
  }
  bool owns(const void* address) const {
    const std::scoped_lock lock(mutex_);
    const auto* data = static_cast<const std::byte*>(address);
    auto at = blocks_.upper_bound(const_cast<std::byte*>(data));
    return at != blocks_.begin() && data < (--at)->first + at->second;
  }

 private:
  std::size_t bytes_of(const void* data) const {
    const std::scoped_lock lock(mutex_);
    return blocks_.at(static_cast<std::byte*>(const_cast<void*>(data)));
  }

  Finish finish_;
  mutable std::mutex mutex_;
  std::map<std::byte*, std::size_t> blocks_;
};

}  // namespace partita::test
