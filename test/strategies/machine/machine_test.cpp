#include "partita/strategies/machine/machine.hpp"

#include "test/strategies/machine/machine_text.hpp"
#include "test/support/source_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace partita::test::machine_test {

namespace {

std::string folder() { return (source_folder() / "examples/machines/").string(); }

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
  expect_same(a.reduction, b.reduction, "reduction of " + a.name);
  EXPECT_EQ(a.pairs.links(), b.pairs.links()) << a.name;
  EXPECT_EQ(a.pairs.source(), b.pairs.source()) << a.name;
  ASSERT_EQ(a.verbs.size(), b.verbs.size()) << a.name;
  for (const auto& [of, curve] : a.verbs) {
    ASSERT_TRUE(b.verbs.contains(of)) << a.name;
    expect_same(curve, b.verbs.at(of), std::string(name(of.verb)));
  }
}

void expect_same(const Machine& a, const Machine& b) {
  EXPECT_EQ(a.name, b.name);
  expect_same(a.memory, b.memory, "memory");
  expect_same(a.memory_bandwidth, b.memory_bandwidth, "memory bandwidth");
  expect_same(a.arithmetic, b.arithmetic, "arithmetic");
  expect_same(a.kernel, b.kernel, "kernel");
  ASSERT_EQ(a.efficiency.size(), b.efficiency.size());
  for (const auto& [kind, share] : a.efficiency) {
    ASSERT_TRUE(b.efficiency.contains(kind)) << name(kind);
    const Efficiency& other = b.efficiency.at(kind);
    const auto what = fmt::format("efficiency of {}", name(kind));
    expect_same(share.curve, other.curve, what);
    expect_same(share.width, other.width, what + ": width");
    ASSERT_EQ(share.of_type.size(), other.of_type.size()) << what;
    for (const auto& [type, curve] : share.of_type) expect_same(curve, other.of_type.at(type), what);
  }
  EXPECT_EQ(a.f32_uses, b.f32_uses);
  EXPECT_EQ(a.collectives.ways, b.collectives.ways);
  EXPECT_EQ(a.collectives.source, b.collectives.source);
  expect_same(a.socket.ranks, b.socket.ranks, "ranks of a socket");
  expect_same(a.socket.memory_bandwidth, b.socket.memory_bandwidth, "memory bandwidth of a socket");
  ASSERT_EQ(a.peaks.size(), b.peaks.size());
  for (const auto& [type, peak] : a.peaks) expect_same(peak, b.peaks.at(type), "arithmetic of a type");
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
  EXPECT_EQ(read, 9);
}

TEST(Machine, TheDefaultOneIsTheFileOfTwoCores) {
  expect_same(default_machine(), Machine::load(folder() + "two-cores.toml"));
}

TEST(Machine, ReadsUnits) {
  const auto seconds = [](const char* number) { return edited("kernel", number).kernel.value; };
  EXPECT_EQ(seconds("{ s = 0.5, from = \"x\" }"), 0.5);
  EXPECT_EQ(seconds("{ ms = 2, from = \"x\" }"), 2e-3);
  EXPECT_EQ(seconds("{ us = 1.5, from = \"x\" }"), 1.5e-6);
  EXPECT_EQ(seconds("{ ns = 700, from = \"x\" }"), 700e-9);
  const auto bytes = [](const char* number) { return edited("memory", number).memory.value; };
  EXPECT_EQ(bytes("{ B = 1048576, from = \"x\" }"), 1048576);
  EXPECT_EQ(bytes("{ KB = 2000, from = \"x\" }"), 2e6);
  EXPECT_EQ(bytes("{ MB = 2, from = \"x\" }"), 2e6);
  EXPECT_EQ(bytes("{ GB = 2, from = \"x\" }"), 2e9);
  EXPECT_EQ(bytes("{ TB = 2, from = \"x\" }"), 2e12);
  EXPECT_EQ(bytes("{ KiB = 2048, from = \"x\" }"), 2097152);
  EXPECT_EQ(bytes("{ MiB = 1, from = \"x\" }"), 1048576);
  EXPECT_EQ(bytes("{ GiB = 0.5, from = \"x\" }"), 536870912);
  EXPECT_EQ(bytes("{ TiB = 1, from = \"x\" }"), 1099511627776);
  const auto rate = [](const char* number) { return edited("memory-bandwidth", number).memory_bandwidth.value; };
  EXPECT_EQ(rate("{ \"B/s\" = 1e6, from = \"x\" }"), 1e6);
  EXPECT_EQ(rate("{ \"MB/s\" = 3, from = \"x\" }"), 3e6);
  EXPECT_EQ(rate("{ \"GB/s\" = 3, from = \"x\" }"), 3e9);
  EXPECT_EQ(rate("{ \"TB/s\" = 3, from = \"x\" }"), 3e12);
  EXPECT_EQ(rate("{ \"GiB/s\" = 1, from = \"x\" }"), 1073741824);
  EXPECT_EQ(rate("{ \"Gbit/s\" = 100, from = \"x\" }"), 12.5e9);
  const auto peak = [](const char* number) { return edited("arithmetic", number).arithmetic.value; };
  EXPECT_EQ(peak("{ \"flop/s\" = 1e9, from = \"x\" }"), 1e9);
  EXPECT_EQ(peak("{ \"Gflop/s\" = 90, from = \"x\" }"), 90e9);
  EXPECT_EQ(peak("{ \"Tflop/s\" = 19.5, from = \"x\" }"), 19.5e12);
}

