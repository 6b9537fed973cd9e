#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace partita {

/// What a buffer is for; a rank's memory is reported by these.
enum class MemoryClass : std::uint8_t { weights, gradients, optimizer, activations, halos, workspace, data };
inline constexpr std::size_t memory_classes = 7;

/// e.g. "weights".
std::string_view name(MemoryClass memory);

/// What a fresh buffer holds: zeros, or anything.
enum class Fill : std::uint8_t { zeros, none };

/// e.g. "1.5 MiB".
std::string print_bytes(Index count);

/// Bytes by class. A value.
struct MemoryUse {
  std::array<Index, memory_classes> bytes{};
  Index& operator[](MemoryClass memory) { return bytes[static_cast<std::size_t>(memory)]; }
  Index operator[](MemoryClass memory) const { return bytes[static_cast<std::size_t>(memory)]; }
  Index total() const;
  /// e.g. "weights 1.5 KiB, activations 2.0 MiB"; "none" without any.
  std::string print() const;
  bool operator==(const MemoryUse&) const = default;
};

/// Hands out buffers and keeps account of them by class: what is in use now, and the most that ever was.
/// One a rank; buffers may be released on any thread, and may outlive the allocator's other owners.
/// Released memory is kept for the next buffer of its size: a step asks for the same sizes as the one before, and fresh
/// pages from the system cost more than most kernels that fill them.
class Allocator {
 public:
  /// With a limit it gives released memory back to the system before it passes it, and throws Error where buffers in use
  /// would; workspace, of which backends and messages may need more than a plan predicts, does not count.
  explicit Allocator(Index limit = 0) : limit_(limit) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator();

  /// Bytes in use now.
  MemoryUse now() const;
  /// The most bytes in use at any one time, each class by itself.
  MemoryUse peak() const;
  /// The most bytes in use at any one time, all classes together.
  Index peak_total() const;

  /// `bytes` bytes, aligned to 64 so that kernels round alike on every rank.
  /// The buffer keeps `self` alive. Throws std::bad_alloc.
  static std::shared_ptr<std::byte> allocate(const std::shared_ptr<Allocator>& self, Index bytes, MemoryClass memory,
                                             Fill fill = Fill::zeros);

 private:
  void* take(std::size_t size, MemoryClass memory, Index bytes);
  void make_room(MemoryClass memory, Index bytes);
  void give_back(void* data, std::size_t size, MemoryClass memory, Index bytes);

  mutable std::mutex mutex_;
  MemoryUse now_, peak_;
  Index total_ = 0, peak_total_ = 0;
  Index limit_ = 0, kept_ = 0;  // 0: none; bytes of released buffers
  std::unordered_map<std::size_t, std::vector<void*>> released_;
};

}  // namespace partita
