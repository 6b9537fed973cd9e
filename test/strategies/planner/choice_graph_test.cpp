// eliminate_choices() against every combination of ways, on small graphs of every shape. Costs are small integers, so
// that sums are exact in any order.
#include "strategies/planner/choice_graph.hpp"

#include "test/support/cases.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>

namespace partita::test::choice_graph_test {

namespace {

/// The lowest cost of all combinations of ways, counted straight from the graph.
double cheapest_of_all(const ChoiceGraph& graph) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> ways(graph.nodes.size(), 0);
  while (true) {
    double cost = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) cost += graph.nodes[i][ways[i]];
    for (const auto& edge : graph.edges) cost += edge.costs[ways[edge.from]][ways[edge.to]];
    least = std::min(least, cost);
    std::size_t i = 0;
    while (i < ways.size() && ++ways[i] == graph.nodes[i].size()) ways[i++] = 0;
    if (i == ways.size()) return least;
  }
}

using Edges = std::vector<std::pair<int, int>>;

/// A graph of these edges whose nodes have 1 to `most_ways` ways, with costs drawn from 0 to 9.
ChoiceGraph drawn(int nodes, const Edges& edges, std::uint64_t seed, int most_ways = 3) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  const auto costs = [&](std::size_t n) {
    std::vector<double> drawn(n);
    for (double& cost : drawn) cost = below(10);
    return drawn;
  };
  ChoiceGraph graph;
  for (int i = 0; i < nodes; ++i) graph.nodes.push_back(costs(static_cast<std::size_t>(1 + below(most_ways))));
  for (const auto& [from, to] : edges) {
    ChoiceGraph::Edge edge{from, to, {}};
    for (std::size_t way = 0; way < graph.nodes[from].size(); ++way)
      edge.costs.push_back(costs(graph.nodes[to].size()));
    graph.edges.push_back(std::move(edge));
  }
  return graph;
}

/// The choice has a way for every node, costs what it says, and no other choice costs less.
void expect_cheapest(const ChoiceGraph& graph, const std::string& what) {
  const Choice choice = eliminate_choices(graph);
  ASSERT_EQ(choice.chosen.size(), graph.nodes.size()) << what;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    ASSERT_GE(choice.chosen[i], 0) << what << ", node " << i;
    ASSERT_LT(choice.chosen[i], static_cast<int>(graph.nodes[i].size())) << what << ", node " << i;
  }
  EXPECT_EQ(choice.cost, cheapest_of_all(graph)) << what;
  const auto costs = costs_of(graph, choice.chosen);
  EXPECT_EQ(std::accumulate(costs.begin(), costs.end(), 0.0), choice.cost) << what;
}

Edges clique(int nodes) {
  Edges edges;
  for (int i = 0; i < nodes; ++i)
    for (int j = i + 1; j < nodes; ++j) edges.emplace_back(i, j);
  return edges;
}

Edges chain(int nodes) {
  Edges edges;
  for (int i = 1; i < nodes; ++i) edges.emplace_back(i - 1, i);
  return edges;
}

}  // namespace

TEST(LayoutSearch, AnEmptyGraphCostsNothing) {
  const Choice choice = eliminate_choices({});
  EXPECT_TRUE(choice.chosen.empty());
  EXPECT_EQ(choice.cost, 0);
  EXPECT_TRUE(costs_of({}, {}).empty());
}

TEST(LayoutSearch, ASingleNodeTakesItsCheapestWay) {
  const Choice choice = eliminate_choices({{{5, 2, 3}}, {}});
  EXPECT_EQ(choice.chosen, std::vector<int>{1});
  EXPECT_EQ(choice.cost, 2);
}

// By itself each node would take way 0, and the edge would then cost 10.
TEST(LayoutSearch, AnEdgeCanOutweighItsNodes) {
  const ChoiceGraph graph{{{1, 2}, {1, 4}}, {{0, 1, {{10, 9}, {0, 9}}}}};
  const Choice choice = eliminate_choices(graph);
  EXPECT_EQ(choice.chosen, (std::vector<int>{1, 0}));
  EXPECT_EQ(choice.cost, 3);
}