TEST(Machine, ReadsEverything) {
  const Machine machine = Machine::parse(machine_text, "m.toml");
  EXPECT_EQ(machine.name, "cluster");
  expect_same(machine.memory, {16e9, "a"}, "memory");
  expect_same(machine.efficiency.at(KernelKind::others).curve, {{{1, 0.5}}, "e"}, "others");
  expect_same(machine.efficiency.at(KernelKind::conv).curve, {{{1e6, 0.1}, {1e9, 0.9}}, "f"}, "conv");
  ASSERT_EQ(machine.levels.size(), 2U);
  const Level &node = machine.levels[0], &network = machine.levels[1];
  expect_same(node.ranks, {4, "g"}, "ranks");
  expect_same(node.links, {1, "assumed: one link per rank"}, "links");
  expect_same(node.fan_out, {1, "assumed: all links can be busy at once"}, "fan-out");
  ASSERT_TRUE(node.verbs.contains({Verb::all_reduce, 2}));
  expect_same(node.verbs.at({Verb::all_reduce, 2}), {{{8, 2e-6}, {65536, 20e-6}}, "k"}, "all_reduce");
  expect_same(network.ranks, {0, ""}, "any number");
  expect_same(network.links, {4, "assumed: one link per rank"}, "links");
  expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
}

// A table of types instead of one number for all.
TEST(Machine, ReadsAPeakForEachType) {
  const std::string one = "arithmetic = { \"Tflop/s\" = 15.7, from = \"c\" }";
  const std::string table = replaced(one, "");
  const std::string types =
      "[arithmetic]\nf64 = { \"Tflop/s\" = 7.8, from = \"p\" }\nf32 = { \"Tflop/s\" = 15.7, from = \"q\" }\n"
      "tf32 = { \"Tflop/s\" = 60, from = \"r\" }\nf32-uses = \"tf32\"\n"
      "[efficiency.conv.f16]\nGflop = [2]\nshare = [0.7]\nfrom = \"s\"\n";
  const Machine machine = Machine::parse(table + types, "m.toml");
  EXPECT_EQ(machine.arithmetic.value, 0);
  EXPECT_EQ(machine.peak(KernelKind::conv, DType::f64).value, 7.8e12);
  EXPECT_EQ(machine.peak(KernelKind::conv, DType::f32).value, 60e12);
  EXPECT_EQ(machine.peak(KernelKind::others, DType::f32).source, "q");
  EXPECT_EQ(machine.share(KernelKind::conv, DType::f16)->points.front().second, 0.7);
  EXPECT_EQ(machine.share(KernelKind::conv, DType::f32)->points.front().second, 0.1);
  expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
  const Machine plain = Machine::parse(machine_text, "m.toml");
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    EXPECT_EQ(plain.peak(KernelKind::conv, dtype).value, 15.7e12) << "one number is for all types";
}

TEST(Machine, ALibraryHasSomeWaysToRunCollectives) {
  const auto ways = [](const std::string& list) {
    return Machine::parse(replaced("kernel =", "collectives = { ways = [" + list + "], from = \"x\" }\nkernel ="),
                          "m.toml");
  };
  const auto had = [](const Machine& machine) {
    std::string text;
    for (const LevelUse way :
         {LevelUse::flat, LevelUse::one_shot, LevelUse::all_links, LevelUse::by_levels, LevelUse::in_network})
      text += machine.collectives.has(way) ? fmt::format("{} ", name(way)) : "";
    return text;
  };
  EXPECT_EQ(had(Machine::parse(machine_text, "m.toml")), "flat one-shot all-links by-levels in-network ");
  EXPECT_EQ(had(ways("")), "flat ");
  EXPECT_EQ(had(ways("\"by-levels\", \"one-shot\"")), "flat one-shot by-levels ");
  const Machine machine = ways("\"all-links\"");
  expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
}

TEST(Machine, CurvesAreOfRanksInAUnit) {
  Machine machine = Machine::parse(machine_text, "m.toml");
  machine.levels[1].verbs[{Verb::all_reduce, 8, 4}] = {{{1, 1e-6}}, "all ranks of two nodes"};
  machine.levels[1].verbs[{Verb::all_reduce, 8, 1}] = {{{1, 2e-6}}, "one rank of each node"};
  expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
}

