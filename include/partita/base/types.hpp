#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// Extents, coordinates, element counts and bytes. Signed, so that halos and padding can be subtracted.
using Index = std::int64_t;

/// Element types. The dtype is a run-time value, so that no interface between modules needs a template. `i32` holds
/// labels and pooling indices.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i32 };

/// Returns the bytes of one element.
Index size_of(DType dtype);

/// Returns "f64", "f32", "bf16", "f16" or "i32".
std::string_view name(DType dtype);

/// The inverse of `name`. Throws Error for any other text.
DType parse_dtype(std::string_view text);

/// The queue that orders work: a CUDA stream on a GPU, nothing on a CPU, where every call is complete when it returns.
/// Every operation of Communicator and Backend takes one, so that CPU and GPU share one interface.
struct Stream {
  void* native = nullptr;
};

}  // namespace partita
