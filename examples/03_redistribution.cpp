// Redistribution from one layout to another: prints the planned steps and the bytes that they send. Checks on four
// thread ranks that the backward of each redistribution is its adjoint: <F x, y> = <x, F' y>.
//
// $ build/examples/03_redistribution
// N@y C sum@x   -> N@y C         F  all_reduce(x), 168 bytes by rank 0
// N@y C         <- N@y C         F' nothing
//     <F x, y> = 882    <x, F' y> = 882
// N@y C sum@x   -> N@y C@x       F  reduce_scatter(x), 168 bytes by rank 0
// N@y C         <- N@y C@x       F' all_gather(x)
//     <F x, y> = 882    <x, F' y> = 882
// N@y C@x       -> N@y C         F  all_gather(x), 168 bytes by rank 0
// N@y C@x       <- N@y C         F' slice
//     <F x, y> = 518    <x, F' y> = 518
// N@y C         -> N@y C@x       F  slice, 0 bytes by rank 0
// N@y C         <- N@y C@x       F' all_gather(x)
//     <F x, y> = 518    <x, F' y> = 518
// N@(y,x) C     -> N C@(y,x)     F  exchange, 80 bytes by rank 0
// N@(y,x) C     <- N C@(y,x)     F' exchange
//     <F x, y> = 518    <x, F' y> = 518
// N@y C sum@x   -> N C@y         F  all_reduce(x) exchange, 240 bytes by rank 0
// N@y C         <- N C@y         F' exchange
//     <F x, y> = 882    <x, F' y> = 882
#include <partita/partita.hpp>

using namespace partita;

namespace {

/// This rank's part of a tensor of small integers, so that sums are exact in any order. Replicas have equal values; the
/// parts of a pending sum have different values.
DistTensor make(const Layout& layout, int rank, Index seed) {
  DistTensor tensor(layout, rank, DType::f64, std::make_shared<Allocator>(), MemoryClass::workspace);
  const int part = layout.grid().group(rank, layout.sharding() | layout.replicated()).front();
  fill(tensor.local, layout.shape(), [&](Index i) { return static_cast<double>((i * i + 3 * part + seed) % 17 - 8); });
  return tensor;
}

/// <x, y> over all ranks. Along an axis where one tensor is partial and the other replicated, the products are parts of
/// a sum. Along an axis where both are replicated, only the first rank counts.
double inner(const DistTensor& x, const DistTensor& y, const ProcessGrid& grid) {
  const AxisSet same = x.layout.replicated() & y.layout.replicated();
  double sum = 0;
  if (grid.grid().group(grid.rank(), same).front() == grid.rank())
    for (Index i = 0; i < x.local.volume(); ++i) sum += x.local.get(i) * y.local.get(i);
  grid.world().all_reduce(&sum, 1, DType::f64, ReduceOp::sum, {}).wait();
  return sum;
}

/// The steps, or "nothing" if there are none.
std::string print_plan(const std::vector<RedistributionStep>& steps) {
  return steps.empty() ? "nothing" : print(steps);
}

/// Shows F, which takes x from `from` to `to`, and F', which takes a gradient from the dual of `to` to the dual of
/// `from`.
void show(const Layout& from, const Layout& to) {
  const auto there = plan_redistribution(from, to), back = plan_redistribution(to.dual(), from.dual());
  Index bytes = 0;
  for (const auto& step : there) bytes += traffic(step, 0, size_of(DType::f64)).bytes;
  fmt::print("{:<13} -> {:<13} F  {}, {} bytes by rank 0\n", from.print(), to.print(), print_plan(there), bytes);
  fmt::print("{:<13} <- {:<13} F' {}\n", from.dual().print(), to.dual().print(), print_plan(back));

  std::vector<AxisSet> axis_sets;  // the axes over which the collectives run
  for (const auto& steps : {there, back})
    for (const auto& step : steps) axis_sets.push_back(step.axes);
  run_thread_ranks(from.grid().size(), {}, [&](Communicator& comm) {
    const ProcessGrid grid(from.grid(), comm, axis_sets);
    const DistTensor x = make(from, comm.rank(), 1), y = make(to.dual(), comm.rank(), 2);
    const double forward = inner(redistribute(x, there, grid), y, grid);
    const double backward = inner(x, redistribute(y, back, grid), grid);
    if (comm.rank() == 0) fmt::print("    <F x, y> = {}    <x, F' y> = {}\n", forward, backward);
  });
}

}  // namespace

int main() {
  const Grid grid = Grid::parse("y=2 x=2");
  const Shape shape{{'N', 5}, {'C', 7}};
  const auto layout = [&](const char* notation) { return Layout::parse(notation, shape, grid); };
  show(layout("N@y sum@x"), layout("N@y"));      // partial -> replicate
  show(layout("N@y sum@x"), layout("N@y C@x"));  // partial -> shard
  show(layout("N@y C@x"), layout("N@y"));        // shard -> replicate
  show(layout("N@y"), layout("N@y C@x"));        // replicate -> shard
  show(layout("N@(y,x)"), layout("C@(y,x)"));    // shard -> shard
  show(layout("N@y sum@x"), layout("C@y"));      // partial -> shard of another dimension
}
