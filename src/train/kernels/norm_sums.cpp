#include "src/train/kernels/norm_sums.hpp"

#include <algorithm>

namespace partita {

void sum_over(Communicator* ranks, const Tensor& numbers, Stream stream) {
  if (ranks != nullptr && ranks->size() > 1 && numbers.volume() > 0)
    ranks->all_reduce(numbers.data(), numbers.volume(), numbers.dtype(), ReduceOp::sum, stream).wait(stream);
}

Tensor norm_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index parts, Index groups, Index count,
                       double epsilon, const RunningStatistics& running, Stream stream) {
  const Index channels = x.extent('C'), own = x.volume() / std::max<Index>(parts * groups, 1);
  const Tensor statistics = norm_numbers(x, 3, parts, groups, MemoryClass::activations);
  if (ranks == nullptr && groups == channels) {
    backend.channel_statistics(x, epsilon, running, statistics, stream);
    return statistics;
  }
  const auto numbers = [&](Index each, Index of) { return norm_numbers(x, each, parts, of, MemoryClass::workspace); };
  const Tensor sums = numbers(2, channels);
  backend.channel_sums(x, groups, sums, stream);
  const Tensor grouped = groups == channels ? sums : numbers(2, groups), moments = numbers(4, groups);
  if (groups != channels) backend.group_channels(sums, {}, grouped, stream);
  backend.norm_moments(x, grouped, own, count, moments, stream);
  sum_over(ranks, moments, stream);
  backend.norm_statistics(moments, count, epsilon, running, statistics, stream);
  return statistics;
}

NormGradientSums norm_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                                    const MaskedGradient& dy, Stream stream) {
  const Tensor sums = norm_numbers(x, 2, 1, x.extent('C'), MemoryClass::activations);
  backend.channel_gradient_sums(x, dy, statistics, sums, stream);
  sum_over(ranks, sums, stream);
  return {sums, sums};
}

NormGradientSums group_gradient_sums(Backend& backend, Communicator* ranks, const Tensor& statistics, const Tensor& x,
                                     const MaskedGradient& dy, const Tensor& scale, Index parts, Index groups,
                                     Stream stream) {
  const Tensor sums = norm_numbers(x, 2, parts, x.extent('C'), MemoryClass::activations);
  const Tensor grouped = norm_numbers(x, 2, parts, groups, MemoryClass::activations);
  backend.channel_gradient_sums(x, dy, statistics, sums, stream);
  backend.group_channels(sums, scale, grouped, stream);
  sum_over(ranks, grouped, stream);
  return {sums, grouped};
}

}  // namespace partita
