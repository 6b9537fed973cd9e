#include "partita/base/types.hpp"

#include "partita/base/error.hpp"

namespace partita {

Index size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
  }
  broken("unknown dtype");
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
  }
  broken("unknown dtype");
}

DType parse_dtype(std::string_view text) {
  for (const auto dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32})
    if (text == name(dtype)) return dtype;
  fail("'{}' is not an element type; use f64, f32, bf16 or f16", text);
}

}  // namespace partita
