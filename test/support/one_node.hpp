#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita::test {

/// Moves data as the ranks of one node do: through memory that no rank's allocator counts, while the ranks wait.
class OneNode final : public Communicator {
 public:
  explicit OneNode(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool asynchronous() const override { return false; }
  bool packs() const override { return false; }
  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    return inner_->exchange(sends, recvs, stream);
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    return Request(std::make_unique<Boxes>(boxes, *inner_, stream));
  }
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    return inner_->all_reduce(data, count, dtype, op, stream);
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return inner_->all_gather(local, all, counts, dtype, stream);
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return inner_->reduce_scatter(all, local, counts, dtype, stream);
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    return inner_->broadcast(data, count, dtype, root, stream);
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    return inner_->all_to_all(send, send_counts, recv, recv_counts, dtype, stream);
  }
  std::shared_ptr<Communicator> split(int color, int key) override {
    return std::make_shared<OneNode>(inner_->split(color, key));
  }

 private:
  class Boxes final : public Request::State {
   public:
    Boxes(const BoxExchange& boxes, Communicator& comm, Stream stream) : to_(boxes.to), add_(boxes.add) {
      std::vector<Send> sends;
      std::vector<Recv> recvs;
      const auto room = [&](const Box& box) -> std::vector<std::byte>& {
        return *buffers_.emplace_back(std::make_unique<std::vector<std::byte>>(
            static_cast<std::size_t>(box.volume() * size_of(boxes.from.dtype()))));
      };
      for (const auto& [peer, box] : boxes.sends) {
        auto& buffer = room(box);
        pack(boxes.from, box, buffer.data(), {});
        sends.push_back({peer, buffer});
      }
      for (const auto& [peer, box] : boxes.recvs) {
        recvs.push_back({peer, room(box)});
        arriving_.emplace_back(box, buffers_.back()->data());
      }
      request_ = comm.exchange(sends, recvs, stream);
    }
    void wait(Stream stream) override {
      request_.wait(stream);
      for (const auto& [box, data] : arriving_)
        add_ ? unpack_add(data, box, to_, stream) : unpack(data, box, to_, stream);
      arriving_.clear();
    }
    bool progress() override {
      request_.progress();
      return false;
    }

   private:
    Tensor to_;
    bool add_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> buffers_;
    std::vector<std::pair<Box, const std::byte*>> arriving_;
    Request request_;
  };

  std::shared_ptr<Communicator> inner_;
};

inline std::shared_ptr<Communicator> one_node(std::shared_ptr<Communicator> inner) {
  return std::make_shared<OneNode>(std::move(inner));
}

}  // namespace partita::test
