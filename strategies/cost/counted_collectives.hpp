#pragma once

#include "partita/base/grid.hpp"
#include "partita/base/traffic.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "strategies/cost/collective_rounds.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace partita {

/// Collectives of one verb that run at the same time, where units of the machine hold different numbers of their ranks,
/// e.g. 9 ranks on nodes of 8. What each rank sends in each round (CollectiveRounds) is counted, so that ranks share
/// those links that they really use at the same time.
class CountedCollectives {
 public:
  /// Counts those along axes of a grid. Of the machine it reads only how many ranks the units hold, and how they are
  /// connected.
  CountedCollectives(const Machine& machine, const Grid& grid, AxisSet axes, Verb verb);
  /// Returns the same, which the thread keeps, since many plans have the same collectives.
  static std::shared_ptr<CountedCollectives> find(const Machine& machine, const Grid& grid, AxisSet axes, Verb verb);

  /// Returns the ranks of the collective in which a rank takes part.
  const std::vector<int>& ranks_with(int rank) const { return collectives_[number_.at(rank)]; }
  /// Returns its route.
  Route route(int rank) const;
  /// Adds the ways to run it, one option each, in the order of each_way(). `bytes` counts as in Traffic.
  void add_options(int rank, double bytes, LinkTables& tables);

  /// What a rank does in a phase, as uses of links.
  using Sequence = std::vector<LinkUse>;

 private:
  struct Timed {
    CollectiveRound round;
    int place = 0;  ///< its number in its phase
  };
  using Rounds = std::vector<std::vector<Timed>>;  // by rank of a collective; peers are indices into its ranks
  using Way = std::pair<CollectiveAlgorithm, LevelUse>;
  /// Messages of one size over links that share them fairly.
  struct Sizes {
    int level = 0, end = 0;  ///< a rank's link to a level, or those that a unit of the level below shares
    double bytes = 0;        ///< of a message
    int count = 0;
    auto operator<=>(const Sizes&) const = default;
  };
  using Messages = std::vector<Sizes>;  // ascending
  struct InOut {
    Messages sent, received;
  };
  /// The messages that pass the links of ranks and of units at a time.
  struct LinkBytes {
    InOut of_rank, of_unit;
  };
  using Traffic = std::map<std::pair<int, int>, LinkBytes>;  // by phase and place

  int unit(int level, int rank) const;
  std::vector<int> widths(const std::vector<int>& ranks) const;
  std::vector<int> shape(const std::vector<int>& ranks) const;
  const Rounds& rounds(const std::vector<int>& ranks, const CollectiveOption& way);
  static void align(Rounds& all);
  const Traffic& traffic(const CollectiveOption& way);
  static void join(Messages& messages);
  static double shared(const Messages& messages, int level, int end, double bytes);
  std::vector<LinkUse> uses(const CollectiveRound& round, const LinkBytes& links, const std::vector<int>& ranks,
                            std::size_t me, int width, LinkTables& tables) const;
  std::vector<Sequence> switches(const std::vector<int>& ranks, LinkTables& tables);
  std::map<int, int> ranks_by_unit(const std::vector<int>& ranks, int level) const;
  const std::map<int, int>& leaving(int level);
  void add_way(const std::vector<int>& ranks, const std::vector<int>& widths, const CollectiveOption& way,
               LinkTables& tables);

  Machine machine_;  // its levels alone
  Verb verb_;
  std::vector<std::vector<int>> collectives_;
  std::map<int, std::size_t> number_;          // of the collective of each rank
  std::map<int, std::map<int, int>> leaving_;  // by level
  std::map<std::size_t, LinkTables> known_;    // the options of a collective of one byte
  std::map<Way, Traffic> traffic_;
  std::map<std::pair<Way, std::vector<int>>, Rounds> rounds_;  // by way and shape
};

}  // namespace partita
