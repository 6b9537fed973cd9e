#pragma once

#include "partita/device/device.hpp"

#include <exception>
#include <memory>
#include <span>

namespace partita {

/// Memory of the CPU that a captured copy reads, and what the copy shall read from now on: as many bytes.
struct OtherSource {
  const void* captured = nullptr;
  const void* now = nullptr;
};

/// Operations that a device has captured instead of running them, e.g. as a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Runs the operations again, in the order that streams and events gave them. They come after everything that is in
  /// any stream of the device, and before everything that is added later.
  virtual void launch(std::span<const OtherSource> others) = 0;
};

/// Captures what one thread adds to the streams of a device. An event of a capture has passed, for all later calls,
/// when its operations were launched.
class Capture {
 public:
  virtual ~Capture() = default;
  /// From now on, the operations on `stream`, and on streams that have waited for it, are captured and do not run.
  /// Until the capture ends, the CPU does not wait for the device, and copies from and to the CPU use memory of
  /// Device::staging.
  virtual void begin(Stream stream) = 0;
  /// Ends the capture. The graph keeps nothing alive that its operations use.
  virtual std::unique_ptr<Graph> end() = 0;
  /// True between begin() and end(), on the thread that called them.
  virtual bool active() const = 0;
};

/// Captures what `add` adds to a stream. If it throws, nothing is captured.
template <class Add>
std::unique_ptr<Graph> capture(Device& device, Stream stream, Add&& add) {
  Capture& capture = *device.capture();
  capture.begin(stream);
  try {
    add();
  } catch (...) {
    try {
      capture.end();
    } catch (const std::exception&) {
      // What `add` threw says more.
    }
    throw;
  }
  return capture.end();
}

}  // namespace partita
