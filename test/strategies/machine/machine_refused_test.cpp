#include "test/strategies/machine/machine_text.hpp"

#include <gtest/gtest.h>

namespace partita::test::machine_refused_test {

TEST(Machine, RefusesWhatIsNoMachine) {
  expect_error([] { Machine::load("/no/such/machine.toml"); },
               {"the machine file /no/such/machine.toml cannot be read: No such file or directory"});
  EXPECT_EQ(refusal_of("name = \"cluster\"", "nmae = \"x\""),
            "m.toml, line 1, column 1: a machine has no key 'nmae' (did you mean 'name'?); it has 'name', 'memory', "
            "'memory-bandwidth', 'arithmetic', 'kernel', 'efficiency', 'collectives', 'socket', 'level'");
  EXPECT_EQ(refusal_of("name = \"cluster\"", ""), "m.toml, line 1, column 1: a machine needs name = \"...\"");
  EXPECT_EQ(refusal_of("name = \"cluster\"", "name = \"\""),
            "m.toml, line 1, column 8: a machine needs name = \"...\"");
  EXPECT_EQ(refusal_of("name = \"cluster\"", "name = 3"), "m.toml, line 1, column 8: 'name' must be a text in quotes");
  EXPECT_NE(refusal_of("share = [0.1, 0.9]", "share = [0.1, }").find("m.toml, line 12, column "), std::string::npos);
  EXPECT_NE(refusal_of("name = \"cluster\"", "name = ").find("m.toml, line 1, column "), std::string::npos);
}

// Every missing constant is named at once, with what a machine needs.
TEST(Machine, RefusesMissingConstants) {
  const std::string machine =
      "; a machine needs name, memory, memory-bandwidth, arithmetic, kernel, [efficiency.others], and a [[level]] for "
      "each level of its network";
  const std::string level = "; a level needs name, latency, bandwidth, overlap and, but for the last one, ranks";
  EXPECT_EQ(refusal("kernel", ""),
            "m.toml, line 1, column 1: the machine lacks kernel; add kernel = { us = 5, from = \"...\" } (in s, ms, us "
            "or ns)" +
                machine);
  EXPECT_EQ(refusal("arithmetic", ""),
            "m.toml, line 1, column 1: the machine lacks arithmetic; add arithmetic = { \"Tflop/s\" = 19.5, from = "
            "\"...\" } (in flop/s, Gflop/s or Tflop/s)" +
                machine);
  EXPECT_EQ(refusal("memory", ""),
            "m.toml, line 1, column 1: the machine lacks memory; add memory = { GiB = 80, from = \"...\" } (in B, KB, "
            "MB, GB, TB, KiB, MiB, GiB or TiB)" +
                machine);
  EXPECT_EQ(refusal("memory-bandwidth", ""),
            "m.toml, line 1, column 1: the machine lacks memory-bandwidth; add memory-bandwidth = { \"GB/s\" = 2039, "
            "from = \"...\" } (in B/s, MB/s, GB/s, TB/s, GiB/s or Gbit/s)" +
                machine);
  EXPECT_EQ(refusal("overlap", ""),
            "m.toml, line 15, column 1: the level 'node' lacks overlap; add overlap = { share = 0.5, from = \"...\" }" +
                level);
  EXPECT_EQ(
      refusal("latency", ""),
      "m.toml, line 15, column 1: the level 'node' lacks latency; add latency = { us = 2, from = \"...\" } (in s, "
      "ms, us or ns)" +
          level);
  EXPECT_EQ(refusal("bandwidth", ""),
            "m.toml, line 15, column 1: the level 'node' lacks bandwidth; add bandwidth = { \"GB/s\" = 300, from = "
            "\"...\" } (in B/s, MB/s, GB/s, TB/s, GiB/s or Gbit/s)" +
                level);
  std::string less = machine_text;
  for (const char* line : {"memory = { GB = 16, from = \"a\" }\n", "kernel = { us = 5, from = \"d\" }\n"})
    less.erase(less.find(line), std::string(line).size());
  EXPECT_EQ(
      error_of([&] { Machine::parse(less, "m.toml"); }),
      "m.toml, line 1, column 1: the machine lacks memory and kernel; add memory = { GiB = 80, from = \"...\" } (in "
      "B, KB, MB, GB, TB, KiB, MiB, GiB or TiB) and kernel = { us = 5, from = \"...\" } (in s, ms, us or ns)" +
          machine);
}

TEST(Machine, RefusesConstantsWithoutUnitOrSource) {
  EXPECT_EQ(
      refusal("kernel", "5e-6"),
      "m.toml, line 5, column 10: kernel needs its unit and its source; write kernel = { us = 5, from = \"...\" }");
  EXPECT_EQ(refusal("kernel", "{ us = 5 }"),
            "m.toml, line 5, column 10: kernel lacks its source; add from = \"a document and its year, or measured: "
            "..., or assumed: ...\"");
  EXPECT_EQ(refusal("kernel", "{ us = 5, from = \"\" }"),
            "m.toml, line 5, column 27: kernel lacks its source; add from = \"a document and its year, or measured: "
            "..., or assumed: ...\"");
  EXPECT_EQ(refusal("kernel", "{ us = 5, from = 2020 }"), "m.toml, line 5, column 27: 'from' must be a text in quotes");
  EXPECT_EQ(refusal("kernel", "{ from = \"x\" }"),
            "m.toml, line 5, column 10: kernel needs a number in s, ms, us or ns");
  EXPECT_EQ(refusal("kernel", "{ us = 5, s = 1, from = \"x\" }"),
            "m.toml, line 5, column 12: kernel is given in s and in us; keep one");
  EXPECT_EQ(
      refusal("kernel", "{ us = 5, form = \"x\" }"),
      "m.toml, line 5, column 20: kernel has no key 'form' (did you mean 'from'?); it has 'from', 's', 'ms', 'us', "
      "'ns'");
}

TEST(Machine, RefusesUnitsOfAnotherQuantity) {
  EXPECT_EQ(refusal("latency", "{ \"GB/s\" = 2, from = \"x\" }"),
            "m.toml, line 18, column 13: latency must be in s, ms, us or ns, not GB/s");
  EXPECT_EQ(refusal("bandwidth", "{ us = 2, from = \"x\" }"),
            "m.toml, line 19, column 15: bandwidth must be in B/s, MB/s, GB/s, TB/s, GiB/s or Gbit/s, not us");
  EXPECT_EQ(refusal("memory", "{ share = 2, from = \"x\" }"),
            "m.toml, line 2, column 12: memory must be in B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, not share");
  EXPECT_EQ(refusal("overlap", "{ ratio = 1, from = \"x\" }"),
            "m.toml, line 20, column 13: overlap must be in share, not ratio");
  EXPECT_EQ(refusal_of("B = [8, 65536]", "\"GB/s\" = [8, 64]"),
            "m.toml, line 25, column 1: 'all_reduce' of 2 ranks must be in B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, "
            "and in s, "
            "ms, us or ns, not GB/s");
  EXPECT_EQ(
      refusal_of("us = [2, 20]", "uss = [2, 20]"),
      "m.toml, line 26, column 1: 'all_reduce' of 2 ranks has no key 'uss' (did you mean 'us'?); it has 'verb', "
      "'ranks', 'inside', 'from', 'B', 'KB', 'MB', 'GB', 'TB', 'KiB', 'MiB', 'GiB', 'TiB', 's', 'ms', 'us', 'ns'");
}

TEST(Machine, RefusesAbsurdNumbers) {
  const auto number = [](const char* key, const char* unit, const char* value) {
    const auto message = refusal(key, fmt::format("{{ {} = {}, from = \"x\" }}", unit, value));
    return message.substr(std::min(message.size(), message.find(": ") + 2));
  };
  EXPECT_EQ(number("latency", "s", "1.5"), "latency of 1.5 s; it must be 1 ns to 1 s");
  EXPECT_EQ(number("latency", "us", "0"), "latency of 0 us; it must be 1 ns to 1 s");
  EXPECT_EQ(number("latency", "us", "-2"), "latency of -2 us; it must be 1 ns to 1 s");
  EXPECT_EQ(number("latency", "us", "nan"), "latency of nan us; it must be 1 ns to 1 s");
  EXPECT_EQ(number("latency", "us", "inf"), "latency of inf us; it must be 1 ns to 1 s");
  EXPECT_EQ(number("latency", "us", "\"2\""), "latency must be a number of us");
  EXPECT_EQ(number("latency", "us", "[2]"), "latency must be a number of us");
  EXPECT_EQ(number("kernel", "ms", "1001"), "kernel of 1001 ms; it must be 1 ns to 1 s");
  EXPECT_EQ(number("bandwidth", "\"MB/s\"", "0.9"), "bandwidth of 0.9 MB/s; it must be 1 MB/s to 100 TB/s");
  EXPECT_EQ(number("bandwidth", "\"TB/s\"", "101"), "bandwidth of 101 TB/s; it must be 1 MB/s to 100 TB/s");
  EXPECT_EQ(number("memory-bandwidth", "\"B/s\"", "9"), "memory-bandwidth of 9 B/s; it must be 1 MB/s to 100 TB/s");
  EXPECT_EQ(number("memory", "MB", "1"), "memory of 1 MB; it must be 1 MiB to 1024 TiB");
  EXPECT_EQ(number("memory", "TiB", "1025"), "memory of 1025 TiB; it must be 1 MiB to 1024 TiB");
  EXPECT_EQ(number("arithmetic", "\"flop/s\"", "1"), "arithmetic of 1 flop/s; it must be 1 Gflop/s to 100000 Tflop/s");
  EXPECT_EQ(number("ranks", "ranks", "0"), "ranks of 0; it must be 1 to 1048576");
  EXPECT_EQ(number("ranks", "ranks", "1.5"), "ranks of 1.5; it must be a whole number");
  EXPECT_EQ(number("overlap", "share", "1.1"), "overlap of 1.1; it must be 0 to 1");
  EXPECT_EQ(number("overlap", "share", "-0.1"), "overlap of -0.1; it must be 0 to 1");
  EXPECT_EQ(refusal_of("fan-out = { ratio = 2, from = \"n\" }", "fan-out = { ratio = 0.5, from = \"n\" }"),
            "m.toml, line 33, column 21: fan-out of 0.5; it must be 1 to 1000");
  EXPECT_EQ(refusal_of("fan-out = { ratio = 2, from = \"n\" }",
                       "fan-out = { ratio = 2, from = \"n\" }\nlinks = { links = 0, from = \"x\" }"),
            "m.toml, line 34, column 19: links of 0; it must be 1 to 1048576");
}

TEST(Machine, RefusesCurvesThatAreNone) {
  EXPECT_EQ(refusal_of("share = [0.1, 0.9]", "share = [0.1, 1.1]"),
            "m.toml, line 12, column 15: efficiency of 1.1; it must be 1e-06 to 1");
  EXPECT_EQ(refusal_of("share = [0.1, 0.9]", "share = [0.1]"),
            "m.toml, line 10, column 1: [efficiency.conv] has 2 points of operations but 1 of efficiency");
  EXPECT_EQ(refusal_of("Gflop = [0.001, 1]", "Gflop = [1, 1]"),
            "m.toml, line 11, column 13: operations of [efficiency.conv] must ascend, but 1 Gflop follows 1 Gflop");
  EXPECT_EQ(refusal_of("Gflop = [0.001, 1]", "Gflop = []"),
            "m.toml, line 11, column 9: operations of [efficiency.conv] must be a list of numbers, Gflop = [...]");
  EXPECT_EQ(refusal_of("Gflop = [0.001, 1]", "Gflop = 1"),
            "m.toml, line 11, column 9: operations of [efficiency.conv] must be a list of numbers, Gflop = [...]");
  EXPECT_EQ(
      refusal_of("[efficiency.conv]", "[efficiency.cnov]"),
      "m.toml, line 10, column 13: [efficiency] has no key 'cnov' (did you mean 'conv'?); it has 'conv', 'product', "
      "'others'");
  EXPECT_EQ(refusal_of("[efficiency.others]", "[efficiency.product]").find("m.toml, line 6, column "), 0U);
  EXPECT_EQ(refusal_of("B = [8, 65536]", "B = [65536, 8]"),
            "m.toml, line 25, column 13: bytes of 'all_reduce' of 2 ranks must ascend, but 8 B follows 64 KiB");
  EXPECT_EQ(refusal_of("us = [2, 20]", "us = [2, 0]"),
            "m.toml, line 26, column 10: time of 0 us; it must be 1 ns to 1000 s");
}

TEST(Machine, RefusesTypesThatAreNone) {
  const auto types = [](const std::string& table) {
    return refusal_of("arithmetic = { \"Tflop/s\" = 15.7, from = \"c\" }", "arithmetic = " + table);
  };
  const std::string f32 = "f32 = { \"Tflop/s\" = 1, from = \"x\" }";
  EXPECT_EQ(types("{ " + f32 + " }"), "");
  EXPECT_EQ(types("{ " + f32 + ", fp16 = { \"Tflop/s\" = 1, from = \"x\" } }"),
            "m.toml, line 4, column 53: [arithmetic] has no key 'fp16' (did you mean 'f16'?); it has 'f64', 'f32', "
            "'tf32', 'bf16', 'f16', 'f32-uses'");
  EXPECT_EQ(types("{ f32 = { \"Tflop/s\" = 1 } }"),
            "m.toml, line 4, column 22: f32 lacks its source; add from = \"a document and its year, or measured: ..., "
            "or assumed: ...\"");
  EXPECT_EQ(types("{ " + f32 + ", f32-uses = \"tf32\" }"),
            "m.toml, line 4, column 64: f32-uses names tf32, of which [arithmetic] does not give the peak");
  EXPECT_EQ(types("{ " + f32 + ", f32-uses = \"f16\" }"),
            "m.toml, line 4, column 64: f32-uses must be \"f32\" or \"tf32\", not \"f16\"");
  EXPECT_EQ(refusal_of("share = [0.1, 0.9]", "share = [0.1, 0.9]\nwidth = 64"),
            "m.toml, line 13, column 9: width needs its unit and its source; write width = { elements = 64, from = "
            "\"...\" }");
}

TEST(Machine, RefusesWaysThatAreNone) {
  const auto ways = [](const std::string& value) {
    return refusal_of("kernel =", "collectives = " + value + "\nkernel =");
  };
  const std::string list = "'one-shot', 'all-links', 'by-levels', 'in-network'";
  EXPECT_EQ(
      ways("{ ways = [\"by-level\"], from = \"x\" }"),
      "m.toml, line 5, column 25: there is no way 'by-level' to run collectives (did you mean 'by-levels'?); there "
      "are " +
          list);
  EXPECT_EQ(ways("{ ways = [\"by-levels\"] }").substr(0, 70),
            "m.toml, line 5, column 15: collectives lacks its source; add from = \"a");
  EXPECT_EQ(ways("[\"by-levels\"]"),
            "m.toml, line 5, column 15: collectives must be written as { ways = [...], from = \"...\" } with some of " +
                list);
}

TEST(Machine, RefusesVerbsThatAreNone) {
  EXPECT_EQ(
      refusal_of("verb = \"all_reduce\"", "verb = \"allreduce\""),
      "m.toml, line 23, column 8: there is no verb 'allreduce' (did you mean 'all_reduce'?); there are 'exchange', "
      "'all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'all_to_all'");
  EXPECT_EQ(refusal_of("verb = \"all_reduce\"", ""),
            "m.toml, line 22, column 1: [[level.verb]] needs verb = \"...\": 'exchange', 'all_reduce', 'all_gather', "
            "'reduce_scatter', 'broadcast', 'all_to_all'");
  EXPECT_EQ(refusal_of("ranks = 2\nB", "ranks = 5\nB"),
            "m.toml, line 24, column 9: [[level.verb]] needs ranks = a whole number, 2 to 4");
  EXPECT_EQ(refusal_of("ranks = 2\nB", "ranks = 1\nB"),
            "m.toml, line 24, column 9: [[level.verb]] needs ranks = a whole number, 2 to 4");
  EXPECT_EQ(refusal_of("ranks = 2\nB", "ranks = 2\ninside = 2\nB"),
            "m.toml, line 25, column 10: [[level.verb]] needs inside = a whole number, 1 to 1");
  const std::string again = "[[level.verb]]\nverb = \"all_reduce\"\nranks = 2\nB = [1]\nus = [1]\nfrom = \"x\"\n";
  EXPECT_EQ(refusal_of("\n[[level]]\nname = \"network\"", again + "\n[[level]]\nname = \"network\""),
            "m.toml, line 28, column 1: 'all_reduce' of 2 ranks appears twice in the level 'node'");
}

TEST(Machine, RefusesLevelsThatDoNotNest) {
  EXPECT_EQ(
      refusal("ranks", ""),
      "m.toml, line 15, column 1: the level 'node' lacks ranks; add ranks = { ranks = 8, from = \"...\" }; a level "
      "needs name, latency, bandwidth, overlap and, but for the last one, ranks");
  const auto network = [](const std::string& ranks) {
    return refusal_of("name = \"network\"", "name = \"network\"\n" + ranks);
  };
  EXPECT_EQ(network("ranks = { ranks = 3, from = \"x\" }"),
            "m.toml, line 31, column 9: the level 'network' has 3 ranks, fewer than the 4 of 'node' inside it");
  EXPECT_EQ(network("ranks = { ranks = 6, from = \"x\" }"),
            "m.toml, line 31, column 9: the level 'network' has 6 ranks, which is not a multiple of the 4 of 'node' "
            "inside it");
  EXPECT_EQ(network("ranks = { ranks = 8, from = \"x\" }"), "");
  EXPECT_EQ(network("rnaks = { ranks = 8, from = \"x\" }"),
            "m.toml, line 31, column 1: [[level]] has no key 'rnaks' (did you mean 'ranks'?); it has 'name', 'ranks', "
            "'latency', 'bandwidth', 'links', 'fan-out', 'overlap', 'reduction', 'pairs', 'verb'");
  EXPECT_EQ(refusal_of("name = \"network\"", "name = \"node\""),
            "m.toml, line 30, column 8: there are two levels 'node'");
  const std::string whole = machine_text;
  const std::string none = whole.substr(0, whole.find("[[level]]"));
  EXPECT_EQ(error_of([&] { Machine::parse(none, "m.toml"); }),
            "m.toml, line 1, column 1: the machine lacks [[level]]; add one for each level of its network, from the "
            "inside out");
  EXPECT_EQ(error_of([&] { Machine::parse(none + "[level]\n", "m.toml"); }),
            "m.toml, line 15, column 1: 'level' must be written as [[level]]");
}

TEST(Machine, RefusesPairsThatCannotBe) {
  const auto pairs = [](const std::string& value) {
    return refusal_of("overlap = { share = 0.5, from = \"j\" }", "overlap = { share = 0.5, from = \"j\" }\n" + value);
  };
  const auto links = [&](const std::string& rows) { return pairs("pairs = { links = " + rows + ", from = \"x\" }"); };
  EXPECT_EQ(links("[[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]"), "");
  const std::string here = "m.toml, line 21, column ";
  EXPECT_EQ(pairs("pairs = 3"), here +
                                    "9: pairs of the level 'node' must be written as { links = [[0, 4, ...], ...], "
                                    "from = \"...\" }, with a row of numbers of links for each rank");
  EXPECT_EQ(links("[[0, 1], [1, 0]]"), here + "19: pairs of the level 'node' have 2 rows, but the level has 4 ranks");
  EXPECT_EQ(links("[[0, 1, 1, 1], [1, 0, 1], [1, 1, 0, 1], [1, 1, 1, 0]]"),
            here + "19: pairs of the level 'node': row 1 of the links has 3 numbers; each of the 4 rows needs 4");
  EXPECT_EQ(links("[[0, 1, 1, 1], [2, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]"),
            here + "19: pairs of the level 'node': there are 2 links from rank 1 to rank 0, but 1 back");
  EXPECT_EQ(links("[[0, 1, 1, 1], [1, 5, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]"),
            here + "19: pairs of the level 'node': rank 1 has 5 links to itself; that number must be 0");
  EXPECT_EQ(links("[[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]"),
            here + "19: pairs of the level 'node': no links connect rank 0 and rank 2, over other ranks either");
  EXPECT_NE(links("[[0, -1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]").find("a whole number, 0 to 1048576"),
            std::string::npos);
  EXPECT_NE(pairs("pairs = { links = [[0]] }").find("have 1 rows, but the level has 4 ranks"), std::string::npos);
  EXPECT_NE(refusal_of("fan-out = { ratio = 2, from = \"n\" }", "pairs = { links = [[0]], from = \"x\" }")
                .find("only the innermost level can have them"),
            std::string::npos);
}

TEST(Machine, RefusesASocketThatLacksSomething) {
  const auto socket = [](const std::string& value) {
    return refusal_of("[efficiency.others]", "[socket]\n" + value + "\n[efficiency.others]");
  };
  EXPECT_EQ(socket("ranks = { ranks = 8, from = \"x\" }\nmemory-bandwidth = { \"GB/s\" = 90, from = \"x\" }"), "");
  EXPECT_EQ(
      socket("ranks = { ranks = 8, from = \"x\" }"),
      "m.toml, line 6, column 1: [socket] lacks memory-bandwidth; add memory-bandwidth = { \"GB/s\" = 2039, from = "
      "\"...\" } (in B/s, MB/s, GB/s, TB/s, GiB/s or Gbit/s); a socket needs both; without [socket], no ranks share "
      "their memory");
  EXPECT_NE(socket("rank = 8").find("[socket] has no key 'rank' (did you mean 'ranks'?)"), std::string::npos);
}

}  // namespace partita::test::machine_refused_test
