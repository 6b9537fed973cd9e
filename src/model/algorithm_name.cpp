#include "partita/model/algorithm_name.hpp"

#include <fmt/format.h>

namespace partita {

AlgorithmName::AlgorithmName(Algorithm y, Algorithm dx, Algorithm dw)
    : text_(fmt::format("{}/{}/{}", name(y), name(dx), name(dw))) {}

}  // namespace partita
