#include "partita/layouts/algorithm.hpp"

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
    case Algorithm::all_to_all: return "all-to-all";
    case Algorithm::ring: return "ring";
    case Algorithm::whole: return "whole";
  }
  broken("unknown algorithm");
}

std::string_view name(std::optional<Algorithm> algorithm, std::string_view otherwise) {
  return algorithm ? name(*algorithm) : otherwise;
}

std::optional<Algorithm> algorithm_named(std::string_view text) {
  using enum Algorithm;
  for (const Algorithm each : {automatic, stationary_x, stationary_y, stationary_w, groups, summa_a, summa_b, summa_c,
                               dot, two_and_a_half_d, all_to_all, ring, whole})
    if (name(each) == text) return each;
  return std::nullopt;
}

std::vector<std::string> names_of(const std::vector<Algorithm>& algorithms) {
  std::vector<std::string> names;
  for (const Algorithm each : algorithms) names.emplace_back(name(each));
  return names;
}

}  // namespace partita
