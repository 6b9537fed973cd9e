// Compares redistributions of x[N C H W] over all ranks with the bare MPI collective that moves the same bytes between
// contiguous buffers. The difference is the cost of intersecting, packing and unpacking boxes.
//   build/mpiexec -n 2 build/bench/redistribute
#include "partita/tensor/redistribute.hpp"
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"

#include <fmt/format.h>

#include <vector>

using namespace partita;

namespace {

/// The counts and offsets of each rank, in bytes.
struct Blocks {
  std::vector<int> counts, offsets;
  explicit Blocks(const std::vector<Index>& bytes) {
    int offset = 0;
    for (const Index count : bytes) {
      counts.push_back(static_cast<int>(count));
      offsets.push_back(offset);
      offset += counts.back();
    }
  }
};

class Case {
 public:
  Case(const std::shared_ptr<Communicator>& world, const Shape& shape, const char* from, const char* to)
      : layout_(Layout::parse(from, shape, Grid::parse(fmt::format("r={}", world->size())))),
        target_(Layout::parse(to, shape, layout_.grid())),
        steps_(plan_redistribution(layout_, target_)),
        grid_(layout_.grid(), world, {layout_.grid().all()}),
        x_(layout_, world->rank(), DType::f32, std::make_shared<Allocator>(), MemoryClass::activations) {
    const int rank = world->rank();
    std::vector<Index> sent, received;
    for (int r = 0; r < world->size(); ++r) {
      sent.push_back(bytes(intersect(layout_.owned(rank), target_.owned(r))));
      received.push_back(bytes(intersect(layout_.owned(r), target_.owned(rank))));
    }
    send_ = std::make_unique<Blocks>(sent);
    recv_ = std::make_unique<Blocks>(received);
    send_buffer_.resize(static_cast<std::size_t>(bytes(layout_.owned(rank))));
    recv_buffer_.resize(static_cast<std::size_t>(bytes(target_.owned(rank))));
  }

  void ours() const { redistribute(x_, steps_, grid_); }
  void theirs() {
    if (steps_.front().verb == Verb::all_gather)
      MPI_Allgatherv(send_buffer_.data(), static_cast<int>(send_buffer_.size()), MPI_BYTE, recv_buffer_.data(),
                     recv_->counts.data(), recv_->offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
    else
      MPI_Alltoallv(send_buffer_.data(), send_->counts.data(), send_->offsets.data(), MPI_BYTE, recv_buffer_.data(),
                    recv_->counts.data(), recv_->offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
  }
  std::string against() const { return steps_.front().verb == Verb::all_gather ? "mpi allgatherv" : "mpi alltoallv"; }

 private:
  static Index bytes(const Box& box) { return box.volume() * size_of(DType::f32); }

  Layout layout_, target_;
  std::vector<RedistributionStep> steps_;
  ProcessGrid grid_;
  DistTensor x_;
  std::unique_ptr<Blocks> send_, recv_;
  std::vector<std::byte> send_buffer_, recv_buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  bench::pin(world->rank());
  for (const long all : {256L << 10, 1L << 20, 4L << 20, 16L << 20}) {
    const Shape shape{{'N', all / 4 / 64 / 16 / 16}, {'C', 64}, {'H', 16}, {'W', 16}};
    for (const auto& [from, to] : {std::pair("N@r", "H@r"), std::pair("N@r", "C@r"), std::pair("H@r", "W@r"),
                                   std::pair("N@r", ""), std::pair("H@r", "")}) {
      Case one(world, shape, from, to);
      bench::print(MPI_COMM_WORLD, "redistribute",
                   fmt::format("{}-to-{}-{}", from, *to == '\0' ? "replicas" : to, bench::size_name(all)),
                   bench::compare(
                       MPI_COMM_WORLD, [&] { one.ours(); }, [&] { one.theirs(); }, 0.5),
                   one.against());
    }
  }
  return 0;
}
