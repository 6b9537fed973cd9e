#include "src/comm/device/device_threads.hpp"

#include "partita/device/memory.hpp"
#include "src/comm/device/rendezvous.hpp"
#include "src/comm/textbook.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <numeric>

namespace partita {

namespace {

/// What the communicators of one rank share: its device, the stream of its messages, and the place where all ranks
/// meet. The rank leaves that place with its last communicator.
class DeviceRank {
 public:
  DeviceRank(std::shared_ptr<Rendezvous> its_rendezvous, Device& its_device, int its_rank, Index room_bytes)
      : rendezvous(std::move(its_rendezvous)),
        device(its_device),
        stream(its_device.make_stream(Priority::high)),
        rank(its_rank),
        room(DType::f64, "F", Box(Shape{{'F', room_bytes / size_of(DType::f64)}}),
             std::make_shared<Allocator>(its_device, 0, stream), MemoryClass::shared, Fill::none),
        exceptions_(std::uncaught_exceptions()) {}
  ~DeviceRank() { rendezvous->leave(rank, std::uncaught_exceptions() > exceptions_); }
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  std::shared_ptr<Rendezvous> rendezvous;
  Device& device;
  Stream stream;
  int rank;     // in the world
  Tensor room;  // for values that arrive to be added

 private:
  int exceptions_;
};

/// The messages of an exchange that has started.
class PendingMessages : public Request::State {
 public:
  struct Message {
    MessageKey key;
    int peer;  // in the world
  };

  explicit PendingMessages(std::shared_ptr<DeviceRank> me) : me_(std::move(me)) {}
  /// While an exception unwinds, nobody waits, and the buffers are about to go.
  ~PendingMessages() override {
    if (waited_ == messages_.size()) return;
    std::vector<Event> under_way;
    for (; waited_ < messages_.size(); ++waited_)
      under_way.push_back(me_->rendezvous->withdraw(messages_[waited_].key));
    try {
      for (const Event& copied : under_way) me_->device.wait(me_->stream, copied);
      me_->device.finish(me_->stream);
    } catch (const std::exception&) {
      // The rank has failed already, and its exception is on the way.
    }
  }
  PendingMessages(const PendingMessages&) = delete;
  PendingMessages& operator=(const PendingMessages&) = delete;
  void add(Message message) { messages_.push_back(std::move(message)); }
  bool empty() const { return messages_.empty(); }
  void wait(Stream stream) override {
    while (waited_ < messages_.size()) {
      const Event copied = me_->rendezvous->done(messages_[waited_].key, messages_[waited_].peer);
      ++waited_;
      me_->device.wait(stream, copied);
    }
  }

 private:
  std::shared_ptr<DeviceRank> me_;
  std::vector<Message> messages_;
  std::size_t waited_ = 0;
};

/// A collective whose last copy and sum are in the stream of the rank's messages.
class InStream final : public Request::State {
 public:
  explicit InStream(std::shared_ptr<DeviceRank> me) : me_(std::move(me)), done_(me_->device.record(me_->stream)) {}
  void wait(Stream stream) override { me_->device.wait(stream, done_); }

 private:
  std::shared_ptr<DeviceRank> me_;
  Event done_;
};

class DeviceThreads : public Communicator {
 public:
  /// `members` are the world ranks of the communicator. `id` differs from the id of every other communicator that has
  /// two of these members.
  DeviceThreads(std::shared_ptr<DeviceRank> me, std::shared_ptr<Communicator> threads, std::vector<int> id,
                std::vector<int> members)
      : me_(std::move(me)),
        threads_(std::move(threads)),
        id_(std::move(id)),
        members_(std::move(members)),
        sent_(members_.size()),
        received_(members_.size()) {}

