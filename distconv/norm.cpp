#include "partita/distconv/norm.hpp"

namespace partita {

namespace {

void reduce_over(Communicator* ranks, const Tensor& numbers, ReduceOp op, Stream stream) {
  if (ranks != nullptr && ranks->size() > 1 && numbers.volume() > 0)
    ranks->all_reduce(numbers.data(), numbers.volume(), numbers.dtype(), op, stream).wait(stream);
}

}  // namespace

Tensor norm_centers(Backend& backend, Communicator* ranks, const Tensor& x, Index parts, Index groups, Stream stream) {
  const Tensor centers = norm_numbers(x, 1, parts, groups, MemoryClass::workspace);
  backend.channel_centers(x, centers, stream);
  reduce_over(ranks, centers, ReduceOp::max, stream);
  return centers;
}

Tensor norm_statistics(Backend& backend, Communicator* ranks, const Tensor& x, const Tensor& centers, Index count,
                       double epsilon, Stream stream) {
  const Index parts = centers.extent('N'), channels = x.extent('C'), groups = centers.extent('C');
  const Tensor sums = norm_numbers(x, 2, parts, channels, MemoryClass::workspace);
  backend.channel_sums(x, centers, sums, stream);
  const Tensor grouped = groups == channels ? sums : norm_numbers(x, 2, parts, groups, MemoryClass::workspace);
  if (groups != channels) backend.group_channels(sums, {}, grouped, stream);
  reduce_over(ranks, grouped, ReduceOp::sum, stream);
  const Tensor statistics = norm_numbers(x, 3, parts, groups, MemoryClass::activations);
  backend.norm_statistics(grouped, centers, count, epsilon, statistics, stream);
  return statistics;
}

Tensor norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                          const Tensor& dy, Stream stream) {
  const Tensor sums = norm_numbers(x, 2, 1, x.extent('C'), MemoryClass::activations);
  backend.channel_gradient_sums(x, dy, statistics, sums, stream);
  reduce_over(ranks, sums, ReduceOp::sum, stream);
  return sums;
}

}  // namespace partita
