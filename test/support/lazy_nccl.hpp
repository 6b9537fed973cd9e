#pragma once

#include "src/comm/device/nccl_communicator.hpp"
#include "test/support/accesses.hpp"
#include "test/support/lazy_device.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

namespace partita::test {

/// What the ranks of a job share, so that their messages find each other.
class LazyWire {
 public:
  /// What one rank brings to an operation, and where it gets its result.
  struct Party {
    const void* from = nullptr;
    void* to = nullptr;
  };
  using Act = std::function<void(const std::vector<Party>& parties)>;
  using Key = std::tuple<int, int, int, Index>;  // the communicator, two ranks or -1, and a number

  int next_id() {
    const std::scoped_lock lock(mutex_);
    return ++ids_;
  }
  /// A rank's place in a part of a communicator.
  struct Part {
    int id = 0, rank = 0, size = 0;
  };
  /// Splits a communicator for the `number`-th time. Returns when all its ranks have called it.
  Part split(int comm, int number, int size, int rank, int color, int key) {
    std::unique_lock lock(mutex_);
    auto& open = splits_[{comm, number}];
    if (!open) open = std::make_shared<Split>();
    const auto split = open;
    split->members[color].insert({key, rank});
    if (++split->joined == size) {
      for (const auto& [each, members] : split->members) split->ids[each] = ++ids_;
      joined_.notify_all();
    }
    joined_.wait(lock, [&] { return split->joined == size; });
    const auto& members = split->members[color];
    const auto before = std::distance(members.begin(), members.find({key, rank}));
    return {split->ids[color], static_cast<int>(before), static_cast<int>(members.size())};
  }
  /// Joins an operation of `size` ranks, of which this is number `place`. The last one says what they do.
  std::shared_ptr<LazyEngine::Meeting> join(const Key& key, int size, int place, Party party, Act act) {
    const std::scoped_lock lock(mutex_);
    auto& open = open_[key];
    if (!open) {
      open = std::make_shared<Joint>();
      open->missing = size;
      open->parties.resize(static_cast<std::size_t>(size));
    }
    const auto joint = open;
    joint->parties[place] = party;
    joint->what = std::move(act);
    if (++joint->joined == size) open_.erase(key);
    return joint;
  }

 private:
  struct Joint final : LazyEngine::Meeting {
    void act() override { what(parties); }
    std::vector<Party> parties;
    Act what;
    int joined = 0;
  };
  struct Split {
    std::map<int, std::set<std::pair<int, int>>> members;  // by color: keys and ranks
    std::map<int, int> ids;
    int joined = 0;
  };
  std::mutex mutex_;
  std::condition_variable joined_;
  std::map<std::pair<int, int>, std::shared_ptr<Split>> splits_;  // by communicator and number
  int ids_ = 0;
  std::map<Key, std::shared_ptr<Joint>> open_;
};

/// NCCL's calls on one rank, on a lazy device. As with NCCL, messages start when their group ends, no call but a
/// split waits for another rank, operations run when all their ranks have reached them, and they can be captured.
class LazyNccl final : public NcclLibrary {
 public:
  LazyNccl(LazyDevice& device, std::shared_ptr<LazyWire> wire) : device_(device), wire_(std::move(wire)) {}

  Id make_id() override { return {wire_->next_id()}; }
  Comm start(const Id& id, Communicator& host) override {
    return &comms_.emplace_back(Connected{id[0], host.rank(), host.size()});
  }
  Comm split(Comm comm, int color, int key) override {
    Connected& whole = of(comm);
    const auto [id, rank, size] = wire_->split(whole.id, whole.splits++, whole.size, whole.rank, color, key);
    return &comms_.emplace_back(Connected{id, rank, size});
  }
  std::string error(Comm) override { return error_; }
  void end(Comm) override { ++ended_; }
  void abort(Comm) override { ++aborted_; }
  /// How many communicators have ended, and how many were aborted.
  int ended() const { return ended_; }
  int aborted() const { return aborted_; }
  /// From now on, a failure of another rank is known.
  void fail_elsewhere() { error_ = "remote process exited or there was a network error"; }