TEST(Machine, PrintsTheShortestUnits) {
  EXPECT_EQ(Machine::parse(machine_text, "m.toml").print(), R"(name = "cluster"
memory = { GB = 16, from = "a" }
memory-bandwidth = { "GB/s" = 900, from = "b" }
arithmetic = { "Tflop/s" = 15.7, from = "c" }
kernel = { us = 5, from = "d" }

[efficiency.others]
flop = [1]
share = [0.5]
from = "e"

[efficiency.conv]
Mflop = [1, 1000]
share = [0.1, 0.9]
from = "f"

[[level]]
name = "node"
ranks = { ranks = 4, from = "g" }
latency = { us = 2, from = "h" }
bandwidth = { "GB/s" = 75, from = "i" }
links = { links = 1, from = "assumed: one link per rank" }
fan-out = { ratio = 1, from = "assumed: all links can be busy at once" }
overlap = { share = 0.5, from = "j" }

[[level.verb]]
verb = "all_reduce"
ranks = 2
B = [8, 65536]
us = [2, 20]
from = "k"

[[level]]
name = "network"
latency = { us = 4, from = "l" }
bandwidth = { "Gbit/s" = 100, from = "m" }
links = { links = 4, from = "assumed: one link per rank" }
fan-out = { ratio = 2, from = "n" }
overlap = { share = 1, from = "o" }
)");
}

TEST(Machine, PrintsValuesOfNoRoundUnit) {
  Machine machine = default_machine();
  machine.name = "a \"b\" \\ \n";
  machine.kernel = {1.0 / 3e5, "measured: \t'c'"};
  machine.levels[0].latency.value = 1.2345678901234567e-6;
  machine.levels[0].bandwidth.value = std::nextafter(4e9, 0);
  machine.levels[0].reduction = {3e9, "printed"};
  machine.levels[0].verbs[{Verb::exchange, 2}] = {{{1, 1.1e-6}, {12345, 1 / 3e4}, {1e6, 1e-3}}, "measured: here"};
  expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
  // Numbers next to round ones; some become the round numbers when scaled.
  for (int us = 1; us < 50; ++us) {
    machine.kernel.value = std::nextafter(us / 1e6, us % 2);
    expect_same(machine, Machine::parse(machine.print(), "printed.toml"));
  }
}

TEST(Machine, CurvesAreLinearInLogarithms) {
  const Curve one{{{100, 0.5}}, ""};
  for (const double size : {1., 100., 1e9}) EXPECT_EQ(one.at(size), 0.5);
  EXPECT_EQ(one.seconds(1), 0.5);
  EXPECT_EQ(one.seconds(100), 0.5);
  EXPECT_EQ(one.seconds(300), 1.5);
  const Curve three{{{1, 4}, {100, 16}, {400, 16}}, ""};
  EXPECT_EQ(three.at(0), 4);
  EXPECT_EQ(three.at(0.5), 4);
  EXPECT_EQ(three.at(1), 4);
  EXPECT_DOUBLE_EQ(three.at(10), 8) << "halfway in both logarithms";
  EXPECT_EQ(three.at(100), 16) << "exactly at a point";
  EXPECT_EQ(three.at(200), 16);
  EXPECT_EQ(three.at(400), 16);
  EXPECT_EQ(three.at(4000), 16);
  EXPECT_DOUBLE_EQ(three.seconds(10), 8);
  EXPECT_EQ(three.seconds(400), 16);
  EXPECT_EQ(three.seconds(4000), 160) << "in proportion to the size";
}

TEST(Machine, WithoutLevelsOrPointsIsRefused) {
  Machine none;
  none.name = "none";
  EXPECT_EQ(error_of([&] { none.level_of(0, 1); }),
            "the machine 'none' has no levels; add one, with the latency and the bandwidth of its links");
  EXPECT_EQ(error_of([] { Curve().at(1); }), "a curve of a machine has no points; add one, e.g. {1e6, 0.5}");
}

TEST(Machine, RanksFillUnitsFirst) {
  Machine machine = default_machine();
  EXPECT_EQ(machine.level_of(0, 1), 0);
  EXPECT_EQ(machine.level_of(0, 100), 0) << "the last level holds all ranks";
  Level level = machine.levels[0];
  machine.levels.clear();
  for (const double ranks : {3., 6., 0.}) {
    level.ranks.value = ranks;
    machine.levels.push_back(level);
  }
  // Eight ranks: a node of two sockets, and a node whose second socket has no ranks.
  const std::vector<std::string> expected{"00011122", "00011122", "00011122", "11100022",
                                          "11100022", "11100022", "22222200", "22222200"};
  for (int rank = 0; rank < 8; ++rank)
    for (int other = 0; other < 8; ++other)
      EXPECT_EQ(machine.level_of(rank, other), expected[rank][other] - '0') << rank << " and " << other;
}

}  // namespace partita::test::machine_test
