#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "strategies/cost/collective_cost.hpp"
#include "strategies/cost/links.hpp"

#include <span>
#include <string>
#include <vector>

namespace partita {

/// What a rank sends or receives over one kind of links: in a collective one message after the other.
struct LinkUse {
  int link = 0;  ///< index into the table of links
  double rounds = 0, bytes = 0;
  double of_unit = 0;  ///< exchanges: the bytes of all ranks of the unit, which share its links
  bool operator==(const LinkUse&) const = default;
};

/// A way to run a collective.
struct CollectiveOption {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  LevelUse levels = LevelUse::flat;
  bool together = false;   ///< all links are busy at the same time, so the slowest counts; otherwise the sum counts
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

/// Adds the ways to run a collective, one option each. The last span holds all its ranks. Sources: the algorithms as in
/// CollectiveAlgorithm; all_links and by_levels: NCCL's rings, and Thakur, Rabenseifner, Gropp 2005, inside and between
/// nodes (Jia et al., Highly Scalable Deep Learning Training System, 2018); one_shot: the small sums of TensorRT-LLM,
/// which it uses for up to 8 GPUs; in_network: Graham et al., Scalable Hierarchical Aggregation Protocol, 2016.
///
/// `waits`: other ranks of the collective lie in other ways, and each round waits for the slowest of all. Then each
/// round is a use of links of its own, in the same order for all ways to lie.
void add_options(Verb verb, std::span<const Span> spans, double bytes, LinkTables& tables, bool waits = false);

}  // namespace partita