  int rank() const override { return threads_->rank(); }
  int size() const override { return threads_->size(); }
  bool captures() const override { return size() == 1; }
  Index shared_bytes() const override { return id_.empty() ? me_->room.bytes() : 0; }  // the splits share it

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    const Event ready = me_->device.record(stream);
    auto messages = std::make_unique<PendingMessages>(me_);
    for (const auto& [peer, data] : sends)
      if (!data.empty()) messages->add(start(peer, true, {const_cast<std::byte*>(data.data()), data.size(), ready}));
    for (const auto& [peer, data] : recvs)
      if (!data.empty()) messages->add(start(peer, false, {data.data(), data.size(), ready}));
    if (messages->empty()) return {};
    return Request(std::move(messages), stream);
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    me_->device.wait(me_->stream, me_->device.record(stream));
    const auto all = buffer_of(data, count, dtype);
    if (size() == 1) return enqueued(stream);
    constexpr std::size_t long_sum = std::size_t{256} << 10;  // bytes: longer ones take more time than the messages
    if (op == ReduceOp::sum && size() > 2 && all.size() >= long_sum) {
      sum_in_blocks(data, count, dtype);
      return enqueued(stream);
    }
    const std::size_t most = room_for(1);
    for (std::size_t first = 0; first < all.size(); first += most)
      reduce_by_doubling(piece(all, first, most), dtype, op);
    return enqueued(stream);
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    me_->device.wait(me_->stream, me_->device.record(stream));
    const auto out = blocks_of(all, counts, dtype);
    const auto mine = out[rank()];
    copy(local, mine.data(), mine.size());
    swap_all([&](int) { return mine; }, [&](int from) { return out[from]; });
    return enqueued(stream);
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    me_->device.wait(me_->stream, me_->device.record(stream));
    const auto from = blocks_of(all, counts, dtype);
    const auto to = buffer_of(local, counts[rank()], dtype);
    const auto longest = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()) * size_of(dtype));
    if (size() == 1) {
      copy(all, local, to.size());
      return enqueued(stream);
    }
    const std::size_t most = room_for(size());
    for (std::size_t first = 0; first < longest; first += most)
      sum_parts([&](int of) { return piece(from[of], first, most); }, piece(to, first, most), dtype);
    return enqueued(stream);
  }

  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    me_->device.wait(me_->stream, me_->device.record(stream));
    const std::span<std::byte> bytes(static_cast<std::byte*>(data), static_cast<std::size_t>(count * size_of(dtype)));
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    for (int to = 0; to < size(); ++to)
      if (rank() == root && to != root) sends.push_back({to, bytes});
    if (rank() != root) recvs.push_back({root, bytes});
    exchange(sends, recvs, me_->stream).wait(me_->stream);
    return enqueued(stream);
  }

  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    me_->device.wait(me_->stream, me_->device.record(stream));
    const auto out = blocks_of(send, send_counts, dtype);
    const auto in = blocks_of(recv, recv_counts, dtype);
    copy(out[rank()].data(), in[rank()].data(), out[rank()].size());
    swap_all([&](int to) { return out[to]; }, [&](int from) { return in[from]; });
    return enqueued(stream);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    auto part = threads_->split(color, key);
    const std::vector<double> members = gather_numbers(*part, me_->rank);
    auto id = id_;
    id.insert(id.end(), {splits_++, color});
    return std::make_shared<DeviceThreads>(me_, std::move(part), std::move(id),
                                           std::vector<int>(members.begin(), members.end()));
  }

 private:
  Request enqueued(Stream stream) { return Request(std::make_unique<InStream>(me_), stream); }

  /// Starts this rank's side of a message. If the other rank has started its own, starts the copy.
  PendingMessages::Message start(int peer, bool sends, const Endpoint& mine) {
    require(peer >= 0 && peer < size() && peer != rank(), "a message must go to another rank of the communicator");
    const auto at = static_cast<std::size_t>(peer);
    const int other_rank = members_[at];
    MessageKey key{id_, me_->rank, other_rank, 0};
    if (!sends) std::swap(key.from, key.to);
    key.number = sends ? sent_[at]++ : received_[at]++;
    Endpoint other;
    if (me_->rendezvous->meet(key, sends, mine, other)) {
      const Endpoint &from = sends ? mine : other, &to = sends ? other : mine;
      try {
        me_->rendezvous->tell(key, copy_when_ready(from, to));
      } catch (...) {
        me_->rendezvous->cancel(key);
        throw;
      }
    }
    return {key, other_rank};
  }

  Event copy_when_ready(const Endpoint& from, const Endpoint& to) {
    me_->device.wait(me_->stream, from.ready);
    me_->device.wait(me_->stream, to.ready);
    me_->device.copy(from.data, to.data, from.bytes, me_->stream);
    return me_->device.record(me_->stream);
  }

  /// Exchanges a block with every other rank.
  template <class Out, class In>
  void swap_all(const Out& out, const In& in) {
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends.push_back({peer, out(peer)});
      recvs.push_back({peer, in(peer)});
    }
    exchange(sends, recvs, me_->stream).wait(me_->stream);
  }

  void copy(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0 && from != to) me_->device.copy(from, to, bytes, me_->stream);
  }

  /// to += from, or the larger of both
  void combine(const void* from, std::span<std::byte> to, DType dtype, ReduceOp op) {
    if (to.empty()) return;
    BoxMove move{.from = from, .to = to.data(), .from_type = dtype, .to_type = dtype};
    move.combine = op == ReduceOp::sum ? Combine::add : Combine::largest;
    move.push(static_cast<Index>(to.size()) / size_of(dtype), 1, 1);
    me_->device.move({&move, 1}, me_->stream);
  }

  /// The bytes that each of `parts` arriving parts may have.
  std::size_t room_for(int parts) const {
    constexpr std::size_t widest = 8;  // bytes of an element
    const auto bytes = static_cast<std::size_t>(me_->room.bytes()) / static_cast<std::size_t>(parts) / widest * widest;
    require(bytes > 0, "the memory for arriving parts must hold one element of each rank");
    return bytes;
  }
  template <class Byte>
  static std::span<Byte> piece(std::span<Byte> of, std::size_t first, std::size_t most) {
    return of.subspan(std::min(first, of.size())).first(std::min(most, of.size() - std::min(first, of.size())));
  }

  /// to = the sum of this rank's parts of all ranks, in rank order. `out` are this rank's parts for the others.
  template <class Out>
  void sum_parts(const Out& out, std::span<std::byte> to, DType dtype) {
    const auto parts = [&](int of) {
      return std::span(me_->room.data() + static_cast<std::size_t>(of) * room_for(size()), to.size());
    };
    copy(out(rank()).data(), parts(rank()).data(), to.size());
    swap_all(out, parts);
    for (int r = 1; r < size(); ++r) combine(parts(r).data(), parts(0), dtype, ReduceOp::sum);
    copy(parts(0).data(), to.data(), to.size());
  }

  /// A reduce-scatter and an all-gather: each rank sends 2 (p - 1) / p of the bytes, where doubling sends them log2(p)
  /// times. A rank's own block is read by nobody else, so the sum may take its place.
  void sum_in_blocks(void* data, Index count, DType dtype) {
    std::vector<Index> counts(members_.size(), count / size());
    for (Index longer = 0; longer < count % size(); ++longer) ++counts[longer];
    const auto blocks = blocks_of(data, counts, dtype);
    const std::size_t most = room_for(size());
    for (std::size_t first = 0; first < blocks[0].size(); first += most)  // the first block is the longest
      sum_parts([&](int of) { return piece(blocks[of], first, most); }, piece(blocks[rank()], first, most), dtype);
    swap_all([&](int) { return blocks[rank()]; }, [&](int from) { return blocks[from]; });
  }

  /// As textbook::all_reduce, so that short sums have the same bits.
  void reduce_by_doubling(std::span<std::byte> mine, DType dtype, ReduceOp op) {
    const auto swap = [&](int peer, std::span<const std::byte> out, std::span<std::byte> in) {
      const Send send{peer, out};
      const Recv recv{peer, in};
      exchange({&send, 1}, {&recv, 1}, me_->stream).wait(me_->stream);
    };
    textbook::reduce_by_doubling(
        rank(), size(), mine, {me_->room.data(), mine.size()}, swap,
        [&](std::span<std::byte> to, std::span<const std::byte> from) { combine(from.data(), to, dtype, op); });
  }

  std::shared_ptr<DeviceRank> me_;
  std::shared_ptr<Communicator> threads_;  // the same ranks, in the memory of the CPU
  std::vector<int> id_;
  std::vector<int> members_;
  std::vector<Index> sent_, received_;  // number of messages so far, by peer
  int splits_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> make_device_threads(Communicator& threads, Device& device,
                                                  std::chrono::milliseconds limit, Index room) {
  // The first rank makes the rendezvous; the others copy its pointer. It keeps its own until all have one.
  auto rendezvous = threads.rank() == 0 ? std::make_shared<Rendezvous>(limit) : nullptr;
  auto* address = &rendezvous;
  std::array<std::int32_t, sizeof(address) / sizeof(std::int32_t)> words{};
  if (threads.rank() == 0) words = std::bit_cast<decltype(words)>(address);
  threads.broadcast(words.data(), words.size(), DType::i32, 0, {}).wait();
  if (threads.rank() != 0) rendezvous = *std::bit_cast<decltype(address)>(words);
  const auto barrier = [&threads] {
    std::int32_t all = 1;
    threads.all_reduce(&all, 1, DType::i32, ReduceOp::sum, {}).wait();
  };
  barrier();
  if (threads.size() == 1) room = 0;
  auto me = std::make_shared<DeviceRank>(std::move(rendezvous), device, threads.rank(), room);
  barrier();  // a rank whose device fails before it is there cannot leave: this makes the others fail
  std::vector<int> everyone(static_cast<std::size_t>(threads.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_shared<DeviceThreads>(std::move(me), borrow(threads), std::vector<int>{}, std::move(everyone));
}

}  // namespace partita
