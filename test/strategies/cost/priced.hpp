#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "test/support/source_folder.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace partita::test {

inline constexpr double us = 1e-6;

/// Returns a machine of round numbers: 1 Gflop/s, 1 GB/s of memory, 1 us per kernel launch, and one level with 1 us and
/// 1 GB/s.
inline Machine round_machine(double overlap = 0) {
  const Level node{"node", {0, ""}, {1 * us, ""}, {1e9, ""}, {1, ""}, {1, ""}, {overlap, ""}, {}};
  return {"round", {1e9, ""}, {1e9, ""}, {1e9, ""}, {1 * us, ""}, {}, {node}};
}

/// Returns the DGX H100 of the examples.
inline Machine dgx_h100() { return Machine::load((source_folder() / "examples/machines/dgx-h100.toml").string()); }

/// Returns round_machine() with nodes of `ranks_a_node` ranks, and a network of 10 us and 0.1 GB/s between them.
inline Machine clustered_machine(int ranks_a_node, double links) {
  Machine machine = round_machine();
  machine.levels[0].ranks = {static_cast<double>(ranks_a_node), ""};
  machine.levels.push_back({"network", {0, ""}, {10 * us, ""}, {1e8, ""}, {links, ""}, {1, ""}, {0, ""}, {}});
  return machine;
}

/// Returns clustered_machine() with racks of so many nodes, whose links are thinned out above, and switches that add.
inline Machine machine_of_racks(int ranks_a_node, int nodes_a_rack, double links) {
  Machine machine = clustered_machine(ranks_a_node, links);
  machine.levels[1].ranks = {static_cast<double>(ranks_a_node * nodes_a_rack), ""};
  Level system = machine.levels[1];
  system.name = "system";
  system.ranks = {0, ""};
  system.latency = {30 * us, ""};
  system.links = {links * nodes_a_rack, ""};
  system.fan_out = {3, ""};
  system.overlap = {0.25, ""};
  system.reduction = {3e7, ""};
  machine.levels.push_back(system);
  return machine;
}

/// Returns a model of two convolutions on 8x8, from 2 to 4 and from 4 to 4 channels, and a loss. The forward pass of
/// "a" for one sample has 2 * 64 * 4 * 2 * 9 = 9216 operations; x has 512 bytes, y 1024 and w (72 + 4) * 4 = 304.
inline Model two_convolutions() {
  Model m("two");
  auto t = m.input("in", {.channels = 2, .spatial = {8, 8}});
  t = m.conv("a", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.conv("b", t, {.filters = 4, .kernel = 3, .padding = 1});
  m.mean_squared_error("loss", t);
  return m;
}

inline Plan bound(const Model& model, const Strategy& strategy, Index batch, bool training = true) {
  return bind(model, strategy, {.batch = batch, .dtype = DType::f32, .training = training, .optimizer = {}});
}

inline Strategy all_as(const std::string& grid, const std::string& output) {
  Strategy strategy(grid);
  return strategy.layer("*", {.output = output});
}

/// Expects two times to be equal up to rounding.
inline void expect_seconds(double seconds, double expected, const std::string& what = "") {
  EXPECT_NEAR(seconds, expected, 1e-9 * std::abs(expected) + 1e-18) << what;
}

}  // namespace partita::test
