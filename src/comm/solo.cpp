#include "partita/comm/solo.hpp"

#include "partita/base/clock.hpp"

#include <cstring>
#include <numeric>

namespace partita {

namespace {

class SoloCommunicator final : public Communicator {
 public:
  SoloCommunicator(int rank, int size, bool asynchronous, std::vector<StandIn>* log)
      : rank_(rank), size_(size), asynchronous_(asynchronous), log_(log) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool asynchronous() const override { return asynchronous_; }

  Request exchange(std::span<const Send>, std::span<const Recv> recvs, Stream) override {
    return stand_in([&] {
      for (const auto& recv : recvs) std::memset(recv.data.data(), 0, recv.data.size());
    });
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream) override {
    if (boxes.add) return {};
    return stand_in([&] {
      for (const auto& recv : boxes.recvs)
        copy_box(Tensor(boxes.to.dtype(), boxes.to.names(), recv.box), boxes.to, recv.box, {});
    });
  }
  Request all_reduce(void*, Index, DType, ReduceOp, Stream) override { return {}; }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream) override {
    return stand_in([&] { keep_own(local, all, counts, dtype); });
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype, Stream) override {
    return stand_in([&] {
      const auto [first, own] = block(counts, dtype);
      if (own > 0) std::memmove(local, static_cast<const std::byte*>(all) + first, own);
    });
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream) override {
    if (root == rank_) return {};
    return stand_in([&] { std::memset(data, 0, static_cast<std::size_t>(count * size_of(dtype))); });
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream) override {
    return stand_in([&] {
      keep_own(static_cast<const std::byte*>(send) + block(send_counts, dtype).first, recv, recv_counts, dtype);
    });
  }
  std::shared_ptr<Communicator> split(int, int) override {
    broken("a communicator without other ranks cannot be split");
  }

 private:
  template <class Write>
  Request stand_in(Write&& write) {
    const double start = now();
    write();
    if (log_ != nullptr) log_->push_back({start, now()});
    return {};
  }

  /// Returns the offset of this rank's block and its size, in bytes.
  std::pair<std::size_t, std::size_t> block(std::span<const Index> counts, DType dtype) const {
    const auto own = counts.begin() + rank_;
    return {static_cast<std::size_t>(std::accumulate(counts.begin(), own, Index{0}) * size_of(dtype)),
            static_cast<std::size_t>(*own * size_of(dtype))};
  }

  /// Writes `own` to this rank's block of `all`, and zeros to the other blocks.
  void keep_own(const void* own, void* all, std::span<const Index> counts, DType dtype) const {
    const auto [first, size] = block(counts, dtype);
    const auto total =
        static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), Index{0}) * size_of(dtype));
    auto* bytes = static_cast<std::byte*>(all);
    if (size > 0) std::memmove(bytes + first, own, size);
    if (first > 0) std::memset(bytes, 0, first);
    if (first + size < total) std::memset(bytes + first + size, 0, total - first - size);
  }

  int rank_, size_;
  bool asynchronous_;
  std::vector<StandIn>* log_;
};

}  // namespace

std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous, std::vector<StandIn>* log) {
  return std::make_shared<SoloCommunicator>(rank, size, asynchronous, log);
}

}  // namespace partita
