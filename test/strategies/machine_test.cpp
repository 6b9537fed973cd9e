#include "partita/strategies/machine.hpp"

#include "support/error_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

using namespace partita;
using namespace partita::test;

namespace {

std::string folder() {
  const char* source = std::getenv("PARTITA_SOURCE");  // set by the build; by hand start in the top folder
  return std::string(source == nullptr ? "." : source) + "/examples/machines/";
}

void expect_same(const Constant& a, const Constant& b, const std::string& what) {
  EXPECT_EQ(a.value, b.value) << what;
  EXPECT_EQ(a.source, b.source) << what;
}

void expect_same(const Curve& a, const Curve& b, const std::string& what) {
  EXPECT_EQ(a.points, b.points) << what;
  EXPECT_EQ(a.source, b.source) << what;
}

void expect_same(const Level& a, const Level& b) {
  EXPECT_EQ(a.name, b.name);
  expect_same(a.ranks, b.ranks, "ranks of " + a.name);
  expect_same(a.latency, b.latency, "latency of " + a.name);
  expect_same(a.bandwidth, b.bandwidth, "bandwidth of " + a.name);
  expect_same(a.links, b.links, "links of " + a.name);
  expect_same(a.fan_out, b.fan_out, "fan-out of " + a.name);
  expect_same(a.overlap, b.overlap, "overlap of " + a.name);
  ASSERT_EQ(a.verbs.size(), b.verbs.size()) << a.name;
  for (const auto& [of, curve] : a.verbs) {
    ASSERT_TRUE(b.verbs.contains(of)) << a.name;
    expect_same(curve, b.verbs.at(of), std::string(name(of.first)));
  }
}

void expect_same(const Machine& a, const Machine& b) {
  EXPECT_EQ(a.name, b.name);
  expect_same(a.memory, b.memory, "memory");
  expect_same(a.memory_bandwidth, b.memory_bandwidth, "memory bandwidth");
  expect_same(a.arithmetic, b.arithmetic, "arithmetic");
  expect_same(a.kernel, b.kernel, "kernel");
  ASSERT_EQ(a.efficiency.size(), b.efficiency.size());
  for (const auto& [kernels, curve] : a.efficiency) {
    ASSERT_TRUE(b.efficiency.contains(kernels)) << kernels;
    expect_same(curve, b.efficiency.at(kernels), "efficiency of " + kernels);
  }
  ASSERT_EQ(a.levels.size(), b.levels.size());
  for (std::size_t i = 0; i < a.levels.size(); ++i) expect_same(a.levels[i], b.levels[i]);
}

}  // namespace

TEST(Machine, ReadsWhatItPrints) {
  int read = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    const Machine machine = Machine::load(file.path().string());
    SCOPED_TRACE(machine.print());
    expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
    ++read;
  }
  EXPECT_GE(read, 1);
}

TEST(Machine, TheDefaultOneIsTheFileOfTwoCores) {
  expect_same(default_machine(), Machine::load(folder() + "two-cores.toml"));
}
