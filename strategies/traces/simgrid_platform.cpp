#include "strategies/traces/simgrid_platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace partita {

namespace {

using Text = fmt::memory_buffer;

template <class... Args>
void add(Text& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

int unit_of(const Machine& machine, int level, int rank) {
  const auto ranks = static_cast<int>(machine.levels[level].ranks.value);
  return ranks == 0 ? 0 : rank / ranks;
}

/// Returns the bytes per second of all links together that a unit of the level below has.
double together(const Level& level) { return level.bandwidth.value * level.links.value / level.fan_out.value; }

void add_link(Text& text, const std::string& name, double bandwidth, double latency) {
  add(text, "<link id=\"{}\" bandwidth=\"{}Bps\" latency=\"{}s\" sharing_policy=\"SPLITDUPLEX\"/>\n", name, bandwidth,
      latency);
}

std::string link_of_rank(int rank, int level) { return fmt::format("r{}-{}", rank, level); }
std::string links_of_unit(const Machine& machine, int rank, int level) {
  return fmt::format("u{}-{}", unit_of(machine, level - 1, rank), level);
}

/// Adds the links that a message passes at one of its ends. It leaves all units that do not hold the other end.
void add_end(Text& text, const Machine& machine, int rank, int level, const char* direction) {
  const auto pass = [&](const std::string& link) {
    add(text, "<link_ctn id=\"{}\" direction=\"{}\"/>", link, direction);
  };
  pass(link_of_rank(rank, level));
  for (int left = 1; left <= level; ++left) pass(links_of_unit(machine, rank, left));
}

}  // namespace

Machine simgrid_machine(const Machine& machine, double overlap) {
  Machine plain = machine;
  for (Level& level : plain.levels) {
    level.verbs.clear();
    level.reduction = {};
    level.overlap.value = overlap;
    if (level.pairs.empty()) continue;
    std::vector<int> unit(static_cast<std::size_t>(level.pairs.ranks()));
    std::iota(unit.begin(), unit.end(), 0);
    level.bandwidth.value *= level.pairs.width(unit);
    level.pairs = {};
  }
  std::erase(plain.collectives.ways, LevelUse::in_network);
  return plain;
}

std::string simgrid_platform(const Machine& machine, int ranks) {
  Text text;
  add(text,
      "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
      "<platform version=\"4.1\">\n<zone id=\"machine\" routing=\"Full\">\n");
  for (int rank = 0; rank < ranks; ++rank) add(text, "<host id=\"r{}\" speed=\"1Gf\"/>\n", rank);
  const int top = machine.level_of(0, ranks - 1);
  for (int level = 0; level <= top; ++level) {
    const Level& here = machine.levels[level];
    for (int rank = 0; rank < ranks; ++rank) {
      const double bandwidth = level == 0 ? std::min(here.bandwidth.value, together(here)) : here.bandwidth.value;
      add_link(text, link_of_rank(rank, level), bandwidth, here.latency.value / 2);
      if (level > 0 && (rank == 0 || unit_of(machine, level - 1, rank) != unit_of(machine, level - 1, rank - 1)))
        add_link(text, links_of_unit(machine, rank, level), together(here), 0);
    }
  }
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const int level = machine.level_of(from, to);
      add(text, "<route src=\"r{}\" dst=\"r{}\" symmetrical=\"NO\">", from, to);
      add_end(text, machine, from, level, "UP");
      add_end(text, machine, to, level, "DOWN");
      add(text, "</route>\n");
    }
  add(text, "</zone>\n</platform>\n");
  return fmt::to_string(text);
}

std::vector<std::string> simgrid_options() {
  return {"--cfg=smpi/host-speed:1e9",             // it must be given, though a trace does not use it
          "--cfg=smpi/bw-factor:0:1.0",            // no factors that were fitted to another cluster
          "--cfg=smpi/lat-factor:0:1.0",           //
          "--cfg=network/TCP-gamma:0",             // no limit of bandwidth by latency
          "--cfg=network/weight-S:0",              // nor shares by latency
          "--cfg=network/crosstraffic:0",          // links are full duplex, acknowledgments cost nothing
          "--cfg=smpi/async-small-thresh:0",       // a message starts when both ends have posted it
          "--cfg=smpi/send-is-detached-thresh:0",  //
          "--cfg=smpi/display-timing:yes"};
}

}  // namespace partita
