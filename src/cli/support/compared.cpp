#include "src/cli/support/compared.hpp"

namespace partita::cli {

std::vector<std::pair<std::string, double>> named_parts(const CostParts& parts) {
  return {{"compute", parts.passes.compute},
          {"halo", parts.passes.halo},
          {"redistribution", parts.passes.redistribution},
          {"product", parts.passes.product},
          {"collective", parts.passes.collective},
          {"gradients", parts.sums},
          {"transfer", parts.transfers},
          {"bubble", parts.bubble},
          {"optimizer", parts.update}};
}

}  // namespace partita::cli
