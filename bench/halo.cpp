// Compares the halo exchange between two neighbors with a bare nonblocking send and receive of one contiguous buffer of
// the same size. A face in H lies in one piece (one sample, channels-last); a face in W lies in pieces of one pixel's
// channels. The data to send are in the caches of both cores from the previous run; in the cases "written", both sides
// write the data first, as a layer does.
//   build/mpiexec -n 2 build/bench/halo
#include "partita/layouts/halo.hpp"
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/tensor/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>

using namespace partita;

namespace {

/// Measures faces of `bytes` bytes if dimension `dim` of x[N C H W] is sharded, with 3x3 windows and `channels`
/// channels. For H also measures the case in which the face is written before.
void measure(Communicator& world, char dim, Index channels, Index bytes) {
  const Index across = bytes / 4 / channels;  // pixels of a face
  const Index thick = 28;                     // rows (columns) per rank; the cost of a face does not depend on it
  const Shape shape = dim == 'H' ? Shape{{'N', 1}, {'C', channels}, {'H', 2 * thick}, {'W', across}}
                                 : Shape{{'N', 1}, {'C', channels}, {'H', across}, {'W', 2 * thick}};
  const auto layout = Layout::parse(fmt::format("N C {}", dim == 'H' ? "H@y W" : "H W@y"), shape, Grid::parse("y=2"));
  const std::vector<Window> windows(2, Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1});
  const Halo halo = halo_of_inputs(layout, layout, windows);
  TransferPlan plan = halo.transfer(world.rank());
  plan.locals.clear();  // leave out the local copy of the interior
  const auto allocator = std::make_shared<Allocator>();
  const Tensor x(DType::f32, "NCHW", layout.owned(world.rank()), allocator, MemoryClass::activations);
  const Tensor extended = x.like(halo.needed(world.rank()));

  std::vector<std::byte> send(static_cast<std::size_t>(bytes)), recv(send.size());
  const auto theirs = [&] {
    std::array<MPI_Request, 2> requests{};
    const int peer = 1 - world.rank(), count = static_cast<int>(bytes);
    MPI_Irecv(recv.data(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(send.data(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
  };
  const auto ours = [&] { Exchange(plan, x, extended, world, {}).finish(); };
  const auto compare = [&](const char* how, const std::function<void()>& one, const std::function<void()>& other) {
    bench::print(MPI_COMM_WORLD, "halo", fmt::format("{}-face-C{}-{}{}", dim, channels, bench::size_name(bytes), how),
                 bench::compare(MPI_COMM_WORLD, one, other), "send-receive");
  };
  compare("", ours, theirs);
  if (dim == 'W') return;  // writing separate pixels would take longer than writing the buffer
  const auto face = run_of(x, plan.sends.front().box);
  require(static_cast<Index>(face.size()) == bytes, "the face lies in one piece");
  const auto write = [](std::span<std::byte> part) { std::fill(part.begin(), part.end(), std::byte{1}); };
  // Both times include the writing, so the ratio is closer to 1 than that of the exchange alone.
  const auto write_face = [&] { write(face), ours(); };
  const auto write_buffer = [&] { write(send), theirs(); };
  compare("-written", write_face, write_buffer);
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  if (world->size() != 2) session.abort("bench/halo needs 2 ranks: start it with -n 2", 2);
  bench::pin(world->rank());
  for (const Index bytes : {64L << 10, 256L << 10, 1L << 20, 4L << 20}) {
    measure(*world, 'H', 64, bytes);
    for (const Index channels : {64, 256}) measure(*world, 'W', channels, bytes);
  }
  return 0;
}