TEST(LayoutSearch, ANodePaysForTheEdgesThatLeadToIt) {
  const ChoiceGraph graph{{{1, 2}, {10, 20}, {100}},
                          {{0, 1, {{1000, 2000}, {3000, 4000}}}, {0, 2, {{5}, {6}}}, {1, 2, {{7}, {8}}}}};
  EXPECT_EQ(costs_of(graph, {1, 0, 0}), (std::vector<double>{2, 3010, 113}));
}

TEST(LayoutSearch, NoChoiceCostsLess) {
  struct Shape {
    std::string name;
    int nodes;
    Edges edges;
  };
  const std::vector<Shape> shapes{
      {"one node", 1, {}},
      {"nodes without edges", 3, {}},
      {"a pair", 2, {{0, 1}}},
      {"a pair against the order", 2, {{1, 0}}},
      {"two edges between a pair", 2, {{0, 1}, {0, 1}}},
      {"two edges between a pair, one each way", 2, {{0, 1}, {1, 0}}},
      {"a chain of 3", 3, chain(3)},
      {"a chain of 7", 7, chain(7)},
      {"a chain with doubled edges", 4, {{0, 1}, {1, 2}, {1, 2}, {2, 3}, {3, 2}}},
      {"a diamond", 4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}},
      {"a diamond with a diagonal", 4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {0, 3}}},
      {"residual blocks", 7, {{0, 1}, {1, 2}, {0, 2}, {2, 3}, {3, 4}, {2, 4}, {4, 5}, {5, 6}, {4, 6}}},
      {"a triangle", 3, clique(3)},
      {"a ring of 5", 5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}}},
      {"a star", 6, {{0, 1}, {0, 2}, {0, 3}, {4, 0}, {5, 0}}},
      {"two rings that share a node", 5, {{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3, 4}, {4, 2}}},
      {"two cliques apart",
       8,
       {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}, {4, 5}, {4, 6}, {4, 7}, {5, 6}, {5, 7}, {6, 7}}},
      {"a clique of 4", 4, clique(4)},
      {"a clique of 5", 5, clique(5)},
      {"a clique of 6", 6, clique(6)},
      {"a complete bipartite graph", 6, {{0, 3}, {0, 4}, {0, 5}, {1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 4}, {2, 5}}}};
  for (const auto& [name, nodes, edges] : shapes)
    for (std::uint64_t seed = 0; seed < cases(40); ++seed)
      expect_cheapest(drawn(nodes, edges, seed), name + ", seed " + std::to_string(seed));
}

TEST(LayoutSearch, NoChoiceCostsLessInDrawnGraphs) {
  for (std::uint64_t seed = 0; seed < cases(400); ++seed) {
    std::mt19937_64 random(seed);
    const int nodes = 1 + static_cast<int>(random() % 7);
    Edges edges;
    for (std::uint64_t i = random() % 14; nodes > 1 && i > 0; --i) {
      const int from = static_cast<int>(random() % static_cast<std::uint64_t>(nodes));
      const int by = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(nodes - 1));
      edges.emplace_back(from, (from + by) % nodes);  // parallel edges and both directions happen
    }
    expect_cheapest(drawn(nodes, edges, seed + 1000), "seed " + std::to_string(seed));
  }
}

// A layer that cannot take some way has an infinite cost there.
TEST(LayoutSearch, AvoidsWaysThatCannotBe) {
  const double never = std::numeric_limits<double>::infinity();
  for (const auto& edges : {chain(4), clique(4), clique(5)})
    for (std::uint64_t seed = 0; seed < cases(20); ++seed) {
      ChoiceGraph graph = drawn(5, edges, seed);
      for (auto& node : graph.nodes)
        if (node.size() > 1) node[seed % node.size()] = never;
      expect_cheapest(graph, "seed " + std::to_string(seed));
    }
}

}  // namespace partita::test::choice_graph_test
