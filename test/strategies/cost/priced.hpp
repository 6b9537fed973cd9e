#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace partita::test {

inline constexpr double us = 1e-6;

/// Round numbers: 1 Gflop/s, 1 GB/s of memory, 1 us a kernel; one level of 1 us and 1 GB/s.
inline Machine round_machine(double overlap = 0) {
  const Level node{"node", {0, ""}, {1 * us, ""}, {1e9, ""}, {1, ""}, {1, ""}, {overlap, ""}, {}};
  return {"round", {1e9, ""}, {1e9, ""}, {1e9, ""}, {1 * us, ""}, {}, {node}};
}

/// The same with nodes of so many ranks, and a network of 10 us and 0.1 GB/s between them.
inline Machine clustered_machine(int ranks_a_node, double links) {
  Machine machine = round_machine();
  machine.levels[0].ranks = {static_cast<double>(ranks_a_node), ""};
  machine.levels.push_back({"network", {0, ""}, {10 * us, ""}, {1e8, ""}, {links, ""}, {1, ""}, {0, ""}, {}});
  return machine;
}

/// A convolution of 2 channels to 4 on 8x8, as many again, and the loss of its outputs. Forward of "a" for one sample:
/// 2 * 64 * 4 * 2 * 9 = 9216 operations, x 512 bytes, y 1024, w (72 + 4) * 4 = 304.
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

/// A difference beyond rounding.
inline void expect_seconds(double seconds, double expected, const std::string& what = "") {
  EXPECT_NEAR(seconds, expected, 1e-9 * std::abs(expected) + 1e-18) << what;
}

}  // namespace partita::test
