#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "strategies/cost/collective_cost.hpp"
#include "strategies/cost/links.hpp"

#include <span>
#include <string>
#include <vector>

namespace partita {

/// How a use of links follows the one before it in a collective.
enum class Follows : std::uint8_t {
  after,       ///< the same rank's next messages
  at_once,     ///< the same rank's messages over other links, at the same time: the slower ones count
  other_rank,  ///< the first messages of a rank that does something else meanwhile: the slower rank counts
  all_ranks,   ///< the first messages after all ranks have waited for each other
};

/// What a rank sends or receives over one kind of links: in a collective one message after the other.
struct LinkUse {
  int link = 0;  ///< index into the table of links
  double rounds = 0, bytes = 0;
  double of_unit = 0;  ///< the bytes of all ranks of the unit, which share its links; 0: Link::sharing says how many do
  Follows follows = Follows::after;
  bool operator==(const LinkUse&) const = default;
};

/// A way to run a collective.
struct CollectiveOption {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  LevelUse levels = LevelUse::flat;
  int first = 0, end = 0;  ///< the range of its uses of links
  double combined = 0;     ///< bytes that are added to as many others
  double turns = 1;        ///< exchanges: PlannedTraffic::turns; the messages of a turn are under way together
};

/// The options of all communications, and the tables that they refer to.
struct LinkTables {
  std::vector<Link> links;
  std::vector<LinkUse> uses;
  std::vector<CollectiveOption> options;

  /// Returns the index of a link, which is added if it is new.
  int number(const Link& link);
};

/// Returns e.g. "ring over all links" or "rabenseifner by levels".
std::string name(const CollectiveOption& option);

/// Returns the algorithms that are worth running by levels: few rounds or few bytes.
std::span<const CollectiveAlgorithm> algorithms_by_levels(Verb verb);

/// Calls f(algorithm, levels) for the ways to run a collective, the flat ones first. `top`: the farthest level that it
/// crosses; `several_levels`: it crosses more than that one. Sources: the algorithms as in
/// CollectiveAlgorithm; all_links and by_levels: NCCL's rings, and Thakur, Rabenseifner, Gropp 2005, inside and between
/// nodes (Jia et al., Highly Scalable Deep Learning Training System, 2018); one_shot: the small sums of TensorRT-LLM,
/// which it uses for up to 8 GPUs; in_network: Graham et al., Scalable Hierarchical Aggregation Protocol, 2016.
template <class F>
void each_way(Verb verb, int ranks, int top, bool several_levels, F&& f) {
  using enum CollectiveAlgorithm;
  constexpr int most_ranks_of_one_shot = 8;
  const bool rings = verb == Verb::all_reduce || verb == Verb::all_gather || verb == Verb::reduce_scatter;
  for (const CollectiveAlgorithm algorithm : algorithms(verb)) f(algorithm, LevelUse::flat);
  if (verb == Verb::all_reduce && top == 0 && ranks <= most_ranks_of_one_shot) f(pairwise, LevelUse::one_shot);
  if (several_levels && rings) f(ring, LevelUse::all_links);
  if (several_levels)
    for (const CollectiveAlgorithm algorithm : algorithms_by_levels(verb)) f(algorithm, LevelUse::by_levels);
  if (verb == Verb::all_reduce) f(ring, LevelUse::in_network);
}

/// Adds these ways, one option each, for a collective of which each unit of a level holds equally many ranks. The last
/// span holds all its ranks.
void add_options(Verb verb, std::span<const Span> spans, double bytes, LinkTables& tables);

}  // namespace partita
