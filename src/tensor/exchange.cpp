#include "partita/tensor/exchange.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

/// Room for all boxes, one after the other.
Tensor buffer_for(const std::vector<Transfer>& transfers, const Tensor& like) {
  Index elements = 0;
  for (const auto& transfer : transfers) elements += transfer.box.volume();
  return Tensor::flat(like, elements, MemoryClass::workspace);
}

}  // namespace

Exchange::Exchange(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm, Stream stream)
    : to_(to) {
  start(plan.sends, plan.recvs, from, comm, stream);
  for (const auto& local : plan.locals) copy_box(from, to, local.box);
}

Exchange Exchange::adjoint(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm,
                           Stream stream) {
  Exchange back;
  back.to_ = to;
  back.add_ = true;
  back.start(plan.recvs, plan.sends, from, comm, stream);
  for (const auto& local : plan.locals) add_box(from, to, local.box);
  return back;
}

void Exchange::start(const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs, const Tensor& from,
                     Communicator& comm, Stream stream) {
  require(from.dtype() == to_.dtype(), "an exchange keeps the dtype");
  const Index size = size_of(from.dtype());
  recvs_ = recvs;
  send_buffer_ = buffer_for(sends, from);
  recv_buffer_ = buffer_for(recvs, from);

  std::vector<Send> out;
  for (auto* at = send_buffer_.data(); const auto& [peer, box] : sends) {
    pack(from, box, at);
    out.push_back({peer, {at, static_cast<std::size_t>(box.volume() * size)}});
    at += box.volume() * size;
  }
  std::vector<Recv> in;
  for (auto* at = recv_buffer_.data(); const auto& [peer, box] : recvs) {
    in.push_back({peer, {at, static_cast<std::size_t>(box.volume() * size)}});
    at += box.volume() * size;
  }
  request_ = comm.exchange(out, in, stream);
}

void Exchange::finish() {
  request_.wait();
  for (const std::byte* at = recv_buffer_.data(); const auto& recv : recvs_) {
    if (add_)
      unpack_add(at, recv.box, to_);
    else
      unpack(at, recv.box, to_);
    at += recv.box.volume() * size_of(to_.dtype());
  }
  recvs_.clear();  // what has arrived is put in place once
}

}  // namespace partita
