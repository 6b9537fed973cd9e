#pragma once

#include "partita/base/error.hpp"
#include "partita/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace partita {

/// Throws AgreedError if `hash` differs between ranks. A strategy file or a data set that differs between nodes would
/// hang later. Collective: every rank of `world` calls it.
inline void check_agreement(Communicator& world, std::string_view what, std::uint64_t hash) {
  std::array<double, 4>
      extremes{};  // both halves and their negatives: the maxima differ from ours if any rank's differs
  for (std::size_t i = 0; i < 2; ++i) {
    extremes[i] = static_cast<double>(hash >> (32 * i) & 0xFFFFFFFFU);
    extremes[i + 2] = -extremes[i];
  }
  world.all_reduce(extremes.data(), 4, DType::f64, ReduceOp::max, {}).wait();
  if (extremes[0] != -extremes[2] || extremes[1] != -extremes[3])
    throw AgreedError(
        fmt::format("{} differ from rank to rank; give every node the same program, files and options", what));
}

}  // namespace partita
