#pragma once

#include "partita/device/tensor.hpp"
#include "test/support/collectives.hpp"
#include "test/support/lazy_device.hpp"

#include <numeric>

// All verbs of a communicator between devices, on the test double of a device.

namespace partita::test {

constexpr Index verb_elements = 24;

/// A rank's part of a test: a device, a stream for its computations, and memory.
struct DeviceRank {
  explicit DeviceRank(LazyDevice& its_device)
      : device(its_device),
        stream(its_device.make_stream(Priority::normal)),
        allocator(std::make_shared<Allocator>(its_device, 0, stream)) {}

  Tensor tensor(Index elements) const {
    return {DType::f64, "F", Box(Shape{{'F', elements}}), allocator, MemoryClass::workspace, Fill::none};
  }
  /// Copies values to the device. They must live until the stream is waited for.
  Tensor upload(const std::vector<double>& values) const {
    const Tensor tensor = this->tensor(static_cast<Index>(values.size()));
    device.copy(values.data(), tensor.data(), values.size() * sizeof(double), stream);
    return tensor;
  }

  LazyDevice& device;
  Stream stream;
  std::shared_ptr<Allocator> allocator;
};

/// Verbs in a row on a rank's stream, without a wait of the CPU between them: a sum, shares of it, their concatenation,
/// boxes that are added, a broadcast.
inline std::vector<std::vector<double>> all_verbs(Communicator& comm, LazyDevice& device) {
  const DeviceRank rank(device);
  const int p = comm.size(), me = comm.rank();
  const auto values = block(me, verb_elements);
  std::vector<Index> counts = uneven_counts(p);
  counts.back() += verb_elements - std::accumulate(counts.begin(), counts.end(), Index{0});

  const Tensor sum = rank.upload(values);
  comm.all_reduce(sum.data(), verb_elements, DType::f64, ReduceOp::sum, rank.stream).wait(rank.stream);
  const Tensor share = rank.tensor(counts[me]);
  auto under_way = comm.reduce_scatter(sum.data(), share.data(), counts, DType::f64, rank.stream);
  const Tensor other = rank.upload(values);  // computing while the sum is under way
  under_way.wait(rank.stream);
  const Tensor all = rank.tensor(verb_elements);
  comm.all_gather(share.data(), all.data(), counts, DType::f64, rank.stream).wait(rank.stream);

  const Tensor added = rank.tensor(verb_elements);
  added.zero(rank.stream);
  Box part(Shape{{'F', verb_elements}});
  part[0] = {2, 9};
  std::vector<Transfer> sends, recvs;
  if (p > 1) sends.push_back({(me + 1) % p, part}), recvs.push_back({(me + p - 1) % p, part});
  comm.exchange_boxes({other, sends, added, recvs, true}, rank.stream).wait(rank.stream);
  add(added, other, rank.stream);
  comm.broadcast(other.data(), verb_elements, DType::f64, p - 1, rank.stream).wait(rank.stream);
  std::vector<std::vector<double>> results{read(sum, rank.stream), read(all, rank.stream), read(other, rank.stream)};
  for (const Tensor* each : {&sum, &share, &other, &all, &added}) each->zero(rank.stream);  // nobody may still need it
  return results;
}

/// The same numbers, computed from the values of all ranks.
inline std::vector<std::vector<double>> expected_of_verbs(int p) {
  std::vector<double> sum(static_cast<std::size_t>(verb_elements)), all(sum.size()), last = block(p - 1, verb_elements);
  for (int r = 0; r < p; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += block(r, verb_elements)[i];
  for (std::size_t i = 0; i < sum.size(); ++i) all[i] = p * sum[i];
  for (std::size_t i = 2; p > 1 && i < 9; ++i) last[i] += block(p - 2, verb_elements)[i];
  return {sum, all, last};
}

}  // namespace partita::test
