#include "src/cli/output/compared.hpp"

#include <fmt/format.h>

namespace partita::cli {

std::string print_rate(double per_second) {
  return per_second < 100 ? fmt::format("{:.3g}", per_second) : fmt::format("{:.0f}", per_second);
}

std::vector<std::pair<std::string, double>> named_parts(const CostParts& parts) {
  return {{"compute", parts.passes.compute},
          {"halo", parts.passes.halo},
          {"redistribution", parts.passes.redistribution},
          {"product", parts.passes.product},
          {"collective", parts.passes.collective},
          {"gradients", parts.grad_reduce},
          {"transfer", parts.transfers},
          {"bubble", parts.bubble},
          {"optimizer", parts.update}};
}

}  // namespace partita::cli
