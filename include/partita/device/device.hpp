#pragma once

#include "partita/base/shape.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace partita {

/// What a move does with the old content of its target. Sums are rounded once. NaN is the largest.
enum class Combine : std::uint8_t { replace, add, largest };

/// Moves the elements of a box from one place to another: copies, packs, unpacks, adds or converts them. Element
/// (i, j, ...) of the source goes to element (i, j, ...) of the target. The slowest dimension comes first; strides are
/// in elements.
struct BoxMove {
  const void* from = nullptr;
  void* to = nullptr;
  DType from_type = DType::f64, to_type = DType::f64;
  Combine combine = Combine::replace;  ///< of one type, unless it replaces or adds bf16 or f16 to f32
  int dims = 0;
  std::array<Index, max_dims> extent{}, from_stride{}, to_stride{};

  /// Adds a dimension that is faster than those before. It is merged into the one before where both are contiguous.
  void push(Index elements, Index from_step, Index to_step);
};

/// A moment in a stream: it has passed when the device has done everything that was in the stream before it. A
/// default-constructed event has passed.
struct Event {
  std::shared_ptr<void> native;
};

/// Bytes that an operation reads or, if it `writes`, may write.
struct Touched {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

class Capture;

/// Which streams a device serves first, if several have work.
enum class Priority : std::uint8_t { normal, high };

/// The processor in whose memory tensors lie, and which computes on them. A device belongs to an allocator, and its
/// tensors follow. Operations on a device run in the order of their stream.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Returns e.g. "cpu".
  virtual std::string_view name() const = 0;
  /// Returns true if the CPU may read and write the memory.
  virtual bool host() const = 0;
  /// Returns `bytes` bytes, aligned to 64, or null if there is no memory. `bytes` is a multiple of 64.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Gives memory back that `allocate` returned.
  virtual void release(void* data) = 0;
  /// Returns how much memory there is, as a part of a sentence, e.g. "the machine has 3.1 GiB of 23.5 GiB left".
  virtual std::string memory_left() const;
  /// Sets `bytes` bytes to zero.
  virtual void zero(void* data, std::size_t bytes, Stream stream) = 0;
  /// Runs the moves. No target overlaps another one or a source.
  virtual void move(std::span<const BoxMove> moves, Stream stream) = 0;
  /// Copies `bytes` bytes from or to memory of this device; the other side may be memory of the CPU or, where the two
  /// devices can reach each other, of another device of the same kind. Memory of the CPU that is not of `staging` has
  /// been read, or written, when the call returns.
  virtual void copy(const void* from, void* to, std::size_t bytes, Stream stream) = 0;
  /// Runs a function of the CPU in the order of the stream. It accesses nothing but the bytes `touched`. Throws Error
  /// if the CPU may not access the memory at any time, as on a GPU. `what` names the function in messages.
  virtual void run(std::string_view what, std::span<const Touched> touched, std::function<void()> function,
                   Stream stream);
  /// Makes a stream, which lives as long as the device.
  virtual Stream make_stream(Priority priority) = 0;
  /// Returns the moment when everything that is in the stream now is done.
  virtual Event record(Stream stream) = 0;
  /// Lets the stream wait for an event, of this or another device of the same kind. The CPU goes on.
  virtual void wait(Stream stream, const Event& event) = 0;
  /// Like record(), with the time at which the moment passes.
  virtual Event mark(Stream stream) = 0;
  /// Returns the seconds between two moments of mark(), which have passed.
  virtual double seconds(const Event& from, const Event& to) = 0;
  /// Returns true if an event has passed. The CPU does not wait.
  virtual bool passed(const Event& event) = 0;
  /// Makes the CPU wait until all operations on the stream are done.
  virtual void finish(Stream stream) = 0;
  /// Makes the CPU wait until an event has passed.
  virtual void wait(const Event& event) = 0;
  /// Returns memory of the CPU from which, and to which, copies run in the order of their stream, while the CPU goes
  /// on. Its `release` waits until the device has done everything.
  virtual Device& staging();
  /// Returns what captures operations; null if the device cannot do that.
  virtual Capture* capture() { return nullptr; }
};

/// Memory of the CPU. Every operation is done when its call returns, whatever its stream.
class HostMemory : public Device {
 public:
  bool host() const final { return true; }
  void zero(void* data, std::size_t bytes, Stream stream) override;
  void move(std::span<const BoxMove> moves, Stream stream) override;
  void copy(const void* from, void* to, std::size_t bytes, Stream stream) override;
  void run(std::string_view what, std::span<const Touched> touched, std::function<void()> function,
           Stream stream) override;
  Stream make_stream(Priority) override { return {}; }
  Event record(Stream) override { return {}; }
  Event mark(Stream) override;
  double seconds(const Event& from, const Event& to) override;
  void wait(Stream, const Event&) override {}
  bool passed(const Event&) override { return true; }
  void finish(Stream) override {}
  void wait(const Event&) override {}
};

/// The CPU. Its `staging` is its own memory.
Device& host_device();

/// The clock of a stream: tells when the stream reached a moment, in seconds of now().
class StreamClock {
 public:
  /// Waits for the stream, and sets the clock by that of the CPU.
  StreamClock(Device& device, Stream stream);
  Event mark() const { return device_->mark(stream_); }
  /// Returns the time of a moment of mark(), which has passed.
  double time(const Event& moment) const { return start_ + device_->seconds(origin_, moment); }
  /// Waits until all moments so far have passed.
  void finish() const { device_->finish(stream_); }

 private:
  Device* device_;
  Stream stream_;
  Event origin_;
  double start_ = 0;
};

}  // namespace partita
