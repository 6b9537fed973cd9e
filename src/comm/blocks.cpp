#include "src/comm/blocks.hpp"

#include "partita/base/dispatch.hpp"

namespace partita {

void combine(void* to, const void* from, Index count, DType dtype, ReduceOp op) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    auto* a = static_cast<T*>(to);
    const auto* b = static_cast<const T*>(from);
    if (op == ReduceOp::sum)
      for (Index i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
    else  // NaN wins, whichever side it is on, so that all ranks agree
      for (Index i = 0; i < count; ++i) a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
  });
}

}  // namespace partita
