#include "strategies/cost/collective_options.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

/// Adds the options of one collective.
class OptionList {
 public:
  OptionList(Verb verb, std::span<const Span> spans, double bytes, LinkTables& tables)
      : verb_(verb), spans_(spans), top_(spans.back()), bytes_(bytes), tables_(tables) {}

  void add(CollectiveAlgorithm algorithm, LevelUse levels) {
    const auto first = static_cast<int>(tables_.uses.size());
    tables_.options.push_back({algorithm, levels, first, first, 0});
    switch (levels) {
      case LevelUse::flat: add_flat(algorithm); break;
      case LevelUse::one_shot: add_one_shot(); break;
      case LevelUse::all_links: add_all_links(); break;
      case LevelUse::by_levels: add_by_levels(algorithm); break;
      case LevelUse::in_network: add_in_network(); break;
    }
    tables_.options.back().end = static_cast<int>(tables_.uses.size());
  }

 private:
  void add_flat(CollectiveAlgorithm algorithm) {
    thread_local std::vector<Hop> hops;  // kept, since many collectives are priced
    collective_hops(verb_, algorithm, top_.ranks, bytes_, hops);
    for (const Hop& hop : hops) add_hop(hop, algorithm);
  }

  void add_one_shot() {
    const double all = bytes_ * (top_.ranks - 1);
    use(links(top_, 1), {1, all, all});
  }

  /// Each unit has a ring for each of its ranks, which carries as large a share of the bytes.
  void add_all_links() {
    const CollectiveCost cost = collective_cost(verb_, CollectiveAlgorithm::ring, top_.ranks, bytes_);
    for (const Span& span : spans_) use(all_ranks(span), {cost.rounds, cost.bytes / span.inside, 0}, Follows::at_once);
    tables_.options.back().combined = cost.combined;
  }

  void add_by_levels(CollectiveAlgorithm algorithm) {
    for (const Span& span : spans_.first(spans_.size() - 1)) add_inside(span, algorithm);
    use(all_ranks(top_), cost_in(top_, verb_, algorithm));
  }

  /// The switches of the outermost level get a vector from each rank and send their sum back: one message up and one
  /// down, at the same time but for their latencies.
  void add_in_network() {
    for (const Span& span : spans_.first(spans_.size() - 1)) add_inside(span, CollectiveAlgorithm::ring);
    Link link = all_ranks(top_);
    link.adds = true;
    use(link, {2, bytes_ / top_.inside, 0});
  }

  static Link links(const Span& span, double sharing) { return {span.level, sharing, false, span.width}; }
  static Link all_ranks(const Span& span) { return links(span, span.groups * span.inside); }

  void use(const Link& link, const CollectiveCost& cost, Follows follows = Follows::after) {
    CollectiveOption& option = tables_.options.back();
    option.combined += cost.combined;
    const int number = tables_.number(link);
    const auto begin = tables_.uses.begin() + option.first;
    const auto found =
        std::find_if(begin, tables_.uses.end(), [&](const LinkUse& each) { return each.link == number; });
    if (found == tables_.uses.end()) return tables_.uses.push_back({number, cost.rounds, cost.bytes, 0, follows});
    found->rounds += cost.rounds;
    found->bytes += cost.bytes;
  }

  void add_hop(const Hop& hop, CollectiveAlgorithm algorithm) {
    using enum Hop::Kind;
    switch (hop.kind) {
      case pair: {
        const Span& span = reached(hop.distance);
        return use(all_ranks(span), hop.cost);
      }
      case tree: {
        const Span& span = reached(hop.distance);
        return use(links(span, span.groups), hop.cost);
      }
      case shift: return algorithm == CollectiveAlgorithm::ring ? add_ring(hop) : use(crossing(top_, hop), hop.cost);
      case direct: return add_direct(hop);
    }
  }

