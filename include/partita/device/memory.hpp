#pragma once

#include "partita/base/memory_use.hpp"
#include "partita/device/device.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace partita {

/// What a fresh buffer holds: zeros, or (`none`) unspecified bytes.
enum class Fill : std::uint8_t { zeros, none };

/// Memory ran out. Its message names sizes and remedies.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

/// Returns a message for memory of a device that ran out: `what` failed, how much there is, and remedies.
std::string out_of_memory_text(std::string_view what, const Device& device = host_device());
/// Returns how much memory this process holds, and how much the machine has left, as a part of a sentence.
std::string machine_memory_left();

/// Allocates buffers and counts their bytes per class: the bytes in use now, and the maximum so far.
/// Each rank has one. A buffer may be released on any thread, and it keeps the allocator alive.
/// The allocator keeps released memory for the next buffer of the same size. Each training step asks for the same sizes
/// as the step before, and fresh pages from the system cost more than most kernels that fill them.
class Allocator {
 public:
  /// `limit` is in bytes; 0 means no limit. Before an allocation would exceed the limit, or fail, kept memory is given
  /// back to the device. `allocate` throws Error if the buffers in use would exceed the limit. Workspace does not count
  /// towards it, because backends and messages may need more workspace than a plan predicts.
  explicit Allocator(Index limit = 0) : Allocator(host_device(), limit) {}
  /// As above, in the memory of a device, which must outlive the allocator and its buffers. Buffers are zeroed, and
  /// used again, in the order of `stream`. Another stream waits for it before it uses a buffer, and it waits for the
  /// other one before the buffer is released.
  explicit Allocator(Device& device, Index limit = 0, Stream stream = {})
      : device_(device), stream_(stream), limit_(limit) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  ~Allocator();

  /// The device in whose memory the buffers lie.
  Device& device() const { return device_; }
  /// The stream in whose order buffers are zeroed and used again.
  Stream stream() const { return stream_; }
  /// Returns the bytes in use now.
  MemoryUse now() const;
  /// Returns the maximum number of bytes in use at any one time, separately for each class.
  MemoryUse peak() const;
  /// Returns the maximum number of bytes in use at any one time, summed over all classes.
  Index peak_total() const;
  /// Returns the maximum number of bytes that the device gave at any one time. This is more, because released memory is
  /// kept for buffers of the same size.
  Index peak_taken() const;

  /// Tells whether the allocator is as it was.
  struct State {
    std::uint64_t in_use = 0;  ///< a hash of the addresses of the buffers in use
    Index taken = 0;           ///< how often memory was asked of the device
    Index given_back = 0;      ///< how often kept memory was given back to it
    bool operator==(const State&) const = default;
  };
  State state() const;

  /// Returns a buffer of `bytes` bytes that keeps `self` alive. It is aligned to 64 bytes, so that kernels round in the
  /// same way on every rank. Throws Error if the limit would be exceeded, OutOfMemory if the system has no memory.
  static std::shared_ptr<std::byte> allocate(const std::shared_ptr<Allocator>& self, Index bytes, MemoryClass memory,
                                             Fill fill = Fill::zeros);
  /// Returns the buffer again that lay at `data`, had `bytes` bytes and was released. Its content is unspecified.
  /// @pre Its memory is kept.
  static std::shared_ptr<std::byte> allocate_again(const std::shared_ptr<Allocator>& self, void* data, Index bytes,
                                                   MemoryClass memory);
  /// Counts `bytes` bytes that somebody else allocates, until the last copy of the result is destroyed. Throws Error if
  /// the limit would be exceeded.
  static std::shared_ptr<const void> account(const std::shared_ptr<Allocator>& self, Index bytes, MemoryClass memory);

 private:
  static std::shared_ptr<std::byte> hold(const std::shared_ptr<Allocator>& self, void* data, Index bytes,
                                         MemoryClass memory);
  void* take(std::size_t size, MemoryClass memory, Index bytes);
  void check_limit(MemoryClass memory, Index bytes) const;
  void make_room(Index bytes);
  void give_back_kept();
  void count(MemoryClass memory, Index bytes);
  void give_back(void* data, std::size_t size, MemoryClass memory, Index bytes);

  Device& device_;
  Stream stream_;
  mutable std::mutex mutex_;
  MemoryUse now_, peak_;
  State state_;
  Index total_ = 0, peak_total_ = 0;
  Index limit_ = 0, kept_ = 0;        // bytes: the limit (0: none), and the released buffers that are kept
  Index taken_ = 0, peak_taken_ = 0;  // bytes that the device gave
  std::unordered_map<std::size_t, std::vector<void*>> released_;
};

}  // namespace partita
