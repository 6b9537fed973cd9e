#include "partita/model/algorithm.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic: return "auto";
    case Algorithm::stationary_x: return "stationary-x";
    case Algorithm::stationary_y: return "stationary-y";
    case Algorithm::stationary_w: return "stationary-w";
    case Algorithm::groups: return "groups";
    case Algorithm::summa_a: return "summa-a";
    case Algorithm::summa_b: return "summa-b";
    case Algorithm::summa_c: return "summa-c";
    case Algorithm::dot: return "dot";
    case Algorithm::two_and_a_half_d: return "2.5d";
  }
  broken("unknown algorithm");
}

AlgorithmName::AlgorithmName(Algorithm y, Algorithm dx, Algorithm dw)
    : text_(fmt::format("{}/{}/{}", name(y), name(dx), name(dw))) {}

}  // namespace partita