  /// A shift passes the borders of all units. The ranks next to a border cross it.
  static Link crossing(const Span& span, const Hop& hop) {
    return links(span, span.groups * std::min(hop.distance, span.inside));
  }
  /// A ring is as slow as its slowest level. Other shifts cross the outermost one.
  void add_ring(const Hop& hop) {
    for (const Span& span : spans_) use(crossing(span, hop), {hop.cost.rounds, hop.cost.bytes, 0}, Follows::at_once);
    tables_.options.back().combined += hop.cost.combined;
  }

  /// The peers of a rank lie at all levels, each as far away as its units are many.
  void add_direct(const Hop& hop) {
    for (const Span& span : spans_) {
      const double share = static_cast<double>(span.ranks - span.inside) / hop.distance;
      use(all_ranks(span), {hop.cost.rounds * share, hop.cost.bytes * share, hop.cost.combined * share});
    }
  }

  /// Returns the innermost span in which a rank and the one at a distance lie.
  const Span& reached(int distance) const {
    const auto found =
        std::find_if(spans_.begin(), spans_.end(), [&](const Span& span) { return distance < span.ranks; });
    return found == spans_.end() ? top_ : *found;
  }

  /// Returns the cost of a verb between the units of a span, of the share that each rank of a unit has. Every rank has
  /// something for every other in an all_to_all, so shares do not shrink.
  CollectiveCost cost_in(const Span& span, Verb verb, CollectiveAlgorithm algorithm) const {
    return collective_cost(verb, algorithm, span.units(), verb == Verb::all_to_all ? bytes_ : bytes_ / span.inside);
  }

  /// Adds what a collective by levels does inside a unit, before and after the levels around it.
  void add_inside(const Span& span, CollectiveAlgorithm algorithm) {
    using enum CollectiveAlgorithm;
    const auto add = [&](Verb verb, CollectiveAlgorithm of) { use(all_ranks(span), cost_in(span, verb, of)); };
    switch (verb_) {
      case Verb::all_reduce:
        add(Verb::reduce_scatter, algorithm == ring ? ring : recursive_halving);
        return add(Verb::all_gather, algorithm == ring ? ring : recursive_doubling);
      default: return add(verb_, algorithm);
    }
  }

  Verb verb_;
  std::span<const Span> spans_;
  const Span& top_;
  double bytes_;
  LinkTables& tables_;
};

}  // namespace

std::span<const CollectiveAlgorithm> algorithms_by_levels(Verb verb) {
  using enum CollectiveAlgorithm;
  static constexpr std::array all_reduce{ring, rabenseifner};
  static constexpr std::array all_gather{ring, recursive_doubling};
  static constexpr std::array reduce_scatter{ring, recursive_halving};
  static constexpr std::array broadcast{scatter_all_gather};
  static constexpr std::array all_to_all{pairwise, bruck};
  switch (verb) {
    case Verb::all_reduce: return all_reduce;
    case Verb::all_gather: return all_gather;
    case Verb::reduce_scatter: return reduce_scatter;
    case Verb::broadcast: return broadcast;
    case Verb::all_to_all: return all_to_all;
    case Verb::none:
    case Verb::exchange: break;
  }
  return {};
}

int LinkTables::number(const Link& link) {
  const auto at = std::find(links.begin(), links.end(), link) - links.begin();
  if (at == std::ssize(links)) links.push_back(link);
  return static_cast<int>(at);
}

std::string name(const CollectiveOption& option) {
  const std::string algorithm(name(option.algorithm));
  switch (option.levels) {
    case LevelUse::flat: return algorithm;
    case LevelUse::one_shot: return "one shot";
    case LevelUse::all_links: return algorithm + " over all links";
    case LevelUse::by_levels: return algorithm + " by levels";
    case LevelUse::in_network: return "sums in the network";
  }
  return algorithm;
}

void add_options(Verb verb, std::span<const Span> spans, double bytes, LinkTables& tables) {
  OptionList list(verb, spans, bytes, tables);
  each_way(verb, spans.back().ranks, spans.back().level, spans.size() > 1,
           [&](CollectiveAlgorithm algorithm, LevelUse levels) { list.add(algorithm, levels); });
}

}  // namespace partita
