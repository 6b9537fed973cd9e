#include "src/comm/device/staged.hpp"

#include "partita/base/error.hpp"
#include "partita/device/memory.hpp"
#include "src/comm/sum_of_counts.hpp"

#include <algorithm>

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
  Stage(Device& its_device, std::size_t its_piece)
      : device(its_device),
        piece(its_piece),
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

  /// The CPU waits for the copies before an event of the stream.
  void settle(const Event& event) {
    device.wait(event);
    under_way_.clear();
  }

  Device& device;
  std::size_t piece;  // bytes of a message that travel at once
  Stream stream;

 private:
  std::shared_ptr<Allocator> allocator_;
  std::vector<Room> under_way_;  // copies to the device read them; those of communications that have ended
};

/// What arrives at the CPU, and where it goes on the device.
struct Arrival {
  Room from;
  std::byte* to;
};

/// Communications between CPUs, in the order in which they started, and what they bring.
class Landing : public Request::State {
 public:
  struct Flight {
    std::vector<Room> sent;
    std::vector<Arrival> arrivals;
    Request request;  // ends before its buffers
  };
  Landing(std::shared_ptr<Stage> stage, std::vector<Flight> flights)
      : stage_(std::move(stage)), flights_(std::move(flights)) {}
  bool progress() override {
    for (Flight& flight : flights_) flight.request.progress();
    return false;  // wait() brings what has arrived to the device
  }
  void wait(Stream stream) override {
    for (Flight& flight : flights_) {
      flight.request.wait();
      for (const Arrival& each : flight.arrivals) stage_->bring(each.from, each.to);
    }
    flights_.clear();
    stage_->device.wait(stream, stage_->device.record(stage_->stream));
  }

 private:
  std::shared_ptr<Stage> stage_;
  std::vector<Flight> flights_;
};

class Staged final : public Communicator {
 public:
  Staged(std::shared_ptr<Stage> stage, std::shared_ptr<Communicator> host)
      : stage_(std::move(stage)), host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  bool asynchronous() const override { return host_->asynchronous(); }

  /// Piece i of all messages is one flight. All copies are enqueued first, and each flight starts when its own are
  /// done. A peer has as many pieces of a message as this rank, but perhaps fewer flights.
  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    stage_->follow(stream);
    std::vector<Landing::Flight> flights;
    std::vector<std::vector<Send>> out;
    std::vector<std::vector<Recv>> in;
    std::vector<Event> fetched;
    for (std::size_t first = 0; flights.empty() || any_beyond(sends, recvs, first); first += stage_->piece) {
      flights.emplace_back();
      out.emplace_back();
      in.emplace_back();
      for (const auto& [peer, data] : sends) {
        const std::span<const std::byte> part = piece(data, first);
        if (part.empty()) continue;
        flights.back().sent.push_back(stage_->fetch(part));
        out.back().push_back({peer, flights.back().sent.back().span()});
      }
      for (const auto& [peer, data] : recvs) {
        const std::span<std::byte> part = piece(data, first);
        if (part.empty()) continue;
        flights.back().arrivals.push_back({stage_->room(part.size()), part.data()});
        in.back().push_back({peer, flights.back().arrivals.back().from.span()});
      }
      fetched.push_back(stage_->device.record(stage_->stream));
    }
    for (std::size_t i = 0; i < flights.size(); ++i) {
      stage_->settle(fetched[i]);
      flights[i].request = host_->exchange(out[i], in[i], {});
    }
    return Request(std::make_unique<Landing>(stage_, std::move(flights)), stream);
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    const Room room = fetched(data, bytes_of(count, dtype), stream);
    return landing(host_->all_reduce(room.data.get(), count, dtype, op, {}), {}, {{room, as_bytes(data)}}, stream);
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    const Room mine = fetched(local, bytes_of(counts[rank()], dtype), stream);
    const Room whole = stage_->room(bytes_of(sum(counts), dtype));
    return landing(host_->all_gather(mine.data.get(), whole.data.get(), counts, dtype, {}), {mine},
                   {{whole, as_bytes(all)}}, stream);
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    const Room whole = fetched(all, bytes_of(sum(counts), dtype), stream);
    const Room mine = stage_->room(bytes_of(counts[rank()], dtype));
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

  /// Returns bytes of the device, in memory of the CPU. Waits for what computes them.
  Room fetched(const void* data, std::size_t bytes, Stream stream) {
    stage_->follow(stream);
    Room room = stage_->fetch({static_cast<const std::byte*>(data), bytes});
    stage_->settle();
    return room;
  }
  Request landing(Request request, std::vector<Room> sent, std::vector<Arrival> arrivals, Stream stream) {
    std::vector<Landing::Flight> one;
    one.push_back({std::move(sent), std::move(arrivals), std::move(request)});
    return Request(std::make_unique<Landing>(stage_, std::move(one)), stream);
  }

  /// The part of a message that one flight takes; empty beyond its end.
  template <class Byte>
  std::span<Byte> piece(std::span<Byte> message, std::size_t first) const {
    const std::span<Byte> rest = message.subspan(std::min(first, message.size()));
    return rest.first(std::min(stage_->piece, rest.size()));
  }
  static bool any_beyond(std::span<const Send> sends, std::span<const Recv> recvs, std::size_t first) {
    const auto beyond = [&](const auto& message) { return message.data.size() > first; };
    return std::any_of(sends.begin(), sends.end(), beyond) || std::any_of(recvs.begin(), recvs.end(), beyond);
  }

  std::shared_ptr<Stage> stage_;
  std::shared_ptr<Communicator> host_;
};

}  // namespace

std::shared_ptr<Communicator> make_staged(Communicator& host, Device& device, Index piece) {
  require(piece > 0, "a message must travel in pieces of one byte or more");
  return std::make_shared<Staged>(std::make_shared<Stage>(device, static_cast<std::size_t>(piece)), borrow(host));
}

}  // namespace partita