  void group_start() override { EXPECT_FALSE(std::exchange(grouping_, true)) << "groups must not overlap"; }
  void group_end() override {
    EXPECT_TRUE(std::exchange(grouping_, false));
    for (Connected& comm : comms_)
      if (auto messages = std::exchange(comm.messages, {}); !messages.empty())
        device_.enqueue_meeting("messages", comm.stream, std::exchange(comm.accesses, {}), [=, this, &comm] {
          LazyEngine::Meetings all;
          for (const Message& message : messages) all.push_back(join(comm, message));
          return all;
        });
  }
  void send(const void* from, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    of(comm).accesses.push_back(range(from, bytes(count, dtype), false));
    add(of(comm), {of(comm).rank, peer, {from, nullptr}, bytes(count, dtype)}, stream);
  }
  void recv(void* to, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    of(comm).accesses.push_back(range(to, bytes(count, dtype), true));
    add(of(comm), {peer, of(comm).rank, {nullptr, to}, bytes(count, dtype)}, stream);
  }
  void all_reduce(void* data, Index count, DType dtype, ReduceOp op, Comm comm, Stream stream) override {
    together("all_reduce", comm, stream, {range(data, bytes(count, dtype), true)}, {data, data},
             [=](const std::vector<Party>& parties) {
               const auto sum =
                   combined(parties, 0, count, dtype, op == ReduceOp::sum ? Combine::add : Combine::largest);
               for (const Party& party : parties) copy(sum.data(), party.to, sum.size());
             });
  }
  void all_gather(const void* local, void* all, Index count, DType dtype, Comm comm, Stream stream) override {
    const auto block = bytes(count, dtype), whole = block * static_cast<std::size_t>(of(comm).size);
    together("all_gather", comm, stream, {range(local, block, false), range(all, whole, true)}, {local, all},
             [=](const std::vector<Party>& parties) {
               for (const Party& party : parties)
                 for (std::size_t r = 0; r < parties.size(); ++r)
                   copy(parties[r].from, static_cast<std::byte*>(party.to) + r * block, block);
             });
  }
  void reduce_scatter(const void* all, void* local, Index count, DType dtype, Comm comm, Stream stream) override {
    const auto block = bytes(count, dtype), whole = block * static_cast<std::size_t>(of(comm).size);
    together("reduce_scatter", comm, stream, {range(all, whole, false), range(local, block, true)}, {all, local},
             [=](const std::vector<Party>& parties) {
               for (std::size_t r = 0; r < parties.size(); ++r) {
                 const auto sum = combined(parties, r * block, count, dtype, Combine::add);
                 copy(sum.data(), parties[r].to, sum.size());
               }
             });
  }
  void reduce(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    std::vector<Access> accesses{range(from, bytes(count, dtype), false)};
    if (of(comm).rank == root) accesses.push_back(range(to, bytes(count, dtype), true));
    together("reduce", comm, stream, std::move(accesses), {from, to}, [=](const std::vector<Party>& parties) {
      const auto sum = combined(parties, 0, count, dtype, Combine::add);
      copy(sum.data(), parties[root].to, sum.size());
    });
  }
  void broadcast(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    std::vector<Access> accesses{range(to, bytes(count, dtype), true)};
    if (of(comm).rank == root && from != to) accesses.push_back(range(from, bytes(count, dtype), false));
    together("broadcast", comm, stream, std::move(accesses), {from, to}, [=](const std::vector<Party>& parties) {
      const void* source = parties[root].from;
      for (const Party& party : parties)
        if (party.to != source) copy(source, party.to, bytes(count, dtype));
    });
  }

 private:
  using Party = LazyWire::Party;
  struct Message {
    int from = 0, to = 0;
    Party party;
    std::size_t bytes = 0;
  };
  struct Connected {
    int id = 0, rank = 0, size = 0;
    int splits = 0;                                  // so far
    Index collectives = 0;                           // so far
    std::map<std::pair<int, int>, Index> numbers{};  // of messages so far, by both ranks
    std::vector<Message> messages{};                 // of the present group
    std::vector<Access> accesses{};
    Stream stream{};
  };
  static Connected& of(Comm comm) { return *static_cast<Connected*>(comm); }
  static std::size_t bytes(Index count, DType dtype) { return static_cast<std::size_t>(count * size_of(dtype)); }
  static void copy(const void* from, void* to, std::size_t bytes) { host_device().copy(from, to, bytes, {}); }

  /// The sum of what the ranks bring, in their order, from an offset in bytes on; or the largest.
  static std::vector<std::byte> combined(const std::vector<Party>& parties, std::size_t offset, Index count,
                                         DType dtype, Combine how) {
    std::vector<std::byte> result(bytes(count, dtype));
    for (std::size_t r = 0; r < parties.size(); ++r) {
      BoxMove move{.from = static_cast<const std::byte*>(parties[r].from) + offset,
                   .to = result.data(),
                   .from_type = dtype,
                   .to_type = dtype,
                   .combine = r == 0 ? Combine::replace : how};
      move.push(count, 1, 1);
      host_device().move({&move, 1}, {});
    }
    return result;
  }

  static void add(Connected& comm, Message message, Stream stream) {
    comm.stream = stream;
    comm.messages.push_back(message);
  }
  std::shared_ptr<LazyEngine::Meeting> join(Connected& comm, const Message& message) {
    const Index number = comm.numbers[{message.from, message.to}]++;
    return wire_->join(
        {comm.id, message.from, message.to, number}, 2, comm.rank == message.from ? 0 : 1, message.party,
        [size = message.bytes](const std::vector<Party>& parties) { copy(parties[0].from, parties[1].to, size); });
  }
  /// An operation of all ranks of a communicator.
  void together(const char* what, Comm comm, Stream stream, std::vector<Access> accesses, Party party,
                LazyWire::Act act) {
    device_.enqueue_meeting(what, stream, std::move(accesses), [=, this, &mine = of(comm)] {
      return LazyEngine::Meetings{wire_->join({mine.id, -1, -1, mine.collectives++}, mine.size, mine.rank, party, act)};
    });
  }

  LazyDevice& device_;
  std::shared_ptr<LazyWire> wire_;
  std::string error_;
  int ended_ = 0, aborted_ = 0;
  bool grouping_ = false;
  std::list<Connected> comms_;
};

}  // namespace partita::test
