#include "partita/base/collective_algorithm.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace partita {

std::string_view name(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::recursive_doubling: return "recursive_doubling";
    case CollectiveAlgorithm::recursive_halving: return "recursive_halving";
    case CollectiveAlgorithm::ring: return "ring";
    case CollectiveAlgorithm::pairwise: return "pairwise";
    case CollectiveAlgorithm::binomial: return "binomial";
    case CollectiveAlgorithm::rabenseifner: return "rabenseifner";
    case CollectiveAlgorithm::bruck: return "bruck";
    case CollectiveAlgorithm::scatter_all_gather: return "scatter_all_gather";
  }
  broken("unknown algorithm");
}

std::string_view name(LevelUse use) {
  switch (use) {
    case LevelUse::flat: return "flat";
    case LevelUse::one_shot: return "one-shot";
    case LevelUse::all_links: return "all-links";
    case LevelUse::by_levels: return "by-levels";
    case LevelUse::in_network: return "in-network";
  }
  broken("unknown use of levels");
}

std::span<const CollectiveAlgorithm> algorithms(Verb verb) {
  using enum CollectiveAlgorithm;
  static constexpr std::array all_reduce{recursive_doubling, ring, rabenseifner, binomial};
  static constexpr std::array all_gather{ring, recursive_doubling, bruck};
  static constexpr std::array reduce_scatter{pairwise, ring, recursive_halving};
  static constexpr std::array broadcast{binomial, scatter_all_gather};
  static constexpr std::array all_to_all{pairwise, bruck};
  switch (verb) {
    case Verb::none:
    case Verb::exchange: return {};
    case Verb::all_reduce: return all_reduce;
    case Verb::all_gather: return all_gather;
    case Verb::reduce_scatter: return reduce_scatter;
    case Verb::broadcast: return broadcast;
    case Verb::all_to_all: return all_to_all;
  }
  broken("unknown verb");
}

void check_algorithm(Verb verb, CollectiveAlgorithm algorithm) {
  const auto known = algorithms(verb);
  if (std::find(known.begin(), known.end(), algorithm) != known.end()) return;
  std::vector<std::string> names;
  for (const CollectiveAlgorithm one : known) names.emplace_back(name(one));
  fail("{} is not an algorithm of {}, which has {}", name(algorithm), name(verb),
       names.empty() ? "none" : quoted_list(names));
}

}  // namespace partita
