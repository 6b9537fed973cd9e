#include "partita/comm/communicator.hpp"
#include "src/device/profile.hpp"

namespace partita {

namespace {

/// A buffer that is handed out piece by piece, front to back.
class PackBuffer {
 public:
  PackBuffer(const Tensor& like, Index elements) : buffer(Tensor::flat(like, elements, MemoryClass::workspace)) {}
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

/// An exchange of boxes as messages. A box that is contiguous in memory is sent and received in place. Only boxes that
/// are not contiguous, and received boxes that are added, go through buffers.
class PackedExchange : public Request::State {
 public:
  PackedExchange(const BoxExchange& boxes, Communicator& comm, Stream stream)
      : from_(boxes.from), to_(boxes.to), add_(boxes.add) {
    Index packed = 0, unpacked = 0;
    for (const auto& [peer, box] : boxes.sends) packed += in_place(from_, box) ? 0 : box.volume();
    for (const auto& [peer, box] : boxes.recvs) unpacked += arrives_in_place(box) ? 0 : box.volume();
    PackBuffer send_space(from_, packed), recv_space(from_, unpacked);
    std::vector<Send> out;
    for (const auto& [peer, box] : boxes.sends) {
      if (in_place(from_, box)) {
        out.push_back({peer, run_of(from_, box)});
        continue;
      }
      const auto space = send_space.next(box.volume());
      pack(from_, box, space.data(), stream);
      out.push_back({peer, space});
    }
    std::vector<Recv> in;
    for (const auto& recv : boxes.recvs) {
      if (arrives_in_place(recv.box)) {
        in.push_back({recv.peer, run_of(to_, recv.box)});
        continue;
      }
      in.push_back({recv.peer, recv_space.next(recv.box.volume())});
      arrives_.push_back(recv.box);
    }
    send_buffer_ = send_space.buffer;
    recv_buffer_ = recv_space.buffer;
    request_ = comm.exchange(out, in, stream);
  }

  void wait(Stream stream) override {
    request_.wait(stream);
    const Timed timed(Profile::Part::exchange);
    for (const std::byte* at = recv_buffer_.data(); const auto& box : arrives_) {
      add_ ? unpack_add(at, box, to_, stream) : unpack(at, box, to_, stream);
      at += box.volume() * size_of(to_.dtype());
    }
  }
  bool progress() override {
    request_.progress();
    return false;  // what has arrived is unpacked by wait()
  }

 private:
  static bool in_place(const Tensor& tensor, const Box& box) { return !run_of(tensor, box).empty(); }
  bool arrives_in_place(const Box& box) const { return !add_ && in_place(to_, box); }

  Tensor from_, to_, send_buffer_, recv_buffer_;
  bool add_;
  std::vector<Box> arrives_;  // the boxes that go through recv_buffer_, in order
  Request request_;
};

}  // namespace

Request Communicator::exchange_boxes(const BoxExchange& boxes, Stream stream) {
  return Request(std::make_unique<PackedExchange>(boxes, *this, stream), stream);
}

}  // namespace partita
