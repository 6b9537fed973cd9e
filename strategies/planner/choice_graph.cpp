#include "strategies/planner/choice_graph.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace partita {

namespace {

/// Costs by the choices of two nodes.
class Table {
 public:
  Table(std::size_t rows, std::size_t columns) : columns_(columns), costs_(rows * columns) {}
  double& at(std::size_t row, std::size_t column) { return costs_[row * columns_ + column]; }
  double at(std::size_t row, std::size_t column) const { return costs_[row * columns_ + column]; }

 private:
  std::size_t columns_;
  std::vector<double> costs_;
};

/// A node that was eliminated. Its choice follows from its neighbors' choices.
struct Eliminated {
  int node = 0;
  std::vector<std::pair<int, Table>> neighbors;  ///< costs by its own choice, then the neighbor's
};

/// A graph without parallel edges, which shrinks as nodes are eliminated.
class Elimination {
 public:
  explicit Elimination(const ChoiceGraph& graph) : nodes_(graph.nodes), neighbors_(graph.nodes.size()) {
    left_ = nodes_.size();
    for (const auto& edge : graph.edges)
      connect(edge.from, edge.to, [&](std::size_t a, std::size_t b) { return edge.costs[a][b]; });
    for (int i = static_cast<int>(nodes_.size()); i-- > 0;) ready_.push_back(i);
  }

  Choice run() {
    Choice choice;
    choice.chosen.assign(nodes_.size(), 0);
    solve(choice);
    return choice;
  }

 private:
  using Neighbors = std::vector<std::pair<int, Table>>;

  std::vector<double>& node(int i) { return nodes_[i]; }
  Neighbors& neighbors(int i) { return neighbors_[i]; }
  bool there(int i) { return !node(i).empty(); }

  Table& edge(int a, int b) {
    for (auto& [other, table] : neighbors(a))
      if (other == b) return table;
    return neighbors(a).emplace_back(b, Table(node(a).size(), node(b).size())).second;
  }
  template <class Cost>
  void connect(int a, int b, Cost&& cost) {
    Table &forth = edge(a, b), &back = edge(b, a);
    for (std::size_t i = 0; i < node(a).size(); ++i)
      for (std::size_t j = 0; j < node(b).size(); ++j) {
        forth.at(i, j) += cost(i, j);
        back.at(j, i) = forth.at(i, j);
      }
  }

  /// Removes a node from the graph and returns its edges.
  Neighbors remove(int i) {
    Neighbors mine = std::move(neighbors(i));
    neighbors(i).clear();
    for (const auto& [other, table] : mine) {
      std::erase_if(neighbors(other), [&](const auto& edge) { return edge.first == i; });
      ready_.push_back(other);
    }
    --left_;
    return mine;
  }

  /// Fills in the choices of all remaining nodes.
  void solve(Choice& choice) {
    std::vector<Eliminated> order;
    std::vector<std::vector<double>> own(nodes_.size());
    while (!ready_.empty()) {
      const int i = ready_.back();
      ready_.pop_back();
      if (there(i) && neighbors(i).size() <= 2) order.push_back(eliminate(i, own, choice.cost));
    }
    if (left_ > 0) try_all(choice);
    for (; !order.empty(); order.pop_back()) {
      const auto& [i, mine] = order.back();
      auto costs = own[i];
      for (const auto& [other, table] : mine)
        for (std::size_t way = 0; way < costs.size(); ++way)
          costs[way] += table.at(way, static_cast<std::size_t>(choice.chosen[other]));
      choice.chosen[i] = static_cast<int>(std::min_element(costs.begin(), costs.end()) - costs.begin());
    }
  }

  /// Removes a node with at most two neighbors. The cost of its best choice moves to the neighbors, or to the edge
  /// between them.
  Eliminated eliminate(int i, std::vector<std::vector<double>>& own, double& cost) {
    Neighbors mine = remove(i);
    const auto costs = std::move(node(i));
    node(i).clear();
    const auto least = [&](auto&& of_edges) {
      double best = std::numeric_limits<double>::infinity();
      for (std::size_t way = 0; way < costs.size(); ++way) best = std::min(best, costs[way] + of_edges(way));
      return best;
    };
    if (mine.empty()) {
      cost += least([](std::size_t) { return 0.0; });
    } else if (mine.size() == 1) {
      const int first = mine.front().first;
      const Table& table = mine.front().second;
      for (std::size_t a = 0; a < node(first).size(); ++a)
        node(first)[a] += least([&](std::size_t way) { return table.at(way, a); });
    } else {
      const Table &x = mine[0].second, &y = mine[1].second;
      connect(mine[0].first, mine[1].first, [&](std::size_t a, std::size_t b) {
        return least([&](std::size_t way) { return x.at(way, a) + y.at(way, b); });
      });
    }
    own[i] = costs;
    return {i, std::move(mine)};
  }

  /// Tries every choice of one node in turn, the node with the fewest choices.
  void try_all(Choice& choice) {
    int i = -1;
    for (int each = 0; each < static_cast<int>(nodes_.size()); ++each)
      if (there(each) && (i < 0 || node(each).size() < node(i).size())) i = each;
    Choice best;
    best.cost = std::numeric_limits<double>::infinity();
    for (std::size_t way = 0; way < node(i).size(); ++way) {
      Elimination rest = *this;
      for (const auto& [other, table] : rest.remove(i))
        for (std::size_t w = 0; w < node(other).size(); ++w) rest.node(other)[w] += table.at(way, w);
      rest.node(i).clear();
      Choice with = choice;
      with.cost += node(i)[way];
      with.chosen[i] = static_cast<int>(way);
      rest.solve(with);
      if (with.cost < best.cost) best = with;
    }
    choice = best;
  }

  std::vector<std::vector<double>> nodes_;  // costs by choice; empty for an eliminated node
  std::vector<Neighbors> neighbors_;
  std::vector<int> ready_;  // nodes that may have at most two neighbors
  std::size_t left_ = 0;
};

}  // namespace

std::vector<double> costs_of(const ChoiceGraph& graph, const std::vector<int>& chosen) {
  const auto way = [&](std::size_t node) { return static_cast<std::size_t>(chosen[node]); };
  std::vector<double> costs;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) costs.push_back(graph.nodes[i][way(i)]);
  for (const auto& edge : graph.edges) {
    const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
    costs[to] += edge.costs[way(from)][way(to)];
  }
  return costs;
}

Choice eliminate_choices(const ChoiceGraph& graph) { return Elimination(graph).run(); }

}  // namespace partita
