#include "partita/base/algorithm.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace partita {

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::recursive_doubling: return "recursive_doubling";
    case Algorithm::recursive_halving: return "recursive_halving";
    case Algorithm::ring: return "ring";
    case Algorithm::pairwise: return "pairwise";
    case Algorithm::binomial: return "binomial";
    case Algorithm::rabenseifner: return "rabenseifner";
    case Algorithm::bruck: return "bruck";
    case Algorithm::scatter_all_gather: return "scatter_all_gather";
  }
  broken("unknown algorithm");
}

std::span<const Algorithm> algorithms(Verb verb) {
  using enum Algorithm;
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

void check_algorithm(Verb verb, Algorithm algorithm) {
  const auto known = algorithms(verb);
  if (std::find(known.begin(), known.end(), algorithm) != known.end()) return;
  std::vector<std::string> names;
  for (const Algorithm one : known) names.emplace_back(name(one));
  fail("{} is not an algorithm of {}, which has {}", name(algorithm), name(verb),
       names.empty() ? "none" : quoted_list(names));
}

}  // namespace partita
