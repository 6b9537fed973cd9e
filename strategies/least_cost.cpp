#include "least_cost.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace partita {

namespace {

using Table = std::vector<std::vector<double>>;  // by the way of the node with the lower number, then of the other

Table transposed(const Table& table) {
  Table other(table.front().size(), std::vector<double>(table.size()));
  for (std::size_t i = 0; i < table.size(); ++i)
    for (std::size_t j = 0; j < table[i].size(); ++j) other[j][i] = table[i][j];
  return other;
}

void add(Table& to, const Table& more) {
  if (to.empty()) {
    to = more;
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i)
    for (std::size_t j = 0; j < to[i].size(); ++j) to[i][j] += more[i][j];
}

std::size_t least(const std::vector<double>& costs) {
  return static_cast<std::size_t>(std::min_element(costs.begin(), costs.end()) - costs.begin());
}

/// A graph without parallel edges that shrinks.
class Elimination {
 public:
  explicit Elimination(const ChoiceGraph& graph) : nodes_(graph.nodes) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) there_.insert(static_cast<int>(i));
    for (const auto& edge : graph.edges) connect(edge.from, edge.to, edge.costs);
  }

  Choice run() {
    Choice choice;
    choice.ways.assign(nodes_.size(), 0);
    solve(choice);
    return choice;
  }

 private:
  void connect(int a, int b, const Table& costs) {
    add(edges_[a][b], costs);
    add(edges_[b][a], transposed(costs));
  }
  std::vector<double>& node(int i) { return nodes_[static_cast<std::size_t>(i)]; }

  void remove(int i) {
    for (const auto& [other, table] : edges_[i]) edges_[other].erase(i);
    edges_.erase(i);
    there_.erase(i);
  }

  /// Fills in the ways of all nodes that are there.
  void solve(Choice& choice) {
    if (there_.empty()) return;
    int at = -1;
    for (const int i : there_)
      if (const std::size_t degree = edges_[i].size(); degree <= 2 && (at < 0 || degree < edges_[at].size())) at = i;
    at < 0 ? try_all(choice) : eliminate(at, choice);
  }

  void eliminate(int i, Choice& choice) {
    const auto neighbours = edges_[i];
    const auto own = node(i);
    const auto cost = [&](std::size_t way, std::size_t a, std::size_t b) {
      double sum = own[way];
      std::size_t which = 0;
      for (const auto& [other, table] : neighbours) sum += table[way][which++ == 0 ? a : b];
      return sum;
    };
    const auto best = [&](std::size_t a, std::size_t b) {
      std::vector<double> costs(own.size());
      for (std::size_t way = 0; way < own.size(); ++way) costs[way] = cost(way, a, b);
      const std::size_t way = least(costs);
      return std::pair(way, costs[way]);
    };
    remove(i);
    const int first = neighbours.empty() ? -1 : neighbours.begin()->first;
    const int second = neighbours.size() < 2 ? -1 : neighbours.rbegin()->first;
    if (second >= 0) {
      Table table(node(first).size(), std::vector<double>(node(second).size()));
      for (std::size_t a = 0; a < table.size(); ++a)
        for (std::size_t b = 0; b < table[a].size(); ++b) table[a][b] = best(a, b).second;
      connect(first, second, table);
    } else if (first >= 0) {
      for (std::size_t a = 0; a < node(first).size(); ++a) node(first)[a] += best(a, 0).second;
    } else {
      choice.cost += best(0, 0).second;
    }
    solve(choice);
    const auto way_of = [&](int other) {
      return other < 0 ? 0 : static_cast<std::size_t>(choice.ways[static_cast<std::size_t>(other)]);
    };
    choice.ways[static_cast<std::size_t>(i)] = static_cast<int>(best(way_of(first), way_of(second)).first);
  }

  /// Takes each way of one node in turn.
  void try_all(Choice& choice) {
    const int i =
        *std::min_element(there_.begin(), there_.end(), [&](int a, int b) { return node(a).size() < node(b).size(); });
    Choice best;
    best.cost = std::numeric_limits<double>::infinity();
    for (std::size_t way = 0; way < node(i).size(); ++way) {
      Elimination rest = *this;
      for (const auto& [other, table] : edges_[i])
        for (std::size_t w = 0; w < table[way].size(); ++w) rest.node(other)[w] += table[way][w];
      rest.remove(i);
      Choice with = choice;
      with.cost += node(i)[way];
      with.ways[static_cast<std::size_t>(i)] = static_cast<int>(way);
      rest.solve(with);
      if (with.cost < best.cost) best = with;
    }
    choice = best;
  }

  std::vector<std::vector<double>> nodes_;
  std::set<int> there_;
  std::map<int, std::map<int, Table>> edges_;
};

}  // namespace

std::vector<double> costs_of(const ChoiceGraph& graph, const std::vector<int>& ways) {
  const auto way = [&](std::size_t node) { return static_cast<std::size_t>(ways[node]); };
  std::vector<double> costs;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) costs.push_back(graph.nodes[i][way(i)]);
  for (const auto& edge : graph.edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    costs[to] += edge.costs[way(from)][way(to)];
  }
  return costs;
}

Choice least_cost(const ChoiceGraph& graph) { return Elimination(graph).run(); }

}  // namespace partita
