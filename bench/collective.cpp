// Compares the collectives of the MPI transport with MPI's own blocking collectives.
//   build/mpiexec -n 2 build/bench/collective [TEXT]    only cases whose name contains TEXT
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"

#include <string>
#include <vector>

using namespace partita;

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  bench::pin(world->rank());
  const auto measure = [&](const std::string& name, const auto& ours, const auto& theirs) {
    if (argc < 2 || name.find(argv[1]) != std::string::npos)
      bench::print(MPI_COMM_WORLD, "collective", name, bench::compare(MPI_COMM_WORLD, ours, theirs), "mpi");
  };
  constexpr long most = 64L << 20;
  // The data are zeros, so that repeated sums stay finite. Each side has a buffer of its own: if two cores share no
  // cache, a sum leaves the cache lines of its buffer on one core, and the other side would have to fetch them from
  // there. A program that uses one side only never pays for that.
  std::vector<float> data(most / sizeof(float)), other(data.size());
  for (long bytes : {8L, 1L << 10, 16L << 10, 64L << 10, 256L << 10, 1L << 20, 2L << 20, 4L << 20, 16L << 20, most}) {
    const auto count = static_cast<Index>(bytes) / static_cast<Index>(sizeof(float));
    measure(
        "all-reduce-" + bench::size_name(bytes),
        [&] { world->all_reduce(data.data(), count, DType::f32, ReduceOp::sum, {}).wait(); },
        [&] {
          MPI_Allreduce(MPI_IN_PLACE, other.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        });
  }
  std::vector<float> own(data.size() / static_cast<std::size_t>(world->size())), its(own.size());
  for (long bytes : {64L << 10, 1L << 20, 16L << 20}) {  // size of the whole result
    const auto block = static_cast<Index>(bytes) / static_cast<Index>(sizeof(float)) / world->size();
    const std::vector<Index> counts(static_cast<std::size_t>(world->size()), block);
    const auto count = static_cast<int>(block);
    measure(
        "all-gather-" + bench::size_name(bytes),
        [&] { world->all_gather(own.data(), data.data(), counts, DType::f32, {}).wait(); },
        [&] { MPI_Allgather(its.data(), count, MPI_FLOAT, other.data(), count, MPI_FLOAT, MPI_COMM_WORLD); });
    measure(
        "reduce-scatter-" + bench::size_name(bytes),
        [&] { world->reduce_scatter(data.data(), own.data(), counts, DType::f32, {}).wait(); },
        [&] { MPI_Reduce_scatter_block(other.data(), its.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  }
  return 0;
}
