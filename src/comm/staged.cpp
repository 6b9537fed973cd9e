#include "partita/comm/staged.hpp"

#include "partita/base/memory.hpp"

#include <numeric>

namespace partita {

namespace {

/// Memory of the CPU through which bytes pass; empty for no bytes.
struct Room {
  std::shared_ptr<std::byte> data;
  std::size_t bytes = 0;
  std::span<std::byte> span() const { return {data.get(), bytes}; }
};

/// What the communicators of one rank share: its device, and a stream of copies.
class Stage {
 public:
  explicit Stage(Device& its_device)
      : device(its_device),
        stream(its_device.make_stream(Priority::high)),
        allocator_(std::make_shared<Allocator>(its_device.staging())) {}

  /// Lets copies come after what is in another stream now.
  void follow(Stream other) const { device.wait(stream, device.record(other)); }
  Room room(std::size_t bytes) const {
    if (bytes == 0) return {};
    return {Allocator::allocate(allocator_, static_cast<Index>(bytes), MemoryClass::workspace, Fill::none), bytes};
  }
  /// Copies bytes of the device to new memory of the CPU, which holds them after the next settle().
  Room fetch(std::span<const std::byte> from) const {
    Room to = room(from.size());
    if (to.bytes > 0) device.copy(from.data(), to.data.get(), to.bytes, stream);
    return to;
  }
  /// Copies to the device, and keeps the memory until the copy is done.
  void bring(const Room& from, std::byte* to) {
    if (from.bytes == 0) return;
    device.copy(from.data.get(), to, from.bytes, stream);
    under_way_.push_back(from);
  }
  /// The CPU waits for all copies so far.
  void settle() {
    device.finish(stream);
    under_way_.clear();
  }

  Device& device;
  Stream stream;

 private:
  std::shared_ptr<Allocator> allocator_;
  std::vector<Room> under_way_;  // copies to the device read them
};

/// A communication between CPUs, and where its results go on the device.
class Landing : public Request::State {
 public:
  struct Part {
    Room from;
    std::byte* to;
  };
  Landing(std::shared_ptr<Stage> stage, Request request, std::vector<Room> sent, std::vector<Part> parts)
      : stage_(std::move(stage)), sent_(std::move(sent)), parts_(std::move(parts)), request_(std::move(request)) {}
  void progress() override { request_.progress(); }
  void wait(Stream stream) override {
    request_.wait();
    sent_.clear();
    for (const Part& part : parts_) stage_->bring(part.from, part.to);
    parts_.clear();
    stage_->device.wait(stream, stage_->device.record(stage_->stream));
  }

 private:
  std::shared_ptr<Stage> stage_;
  std::vector<Room> sent_;
  std::vector<Part> parts_;
  Request request_;  // ends before its buffers
};

class Staged final : public Communicator {
 public:
  Staged(std::shared_ptr<Stage> stage, std::shared_ptr<Communicator> host)
      : stage_(std::move(stage)), host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  bool asynchronous() const override { return host_->asynchronous(); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    stage_->follow(stream);
    std::vector<Room> sent;
    for (const Send& send : sends) sent.push_back(stage_->fetch(send.data));
    stage_->settle();
    std::vector<Send> out;
    std::vector<Recv> in;
    std::vector<Landing::Part> parts;
    for (std::size_t i = 0; i < sends.size(); ++i) out.push_back({sends[i].peer, sent[i].span()});
    for (const Recv& recv : recvs) {
      parts.push_back({stage_->room(recv.data.size()), recv.data.data()});
      in.push_back({recv.peer, parts.back().from.span()});
    }
    return landing(host_->exchange(out, in, {}), std::move(sent), std::move(parts), stream);
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    const Room room = fetched(data, bytes_of(count, dtype), stream);
    return landing(host_->all_reduce(room.data.get(), count, dtype, op, {}), {}, {{room, as_bytes(data)}}, stream);
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    const Room mine = fetched(local, bytes_of(counts[static_cast<std::size_t>(rank())], dtype), stream);
    const Room whole = stage_->room(bytes_of(sum(counts), dtype));
    return landing(host_->all_gather(mine.data.get(), whole.data.get(), counts, dtype, {}), {mine},
                   {{whole, as_bytes(all)}}, stream);
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    const Room whole = fetched(all, bytes_of(sum(counts), dtype), stream);
    const Room mine = stage_->room(bytes_of(counts[static_cast<std::size_t>(rank())], dtype));
    return landing(host_->reduce_scatter(whole.data.get(), mine.data.get(), counts, dtype, {}), {whole},
                   {{mine, as_bytes(local)}}, stream);
  }

  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    const Room room = fetched(data, bytes_of(count, dtype), stream);
    return landing(host_->broadcast(room.data.get(), count, dtype, root, {}), {}, {{room, as_bytes(data)}}, stream);
  }

  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    const Room out = fetched(send, bytes_of(sum(send_counts), dtype), stream);
    const Room in = stage_->room(bytes_of(sum(recv_counts), dtype));
    return landing(host_->all_to_all(out.data.get(), send_counts, in.data.get(), recv_counts, dtype, {}), {out},
                   {{in, as_bytes(recv)}}, stream);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return std::make_shared<Staged>(stage_, host_->split(color, key));
  }

 private:
  static std::byte* as_bytes(void* data) { return static_cast<std::byte*>(data); }
  static std::size_t bytes_of(Index count, DType dtype) { return static_cast<std::size_t>(count * size_of(dtype)); }
  static Index sum(std::span<const Index> counts) { return std::accumulate(counts.begin(), counts.end(), Index{0}); }

  /// Returns bytes of the device, in memory of the CPU. Waits for what computes them.
  Room fetched(const void* data, std::size_t bytes, Stream stream) {
    stage_->follow(stream);
    Room room = stage_->fetch({static_cast<const std::byte*>(data), bytes});
    stage_->settle();
    return room;
  }
  Request landing(Request request, std::vector<Room> sent, std::vector<Landing::Part> parts, Stream stream) {
    return Request(std::make_unique<Landing>(stage_, std::move(request), std::move(sent), std::move(parts)), stream);
  }

  std::shared_ptr<Stage> stage_;
  std::shared_ptr<Communicator> host_;
};

}  // namespace

std::shared_ptr<Communicator> make_staged(Communicator& host, Device& device) {
  return std::make_shared<Staged>(std::make_shared<Stage>(device), borrow(host));
}

}  // namespace partita
