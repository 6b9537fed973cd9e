#pragma once

#include "partita/device/device.hpp"
#include "test/support/access_history.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

namespace partita::test {

inline Access range(const void* data, std::size_t bytes, bool writes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + bytes, writes};
}

/// Returns the same bytes in as few ranges as possible.
inline std::vector<Access> merged(std::vector<Access> accesses) {
  const auto order = [](const Access& access) { return std::tuple(access.writes, access.begin, access.end); };
  std::sort(accesses.begin(), accesses.end(), [&](const Access& a, const Access& b) { return order(a) < order(b); });
  std::vector<Access> few;
  for (const Access& access : accesses)
    if (!few.empty() && few.back().writes == access.writes && access.begin <= few.back().end)
      few.back().end = std::max(few.back().end, access.end);
    else
      few.push_back(access);
  return few;
}
inline void add_run(const void* base, DType dtype, Index first, Index count, Index step, bool writes,
                    std::vector<Access>& accesses) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  const auto* data = static_cast<const std::byte*>(base);
  if (step == 1)
    return accesses.push_back(range(data + first * size_of(dtype), static_cast<std::size_t>(count) * size, writes));
  for (Index i = 0; i < count; ++i) accesses.push_back(range(data + (first + i * step) * size_of(dtype), size, writes));
}

/// Adds what a move touches, run by run along its fastest dimension.
inline void add_rows(const BoxMove& move, std::vector<Access>& accesses) {
  const auto dims = static_cast<std::size_t>(move.dims);
  Index rows = 1;
  for (std::size_t d = 0; d + 1 < dims; ++d) rows *= move.extent[d];
  for (Index row = 0; row < rows; ++row) {
    Index from = 0, to = 0, rest = row;
    for (std::size_t d = dims > 0 ? dims - 1 : 0; d-- > 0; rest /= move.extent[d]) {
      from += rest % move.extent[d] * move.from_stride[d];
      to += rest % move.extent[d] * move.to_stride[d];
    }
    const Index count = dims > 0 ? move.extent[dims - 1] : 1;
    const Index from_step = dims > 0 ? move.from_stride[dims - 1] : 1,
                to_step = dims > 0 ? move.to_stride[dims - 1] : 1;
    add_run(move.from, move.from_type, from, count, from_step, false, accesses);
    add_run(move.to, move.to_type, to, count, to_step, true, accesses);
  }
}

}  // namespace partita::test
