#include "src/comm/delaying.hpp"

#include "src/comm/sum_of_counts.hpp"

#include <chrono>
#include <thread>

namespace partita {

namespace {

using Clock = std::chrono::steady_clock;

class Delayed : public Request::State {
 public:
  Delayed(Request inner, Clock::time_point arrival) : inner_(std::move(inner)), arrival_(arrival) {}
  void wait(Stream stream) override {
    inner_.wait(stream);
    std::this_thread::sleep_until(arrival_);
  }
  bool progress() override { return inner_.progress() && Clock::now() >= arrival_; }

 private:
  Request inner_;
  Clock::time_point arrival_;
};

class DelayingCommunicator : public Communicator {
 public:
  DelayingCommunicator(std::shared_ptr<Communicator> inner, Delay delay) : inner_(std::move(inner)), delay_(delay) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    std::size_t sent = 0, received = 0;
    for (const auto& send : sends) sent += send.data.size();
    for (const auto& recv : recvs) received += recv.data.size();
    const auto start = [&] { return inner_->exchange(sends, recvs, stream); };
    return sent + received == 0 ? start() : delayed(static_cast<Index>(received), start);
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    Index sent = 0, received = 0;
    for (const auto& [peer, box] : boxes.sends) sent += box.volume();
    for (const auto& [peer, box] : boxes.recvs) received += box.volume();
    const auto start = [&] { return inner_->exchange_boxes(boxes, stream); };
    return sent + received == 0 ? start() : delayed(received * size_of(boxes.from.dtype()), start);
  }
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    return collective(count, dtype, [&] { return inner_->all_reduce(data, count, dtype, op, stream); });
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return collective(sum(counts), dtype, [&] { return inner_->all_gather(local, all, counts, dtype, stream); });
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return collective(sum(counts), dtype, [&] { return inner_->reduce_scatter(all, local, counts, dtype, stream); });
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    return collective(count, dtype, [&] { return inner_->broadcast(data, count, dtype, root, stream); });
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    return collective(sum(send_counts), dtype,
                      [&] { return inner_->all_to_all(send, send_counts, recv, recv_counts, dtype, stream); });
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return delaying(inner_->split(color, key), delay_);
  }

 private:
  /// Calls `start` and returns a request that completes no earlier than `bytes` could have arrived.
  template <class Start>
  Request delayed(Index bytes, Start&& start) const {
    const double transfer = delay_.bandwidth > 0 ? static_cast<double>(bytes) / delay_.bandwidth : 0;
    const auto time =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(delay_.latency + transfer));
    const auto arrival = Clock::now() + time;
    return Request(std::make_unique<Delayed>(start(), arrival));
  }
  template <class Start>
  Request collective(Index count, DType dtype, Start&& start) const {
    return size() == 1 || count == 0 ? start() : delayed(count * size_of(dtype), start);
  }

  std::shared_ptr<Communicator> inner_;
  Delay delay_;
};

}  // namespace

std::shared_ptr<Communicator> delaying(Communicator& inner, Delay delay) { return delaying(borrow(inner), delay); }

std::shared_ptr<Communicator> delaying(std::shared_ptr<Communicator> inner, Delay delay) {
  return std::make_shared<DelayingCommunicator>(std::move(inner), delay);
}

}  // namespace partita
