#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace partita::bench {

/// A small model for bench/oracle. The output of its last layer but one, which stands before the loss, is compared.
struct OracleCase {
  Model model{"oracle"};
  nlohmann::ordered_json described;  ///< the parameters, with PyTorch's names
  Strategy strategy;
  std::string layout;  ///< the strategy's rules, for messages
  Index batch = 1;
};

/// Draws a layer of sequences behind tables, an embedding or a linear layer, each layer under a layout of its own.
OracleCase draw_sequence(std::uint64_t seed);

}  // namespace partita::bench
