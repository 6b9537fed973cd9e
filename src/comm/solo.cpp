#include "partita/comm/solo.hpp"

#include <numeric>

namespace partita {

namespace {

class SoloCommunicator final : public Communicator {
 public:
  SoloCommunicator(int rank, int size, bool asynchronous, std::vector<StandIn>* log, Device& device)
      : rank_(rank), size_(size), asynchronous_(asynchronous), log_(log), device_(device) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool asynchronous() const override { return asynchronous_; }
  bool packs() const override { return false; }
  bool captures() const override { return log_ == nullptr; }

  Request exchange(std::span<const Send>, std::span<const Recv> recvs, Stream stream) override {
    return stand_in(stream, [&] {
      for (const auto& recv : recvs) zero(recv.data.data(), recv.data.size(), stream);
    });
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    if (boxes.add) return {};
    return stand_in(stream, [&] {
      for (const auto& recv : boxes.recvs)
        copy_box(boxes.to.like(recv.box, MemoryClass::workspace), boxes.to, recv.box, stream);
    });
  }
  Request all_reduce(void*, Index, DType, ReduceOp, Stream) override { return {}; }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return stand_in(stream, [&] { keep_own(local, all, counts, dtype, stream); });
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return stand_in(stream, [&] {
      const auto [first, own] = block(counts, dtype);
      copy(static_cast<const std::byte*>(all) + first, local, own, stream);
    });
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    if (root == rank_) return {};
    return stand_in(stream, [&] { zero(data, static_cast<std::size_t>(count * size_of(dtype)), stream); });
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    return stand_in(stream, [&] {
      keep_own(static_cast<const std::byte*>(send) + block(send_counts, dtype).first, recv, recv_counts, dtype, stream);
    });
  }
  std::shared_ptr<Communicator> split(int, int) override {
    broken("a communicator without other ranks cannot be split");
  }

 private:
  template <class Write>
  Request stand_in(Stream stream, Write&& write) {
    if (log_ == nullptr) {
      write();
      return {};
    }
    const Event start = device_.mark(stream);
    write();
    log_->push_back({start, device_.mark(stream)});
    return {};
  }

  void zero(void* data, std::size_t bytes, Stream stream) const {
    if (bytes > 0) device_.zero(data, bytes, stream);
  }
  void copy(const void* from, void* to, std::size_t bytes, Stream stream) const {
    if (bytes > 0 && from != to) device_.copy(from, to, bytes, stream);
  }

  /// Returns the offset of this rank's block and its size, in bytes.
  std::pair<std::size_t, std::size_t> block(std::span<const Index> counts, DType dtype) const {
    const auto own = counts.begin() + rank_;
    return {static_cast<std::size_t>(std::accumulate(counts.begin(), own, Index{0}) * size_of(dtype)),
            static_cast<std::size_t>(*own * size_of(dtype))};
  }

  /// Writes `own` to this rank's block of `all`, and zeros to the other blocks.
  void keep_own(const void* own, void* all, std::span<const Index> counts, DType dtype, Stream stream) const {
    const auto [first, size] = block(counts, dtype);
    const auto total =
        static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), Index{0}) * size_of(dtype));
    auto* bytes = static_cast<std::byte*>(all);
    copy(own, bytes + first, size, stream);
    zero(bytes, first, stream);
    zero(bytes + first + size, total - first - size, stream);
  }

  int rank_, size_;
  bool asynchronous_;
  std::vector<StandIn>* log_;
  Device& device_;
};

}  // namespace

std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous, std::vector<StandIn>* log,
                                        Device& device) {
  return std::make_shared<SoloCommunicator>(rank, size, asynchronous, log, device);
}

}  // namespace partita
