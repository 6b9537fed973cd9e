#include "partita/comm/solo.hpp"

namespace partita {

namespace {

class SoloCommunicator final : public Communicator {
 public:
  SoloCommunicator(int rank, int size, bool asynchronous) : rank_(rank), size_(size), asynchronous_(asynchronous) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool asynchronous() const override { return asynchronous_; }
  Request exchange(std::span<const Send>, std::span<const Recv>, Stream) override { return {}; }
  Request exchange_boxes(const BoxExchange&, Stream) override { return {}; }
  Request all_reduce(void*, Index, DType, Op, Stream) override { return {}; }
  Request all_gather(const void*, void*, std::span<const Index>, DType, Stream) override { return {}; }
  Request reduce_scatter(const void*, void*, std::span<const Index>, DType, Stream) override { return {}; }
  Request broadcast(void*, Index, DType, int, Stream) override { return {}; }
  Request all_to_all(const void*, std::span<const Index>, void*, std::span<const Index>, DType, Stream) override {
    return {};
  }
  std::shared_ptr<Communicator> split(int, int) override { broken("a rank alone knows no other's color"); }

 private:
  int rank_, size_;
  bool asynchronous_;
};

}  // namespace

std::shared_ptr<Communicator> make_solo(int rank, int size, bool asynchronous) {
  return std::make_shared<SoloCommunicator>(rank, size, asynchronous);
}

}  // namespace partita
