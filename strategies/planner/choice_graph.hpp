#pragma once

#include <vector>

namespace partita {

/// A graph in which each node chooses one of several options. Each choice has a cost, and each edge adds a cost that
/// depends on the choices at both ends.
struct ChoiceGraph {
  struct Edge {
    int from = 0, to = 0;
    std::vector<std::vector<double>> costs;  ///< indexed by the choice of `from`, then of `to`
  };
  std::vector<std::vector<double>> nodes;  ///< cost by node and choice
  std::vector<Edge> edges;
};

/// The choice of every node, and the minimum total cost.
struct Choice {
  std::vector<int> chosen;
  double cost = 0;
};

/// Returns the cost of each node for these choices. An edge counts for the node it leads to.
std::vector<double> costs_of(const ChoiceGraph& graph, const std::vector<int>& chosen);

/// Finds the choices of minimum total cost, exactly. Nodes with one or two neighbors are eliminated into these, and
/// parallel edges are added, until one node is left. If no node can be eliminated, each choice of the node with the
/// fewest choices is tried in turn (node and edge elimination: Jia, Lin, Qi, Aiken 2018).
Choice eliminate_choices(const ChoiceGraph& graph);

}  // namespace partita
