#include "partita/comm/counting.hpp"

#include "src/comm/sum_of_counts.hpp"

namespace partita {

void TrafficCounter::add(Verb verb, const Traffic& traffic) {
  if (traffic.messages > 0) counts_[{label_, verb}] += traffic;
}

Traffic TrafficCounter::total() const {
  Traffic total;
  for (const auto& [what, traffic] : counts_) total += traffic;
  return total;
}

TrafficCounter TrafficCounter::since(const TrafficCounter& before) const {
  TrafficCounter difference;
  for (const auto& [what, traffic] : counts_) {
    Traffic more = traffic;
    if (const auto found = before.counts_.find(what); found != before.counts_.end()) more -= found->second;
    if (more.messages > 0) difference.counts_[what] = more;
  }
  return difference;
}

void TrafficCounter::add(const TrafficCounter& other) {
  for (const auto& [what, traffic] : other.counts_) counts_[what] += traffic;
}

namespace {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<TrafficCounter> counter)
      : inner_(std::move(inner)), counter_(std::move(counter)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool asynchronous() const override { return inner_->asynchronous(); }
  bool packs() const override { return inner_->packs(); }
  bool captures() const override { return inner_->captures(); }
  void launched() override { inner_->launched(); }
  Index shared_bytes() const override { return inner_->shared_bytes(); }
  Index shared_bytes_of(const std::vector<std::vector<int>>& groups) const override {
    return inner_->shared_bytes_of(groups);
  }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    Traffic traffic;
    for (const auto& send : sends)
      if (!send.data.empty()) traffic += {1, static_cast<Index>(send.data.size())};
    counter_->add(Verb::exchange, traffic);
    return inner_->exchange(sends, recvs, stream);
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    Traffic traffic;
    for (const auto& [peer, box] : boxes.sends)
      if (!box.empty()) traffic += {1, box.volume() * size_of(boxes.from.dtype())};
    counter_->add(Verb::exchange, traffic);
    return inner_->exchange_boxes(boxes, stream);
  }
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    collective(Verb::all_reduce, count, dtype);
    return inner_->all_reduce(data, count, dtype, op, stream);
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    collective(Verb::all_gather, sum(counts), dtype);
    return inner_->all_gather(local, all, counts, dtype, stream);
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    collective(Verb::reduce_scatter, sum(counts), dtype);
    return inner_->reduce_scatter(all, local, counts, dtype, stream);
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    collective(Verb::broadcast, count, dtype);
    return inner_->broadcast(data, count, dtype, root, stream);
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    collective(Verb::all_to_all, sum(send_counts), dtype);
    return inner_->all_to_all(send, send_counts, recv, recv_counts, dtype, stream);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return counting(inner_->split(color, key), counter_);
  }

 private:
  void collective(Verb verb, Index count, DType dtype) {
    if (size() > 1 && count > 0) counter_->add(verb, {1, count * size_of(dtype)});
  }

  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<TrafficCounter> counter_;
};

}  // namespace

std::shared_ptr<Communicator> counting(Communicator& inner, std::shared_ptr<TrafficCounter> counter) {
  return counting(borrow(inner), std::move(counter));
}

std::shared_ptr<Communicator> counting(std::shared_ptr<Communicator> inner, std::shared_ptr<TrafficCounter> counter) {
  return std::make_shared<CountingCommunicator>(std::move(inner), std::move(counter));
}

}  // namespace partita
