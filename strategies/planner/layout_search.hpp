#pragma once

#include <vector>

namespace partita {

/// Nodes that choose one of several ways each, at a cost; edges cost what both ends' ways make together.
struct ChoiceGraph {
  struct Edge {
    int from = 0, to = 0;
    std::vector<std::vector<double>> costs;  ///< by the way of `from`, then of `to`
  };
  std::vector<std::vector<double>> nodes;  ///< by node and way
  std::vector<Edge> edges;
};

/// What every node chooses, and the sum of all costs, the least there is.
struct Choice {
  std::vector<int> ways;
  double cost = 0;
};

/// What each node costs with these ways, with the edges that lead to it.
std::vector<double> costs_of(const ChoiceGraph& graph, const std::vector<int>& ways);

/// Exact: nodes with one or two neighbours are eliminated into those, parallel edges added, until one is left; where none can be,
/// the ways of the node with the fewest are tried one after the other (Jia, Lin, Qi, Aiken 2018: node and edge elimination).
Choice eliminate_choices(const ChoiceGraph& graph);

}  // namespace partita
