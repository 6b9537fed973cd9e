#include "partita/distconv/norm.hpp"

namespace partita {

namespace {

void sum_over(Communicator* ranks, const Tensor& sums, Stream stream) {
  if (ranks != nullptr && ranks->size() > 1 && sums.volume() > 0)
    ranks->all_reduce(sums.data(), sums.volume(), sums.dtype(), ReduceOp::sum, stream).wait(stream);
}

}  // namespace

Tensor batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double epsilon,
                        Stream stream) {
  const Index channels = x.extent('C');
  const Tensor sums = norm_numbers(x, 2, 1, channels, MemoryClass::workspace);
  backend.channel_sums(x, sums, stream);
  sum_over(ranks, sums, stream);
  const Tensor statistics = norm_numbers(x, 3, 1, channels, MemoryClass::activations);
  backend.norm_statistics(sums, count, epsilon, statistics, stream);
  return statistics;
}

Tensor norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                          const Tensor& dy, Stream stream) {
  const Tensor sums = norm_numbers(x, 2, 1, x.extent('C'), MemoryClass::activations);
  backend.channel_gradient_sums(x, dy, statistics, sums, stream);
  sum_over(ranks, sums, stream);
  return sums;
}

}  // namespace partita
