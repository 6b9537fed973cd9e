#include "partita/tensor/exchange.hpp"

#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"

namespace partita {

namespace {

/// The next bytes of a buffer that is handed out front to back.
class Room {
 public:
  Room(const Tensor& like, Index elements) : buffer(Tensor::flat(like, elements, MemoryClass::workspace)) {}
  std::span<std::byte> next(Index elements) {
    const Index size = size_of(buffer.dtype());
    const std::span<std::byte> bytes(buffer.data() + used_ * size, static_cast<std::size_t>(elements * size));
    used_ += elements;
    return bytes;
  }
  Tensor buffer;

 private:
  Index used_ = 0;
};

}  // namespace

Exchange::Exchange(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm, Stream stream)
    : to_(to) {
  start(plan.sends, plan.recvs, from, comm, stream);
  const Timed timed(Profile::Part::exchange);
  for (const auto& local : plan.locals) copy_box(from, to, local.box);
}

Exchange Exchange::adjoint(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm,
                           Stream stream) {
  Exchange back;
  back.to_ = to;
  back.add_ = true;
  back.start(plan.recvs, plan.sends, from, comm, stream);
  const Timed timed(Profile::Part::exchange);
  for (const auto& local : plan.locals) add_box(from, to, local.box);
  return back;
}

// What lies in one piece travels from where it lies to where it belongs; only what is scattered, or is to be added,
// goes through buffers.
void Exchange::start(const std::vector<Transfer>& sends, const std::vector<Transfer>& recvs, const Tensor& from,
                     Communicator& comm, Stream stream) {
  const Timed timed(Profile::Part::exchange);
  require(from.dtype() == to_.dtype(), "an exchange keeps the dtype");
  from_ = from;
  const auto in_place = [](const Tensor& tensor, const Box& box) { return !run_of(tensor, box).empty(); };
  Index packed = 0, unpacked = 0;
  for (const auto& [peer, box] : sends) packed += in_place(from, box) ? 0 : box.volume();
  for (const auto& [peer, box] : recvs) unpacked += !add_ && in_place(to_, box) ? 0 : box.volume();

  Room out_room(from, packed), in_room(from, unpacked);
  std::vector<Send> out;
  for (const auto& [peer, box] : sends) {
    if (in_place(from, box)) {
      out.push_back({peer, run_of(from, box)});
      continue;
    }
    const auto room = out_room.next(box.volume());
    pack(from, box, room.data());
    out.push_back({peer, room});
  }
  std::vector<Recv> in;
  for (const auto& recv : recvs) {
    if (!add_ && in_place(to_, recv.box)) {
      in.push_back({recv.peer, run_of(to_, recv.box)});
      continue;
    }
    in.push_back({recv.peer, in_room.next(recv.box.volume())});
    arrives_.push_back(recv);
  }
  send_buffer_ = out_room.buffer;
  recv_buffer_ = in_room.buffer;
  request_ = comm.exchange(out, in, stream);
}

void Exchange::finish() {
  const Timed timed(Profile::Part::exchange);
  request_.wait();
  for (const std::byte* at = recv_buffer_.data(); const auto& arrived : arrives_) {
    if (add_)
      unpack_add(at, arrived.box, to_);
    else
      unpack(at, arrived.box, to_);
    at += arrived.box.volume() * size_of(to_.dtype());
  }
  arrives_.clear();  // what has arrived is put in place once
}

}  // namespace partita
