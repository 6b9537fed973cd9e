#include "partita/strategies/machine/pair_links.hpp"

#include "partita/base/error.hpp"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/stoer_wagner_min_cut.hpp>

#include <algorithm>

namespace partita {

PairLinks::PairLinks(std::vector<std::vector<int>> links, std::string source)
    : links_(std::move(links)), widths_(links_), source_(std::move(source)) {
  const std::size_t ranks = links_.size();
  for (std::size_t i = 0; i < ranks; ++i) {
    if (links_[i].size() != ranks)
      fail("row {} of the links has {} numbers; each of the {} rows needs {}", i, links_[i].size(), ranks, ranks);
    if (links_[i][i] != 0) fail("rank {} has {} links to itself; that number must be 0", i, links_[i][i]);
    for (std::size_t j = 0; j < ranks; ++j)
      if (links_[i][j] < 0) fail("there are {} links from rank {} to rank {}", links_[i][j], i, j);
    for (std::size_t j = 0; j < i; ++j)
      if (links_[i][j] != links_[j][i])
        fail("there are {} links from rank {} to rank {}, but {} back", links_[i][j], i, j, links_[j][i]);
  }
  // The widest routes that pass only ranks below `by`, one rank more each time (Floyd and Warshall, 1962).
  for (std::size_t by = 0; by < ranks; ++by)
    for (std::size_t i = 0; i < ranks; ++i)
      for (std::size_t j = 0; j < ranks; ++j)
        widths_[i][j] = std::max(widths_[i][j], std::min(widths_[i][by], widths_[by][j]));
  for (std::size_t i = 1; i < ranks; ++i) {
    if (widths_[0][i] == 0) fail("no links connect rank 0 and rank {}, over other ranks either", i);
    for (std::size_t j = 0; j < i; ++j) narrowest_ = i + j == 1 ? widths_[i][j] : std::min(narrowest_, widths_[i][j]);
  }
}

std::vector<int> PairLinks::places(std::span<const int> world_ranks, int rank) const {
  std::vector<int> places;
  for (const int other : world_ranks)
    if (other / ranks() == rank / ranks()) places.push_back(other % ranks());
  return places;
}

int PairLinks::width(std::span<const int> ranks) const {
  if (ranks.size() < 2) return 1;
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property,
                                      boost::property<boost::edge_weight_t, int>>;
  Graph graph(ranks.size());
  int narrowest = width(ranks[0], ranks[1]);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      narrowest = std::min(narrowest, width(ranks[i], ranks[j]));
      const int direct = links_[ranks[i]][ranks[j]];
      if (direct > 0) boost::add_edge(i, j, direct, graph);
    }
  const int cut = boost::stoer_wagner_min_cut(graph, boost::get(boost::edge_weight, graph));
  return std::max(cut, narrowest);
}

}  // namespace partita
