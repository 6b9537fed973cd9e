// MachineRates: seconds of terms, worked out by hand. The machine has round numbers: 1 Gflop/s, 1 GB/s of memory, 1 us
// a kernel; a node level of 1 us and 1 GB/s, and a network of 10 us and 0.1 GB/s. A byte that is added costs 3 ns: two
// are read and one is written.
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/cost_terms.hpp"

#include "test/strategies/cost/movements.hpp"
#include "test/support/error_of.hpp"

#include <array>
#include <string>

namespace partita::test::evaluate_terms_test {

namespace {

constexpr int kilobytes = 30;

/// Single messages of 0 to `kilobytes` - 1 kB at each of these levels.
CostTerms messages_at(const std::vector<int>& levels) {
  CostTerms terms;
  for (const int level : levels)
    for (int kilobyte = 0; kilobyte < kilobytes; ++kilobyte) exchange(terms, {level, 1}, 1, 1000 * kilobyte);
  return terms;
}

/// A kernel whose seconds are given by pass.
KernelTerm takes(double forward, double backward_data, double backward_filter) {
  KernelTerm kernel;
  kernel.measured = true;
  kernel.seconds = {forward, backward_data, backward_filter};
  return kernel;
}

/// One message of so many kB on the first or a later one of the levels.
Movement message(double bytes, int level = 0) {
  const int number = level * kilobytes + static_cast<int>(bytes / 1000);
  return {number, 1, bytes, number, number + 1};
}

/// A movement of a layer that hides behind a pass, or behind none.
LayerMovement moves(double bytes, Pass pass, double PassCost::*part, std::optional<Computation> behind = {},
                    bool input = false) {
  return {message(bytes), pass, part, behind, input};
}

}  // namespace

TEST(MachineRates, AKernelTakesItsLaunchAndTheLongerOfOperationsAndBytes) {
  Machine machine = round_machine();
  machine.efficiency = {{KernelKind::conv, {{{{1000, 0.5}}, ""}}}, {KernelKind::others, {{{{1000, 0.25}}, ""}}}};
  const CostTerms terms;
  struct Case {
    KernelKind kind;
    double flops, bytes, seconds;
  };
  for (const auto& [kind, flops, bytes, seconds] :
       {Case{KernelKind::conv, 0, 0, 1 * us}, Case{KernelKind::conv, 1000, 100, 3 * us},
        Case{KernelKind::conv, 1000, 7000, 8 * us}, Case{KernelKind::others, 1000, 100, 5 * us},
        Case{KernelKind::product, 1000, 100, 5 * us}}) {  // no curve of its own: that of all others
    KernelTerm kernel;
    kernel.kind = kind;
    kernel.flops = flops;
    expect_seconds(MachineRates(terms, machine).seconds(kernel, bytes), seconds,
                   fmt::format("{} operations, {} bytes", flops, bytes));
  }
  machine.efficiency.clear();
  KernelTerm kernel;
  kernel.flops = 1000;
  expect_seconds(MachineRates(terms, machine).seconds(kernel, 0), 2 * us, "no curve: all of the arithmetic");
}

// 1000 operations at half of 1 Gflop/s take 2 us.
TEST(MachineRates, ANarrowKernelReachesLess) {
  Machine machine = round_machine();
  machine.efficiency = {{KernelKind::product, {{{{1000, 0.5}}, ""}, {64, ""}, {}}}};
  const CostTerms terms;
  const MachineRates rates(terms, machine);
  for (const auto& [narrowest, share] : {std::pair(1., 1. / 64), {16., 0.25}, {63., 63. / 64}, {64., 1.}, {1e6, 1.}}) {
    KernelTerm kernel;
    kernel.kind = KernelKind::product;
    kernel.flops = 1000;
    kernel.narrowest = narrowest;
    expect_seconds(rates.seconds(kernel, 0), 1 * us + 2 * us / share, fmt::format("{} wide", narrowest));
  }
}

// 1 Tflop/s in f64, 2 in f32, 8 in tf32 and 16 in bf16.
TEST(MachineRates, EachTypeHasItsPeak) {
  Machine machine = round_machine();
  machine.arithmetic = {};
  machine.peaks = {{Precision::f64, {1e12, ""}},
                   {Precision::f32, {2e12, ""}},
                   {Precision::tf32, {8e12, ""}},
                   {Precision::bf16, {16e12, ""}}};
  machine.efficiency = {{KernelKind::conv, {{{{1, 0.5}}, ""}, {}, {{Precision::bf16, {{{1, 0.25}}, ""}}}}}};
  const auto expect = [&](KernelKind kind, DType dtype, double rate) {
    CostTerms terms;
    terms.dtype = dtype;
    KernelTerm kernel;
    kernel.kind = kind;
    kernel.flops = 1e9;
    expect_seconds(MachineRates(terms, machine).seconds(kernel, 0), 1 * us + 1e9 / rate,
                   fmt::format("{} in {}", name(kind), name(dtype)));
  };
  expect(KernelKind::product, DType::f64, 1e12);
  expect(KernelKind::product, DType::f32, 2e12);
  expect(KernelKind::product, DType::bf16, 16e12);
  expect(KernelKind::conv, DType::f64, 0.5e12);
  expect(KernelKind::conv, DType::bf16, 4e12);
  expect(KernelKind::others, DType::f64, 1e12);
  expect(KernelKind::others, DType::bf16, 2e12);
  machine.f32_uses = Precision::tf32;
  expect(KernelKind::product, DType::f32, 8e12);
  expect(KernelKind::others, DType::f32, 2e12);
  EXPECT_EQ(error_of([&] { expect(KernelKind::conv, DType::f16, 0); }),
            "the machine 'round' does not say how fast it computes in f16; add f16 = { \"Tflop/s\" = ..., from = "
            "\"...\" } to its [arithmetic]");
}

// 1000 operations take 2 us, and moving 5000 bytes 6 us. Backward data runs once for the gradient and once more for a
// forward that is recomputed.
TEST(MachineRates, PassesCountTheirKernels) {
  RankTerms rank;
  rank.rank = 5;
  rank.kernel.flops = 1000;
  rank.kernel.backward_bytes = 5000;
  rank.kernel.forwards = {1, 1, 0};
  rank.kernel.backwards = {0, 1, 0};
  rank.kernel.recomputes = true;
  const CostTerms terms;
  const Machine machine = round_machine();
  const LayerCost cost = MachineRates(terms, machine).layer(rank);
  EXPECT_EQ(cost.rank, 5);
  EXPECT_FALSE(cost.measured);
  expect_seconds(cost.forward.compute, 2 * us);
  expect_seconds(cost.backward_data.compute, 2 * us + 6 * us);
  expect_seconds(cost.backward_filter.compute, 0);
}

TEST(MachineRates, MovementsCountWhereTheyBelong) {
  const CostTerms terms = messages_at({node});
  const Machine machine = round_machine(0.5);  // nothing is hidden that has nothing to hide behind
  const RankTerms rank{
      0,
      takes(10 * us, 20 * us, 30 * us),
      {moves(0, Pass::forward, &PassCost::redistribution, {}, true),
       moves(1000, Pass::backward_data, &PassCost::redistribution, {}, true),
       moves(2000, Pass::backward_data, &PassCost::redistribution),
       moves(3000, Pass::backward_filter, &PassCost::product), moves(4000, Pass::forward, &PassCost::collective),
       moves(5000, Pass::forward, &PassCost::collective)}};
  const LayerCost cost = MachineRates(terms, machine).layer(rank);
  EXPECT_TRUE(cost.measured);
  expect_seconds(cost.forward.redistribution, 1 * us);
  expect_seconds(cost.forward.collective, 5 * us + 6 * us);
  expect_seconds(cost.backward_data.redistribution, 2 * us + 3 * us);
  expect_seconds(cost.backward_filter.product, 4 * us);
  expect_seconds(cost.inputs, 1 * us + 2 * us);
  expect_seconds(cost.forward.total(), 22 * us);
  expect_seconds(cost.backward_data.total(), 25 * us);
  expect_seconds(cost.backward_filter.total(), 34 * us);
}

// A halo of n bytes takes 1 us + n ns.
TEST(MachineRates, HalosHideBehindComputing) {
  struct Case {
    std::string name;
    double overlap;
    KernelTerm kernel;
    std::vector<LayerMovement> movements;
    std::array<double, 3> halo, hidden;  // by pass
  };
  constexpr auto halo = &PassCost::halo;
  KernelTerm recomputes = takes(2 * us, 8 * us, 0);  // 2 us of the 8 us are the forward once more
  recomputes.recomputes = true;
  const std::vector<Case> table{
      {"no overlap",
       0,
       takes(10 * us, 0, 0),
       {moves(3000, Pass::forward, halo, Computation::forward)},
       {4 * us, 0, 0},
       {0, 0, 0}},
      {"all of it",
       1,
       takes(10 * us, 0, 0),
       {moves(3000, Pass::forward, halo, Computation::forward)},
       {0, 0, 0},
       {4 * us, 0, 0}},
      {"half of it",
       0.5,
       takes(10 * us, 0, 0),
       {moves(3000, Pass::forward, halo, Computation::forward)},
       {2 * us, 0, 0},
       {2 * us, 0, 0}},
      {"more than there is to hide behind",
       1,
       takes(3 * us, 0, 0),
       {moves(3000, Pass::forward, halo, Computation::forward)},
       {1 * us, 0, 0},
       {3 * us, 0, 0}},
      {"nothing to hide behind",
       1,
       takes(0, 10 * us, 0),
       {moves(3000, Pass::forward, halo, Computation::forward)},
       {4 * us, 0, 0},
       {0, 0, 0}},
      {"two share what there is",
       1,
       takes(5 * us, 0, 0),
       {moves(2000, Pass::forward, halo, Computation::forward), moves(3000, Pass::forward, halo, Computation::forward)},
       {2 * us, 0, 0},
       {5 * us, 0, 0}},
      {"a halo of dy behind the filter's gradient",
       1,
       takes(0, 0, 10 * us),
       {moves(3000, Pass::backward_data, halo, Computation::backward_filter)},
       {0, 0, 0},
       {0, 0, 4 * us}},
      {"the forward once more hides in that part alone",
       1,
       recomputes,
       {moves(3000, Pass::backward_data, halo, Computation::recomputed_forward)},
       {0, 2 * us, 0},
       {0, 2 * us, 0}},
      {"the rest of backward data hides another",
       1,
       recomputes,
       {moves(3000, Pass::backward_data, halo, Computation::recomputed_forward),
        moves(6000, Pass::backward_data, halo, Computation::backward_data)},
       {0, 2 * us + 1 * us, 0},
       {0, 2 * us + 6 * us, 0}}};
  for (const auto& [name, overlap, kernel, movements, halos, hidden] : table) {
    const CostTerms terms = messages_at({node});
    const Machine machine = round_machine(overlap);
    const LayerCost cost = MachineRates(terms, machine).layer(RankTerms{0, kernel, movements});
    const std::array passes{cost.forward, cost.backward_data, cost.backward_filter};
    for (std::size_t pass = 0; pass < 3; ++pass) {
      expect_seconds(passes[pass].halo, halos[pass], fmt::format("{}, pass {}", name, pass));
      expect_seconds(passes[pass].hidden, hidden[pass], fmt::format("{}, hidden behind pass {}", name, pass));
      expect_seconds(passes[pass].total(), kernel.seconds[pass] + halos[pass], name + ": hidden seconds are in no sum");
    }
  }
}

// Not the rank that computes longest, nor the one that moves most.
TEST(MachineRates, TheSlowestRankCounts) {
  const CostTerms terms = messages_at({node});
  const Machine machine = round_machine();
  const auto rank = [](int number, double compute, double bytes) {
    return RankTerms{number, takes(compute, 0, 0), {moves(bytes, Pass::forward, &PassCost::redistribution)}};
  };
  const MachineRates rates(terms, machine);
  EXPECT_EQ(rates.layer({rank(7, 3 * us, 0)}).rank, 7);
  const LayerCost cost =
      rates.layer({rank(0, 9 * us, 0), rank(1, 6 * us, 5000), rank(2, 1 * us, 9000), rank(3, 6 * us, 5000)});
  EXPECT_EQ(cost.rank, 1) << "of equal ranks the first";
  expect_seconds(cost.forward.total(), 12 * us);
}

// Route 0 overlaps by a half, route 1 not at all: of 4 us and 40 us, 2 us go on behind the backward.
TEST(MachineRates, GradientSumsOverlapByTheirSeconds) {
  const CostTerms terms = messages_at({node, network});
  Machine machine = two_levels();
  machine.levels[node].overlap = {0.5, ""};
  const MachineRates rates(terms, machine);
  const Movement fast = message(3000), slow = message(3000, 1);
  struct Case {
    std::string name;
    std::vector<GradReduceTerms> ranks;
    double seconds, overlap, replicas, after, loss = 0;
  };
  const std::vector<Case> table{
      {"no rank", {}, 0, 0, 0, 0},
      {"nothing to sum", {{}}, 0, 0, 0, 0},
      {"one bucket", {{{fast}, {}, {}}}, 4 * us, 0.5, 0, 0},
      {"buckets of both levels", {{{fast, slow}, {}, {}}}, 44 * us, 2. / 44, 0, 0},
      {"replicas and norms overlap with nothing", {{{fast}, {fast}, {slow, fast}}}, 4 * us, 0.5, 4 * us, 44 * us},
      {"norms alone", {{{}, {}, {fast}}}, 0, 0, 0, 4 * us},
      {"the loss of all stages", {{{}, {}, {}, {fast}}, {{}, {}, {}, {slow}}}, 0, 0, 0, 0, 40 * us},
      {"the slowest ranks: of what overlaps, of what does not, and after that",
       {{{fast, fast}, {}, {}}, {{fast}, {}, {slow}}, {{slow}, {}, {}}},
       40 * us,
       0,
       0,
       40 * us}};
  for (const auto& [name, ranks, seconds, overlap, replicas, after, loss] : table) {
    const GradReduceCost cost = rates.grad_reduce(ranks);
    expect_seconds(cost.seconds, seconds, name);
    expect_seconds(cost.overlap, overlap, name);
    expect_seconds(cost.replicas, replicas, name);
    expect_seconds(cost.after, after, name);
    expect_seconds(cost.loss, loss, name);
    expect_seconds(cost.total(), seconds + replicas + after + loss, name);
  }
}

TEST(MachineRates, AnUpdateTakesTheLongerOfItsBytesAndWhatWasMeasured) {
  const CostTerms terms;
  const Machine machine = round_machine();
  const MachineRates rates(terms, machine);
  expect_seconds(rates.update({0, 0}), 0);
  expect_seconds(rates.update({5000, 0}), 5 * us);
  expect_seconds(rates.update({5000, 7 * us}), 12 * us);
}

TEST(MachineRates, ATransferTakesWhatItsSlowestRankTakes) {
  const CostTerms terms = messages_at({node, network});
  Machine machine = two_levels();
  machine.levels[node].overlap = {0.25, ""};
  machine.levels[network].overlap = {0.75, ""};
  const MachineRates rates(terms, machine);
  const auto expect = [&](const std::vector<Movement>& ranks, double seconds, double overlap) {
    const StageTransfer transfer = rates.transfer(ranks);
    expect_seconds(transfer.seconds, seconds);
    expect_seconds(transfer.overlap, overlap);
  };
  expect({}, 0, 0);
  expect({message(2000)}, 3 * us, 0.25);
  expect({message(2000), message(0, 1)}, 10 * us, 0.75);
  expect({message(0, 1), message(21000)}, 16.5 * us + 7.5 * us, 7.5 / 24);
}

}  // namespace partita::test::evaluate_terms_test
