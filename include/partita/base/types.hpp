#pragma once

#include <cstdint>
#include <string_view>

namespace partita {

/// Extents, coordinates, element counts and bytes: signed, so that halos and paddings can be subtracted.
using Index = std::int64_t;

/// Element types. A run-time value: no template crosses a module's border. `i32` holds labels and pooling indices.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i32 };

/// Bytes of one element.
Index size_of(DType dtype);

/// "f64", "f32", "bf16", "f16" or "i32".
std::string_view name(DType dtype);

/// The inverse of `name`; throws Error for anything else.
DType parse_dtype(std::string_view text);

/// Where work is ordered: on a GPU a CUDA stream, on a CPU nothing (every call is complete when it returns).
/// Every verb of Communicator and Backend takes one, so that a device needs no second interface.
struct Stream {
  void* native = nullptr;
};

}  // namespace partita
