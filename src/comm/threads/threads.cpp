#include "src/comm/threads/threads.hpp"

#include "partita/base/error.hpp"
#include "src/comm/job/peer_failed.hpp"
#include "src/comm/textbook.hpp"
#include "src/comm/threads/meanwhile.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace partita {

namespace {

using Message = std::vector<std::byte>;

/// Identifies one message to a rank. Sender and receiver number the messages of their pair in the order in which they
/// list them, so that a rank may wait for its requests in any order.
struct Address {
  std::vector<int> communicator;
  int source = 0;
  Index number = 0;
  auto operator<=>(const Address&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The messages that were sent to one rank and not received yet.
class Mailbox {
 public:
  void put(Address address, Message message) {
    const std::scoped_lock lock(mutex_);
    messages_.emplace(std::move(address), std::move(message));
    changed_.notify_one();
  }

  /// Waits for the message and removes it. `sender` is the world rank that sends it. Throws CommunicationError if the
  /// message cannot arrive any more.
  Message take(const Address& address, int sender) {
    std::unique_lock lock(mutex_);
    wait(lock, sender, [&] { return messages_.contains(address) || !failure_.empty() || finished_.contains(sender); });
    const auto found = messages_.find(address);
    if (found == messages_.end()) {
      if (!failure_.empty()) throw PeerFailed(failure_);
      throw CommunicationError(fmt::format("a message from rank {} cannot arrive: that rank has finished", sender));
    }
    auto message = std::move(found->second);
    messages_.erase(found);
    return message;
  }

  /// Records that world rank `sender` sends nothing more.
  void finish(int sender) {
    const std::scoped_lock lock(mutex_);
    finished_.insert(sender);
    changed_.notify_one();
  }

  /// Makes `take` fail with the message `why` for messages that have not arrived.
  void poison(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    failure_ = why;
    changed_.notify_one();
  }

 private:
  /// Waits until `over()`. The rank does meanwhile what it has asked for.
  template <class Over>
  void wait(std::unique_lock<std::mutex>& lock, int sender, Over&& over) {
    Meanwhile* const meanwhile = Meanwhile::of_thread();
    if (meanwhile == nullptr) return changed_.wait(lock, over);
    meanwhile->begin();
    for (std::chrono::microseconds pause(0); !changed_.wait_for(lock, pause, over); lock.lock()) {
      lock.unlock();
      pause = meanwhile->look(sender);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, Message> messages_;
  std::set<int> finished_;
  std::string failure_;
};

/// One mailbox per rank of the world.
using Mailboxes = std::vector<Mailbox>;

/// The receives of one exchange. Sends are buffered and need no waiting.
class Receives : public Request::State {
 public:
  struct Pending {
    Address address;
    int sender;
    std::span<std::byte> data;
  };

  Receives(std::shared_ptr<Mailboxes> world, int rank, std::vector<Pending> pending)
      : world_(std::move(world)), rank_(rank), pending_(std::move(pending)) {}

  void wait(Stream) override {
    for (const auto& [address, sender, data] : pending_) {
      const auto message = (*world_)[rank_].take(address, sender);
      if (message.size() != data.size())
        throw CommunicationError(fmt::format("rank {} expected {} bytes from rank {}, but received {}", rank_,
                                             data.size(), sender, message.size()));
      std::memcpy(data.data(), message.data(), message.size());
    }
  }

 private:
  std::shared_ptr<Mailboxes> world_;
  int rank_;  // in the world
  std::vector<Pending> pending_;
};

class ThreadCommunicator : public Communicator {
 public:
  /// `members` are the world ranks of the communicator. `id` differs from the id of every other communicator that has
  /// two of these members.
  ThreadCommunicator(std::shared_ptr<Mailboxes> world, std::vector<int> id, std::vector<int> members, int rank)
      : world_(std::move(world)),
        id_(std::move(id)),
        members_(std::move(members)),
        rank_(rank),
        sent_(members_.size()),
        received_(members_.size()) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream) override {
    for (const auto& send : sends) {
      const int to = member(send.peer);
      if (send.data.empty()) continue;
      (*world_)[to].put({id_, rank_, sent_[send.peer]++}, Message(send.data.begin(), send.data.end()));
    }
    std::vector<Receives::Pending> pending;
    for (const auto& recv : recvs) {
      const int from = member(recv.peer);
      if (recv.data.empty()) continue;
      pending.push_back({{id_, recv.peer, received_[recv.peer]++}, from, recv.data});
    }
    if (pending.empty()) return {};
    return Request(std::make_unique<Receives>(world_, members_[rank_], std::move(pending)));
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream) override {
    textbook::all_reduce(*this, data, count, dtype, op);
    return {};
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream) override {
    textbook::all_gather(*this, local, all, counts, dtype);
    return {};
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype, Stream) override {
    textbook::reduce_scatter(*this, all, local, counts, dtype);
    return {};
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream) override {
    textbook::broadcast(*this, data, count, dtype, root);
    return {};
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream) override {
    textbook::all_to_all(*this, send, send_counts, recv, recv_counts, dtype);
    return {};
  }

  std::shared_ptr<Communicator> split(int color, int key) override;

 private:
  /// Returns the world rank of a peer.
  int member(int peer) const {
    require(peer >= 0 && peer < size() && peer != rank_, "a message must go to another rank of the communicator");
    return members_[peer];
  }

  std::shared_ptr<Mailboxes> world_;
  std::vector<int> id_;
  std::vector<int> members_;
  int rank_;
  std::vector<Index> sent_, received_;  // number of messages so far, by peer
  int splits_ = 0;
};

std::shared_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  const std::array<std::int32_t, 2> mine{color, key};
  std::vector<std::array<std::int32_t, 2>> all(members_.size());
  textbook::all_gather(*this, &mine, all.data(), std::vector<Index>(all.size(), 2), DType::i32);
  std::vector<std::pair<int, int>> group;  // key, rank here
  for (int r = 0; r < size(); ++r)
    if (const auto& [its_color, its_key] = all[r]; its_color == color) group.emplace_back(its_key, r);
  std::sort(group.begin(), group.end());

  std::vector<int> members;
  int rank = 0;
  for (const auto& [its_key, r] : group) {
    if (r == rank_) rank = static_cast<int>(members.size());
    members.push_back(members_[r]);
  }
  auto id = id_;
  id.insert(id.end(), {splits_++, color});
  return std::make_shared<ThreadCommunicator>(world_, std::move(id), std::move(members), rank);
}

/// The exceptions of the ranks: `own` if the rank failed by itself, `caused` if it failed because another rank did.
struct Failures {
  explicit Failures(std::size_t ranks) : own(ranks), caused(ranks) {}
  std::vector<std::exception_ptr> own, caused;

  void rethrow() const {
    for (const auto* failures : {&own, &caused})
      for (const auto& failure : *failures)
        if (failure != nullptr) std::rethrow_exception(failure);
  }
};

void run_rank(int rank, const std::shared_ptr<Mailboxes>& world, const std::function<void(Communicator&)>& body,
              Failures& failures) {
  std::vector<int> everyone;
  for (std::size_t r = 0; r < world->size(); ++r) everyone.push_back(static_cast<int>(r));
  const auto r = static_cast<std::size_t>(rank);
  try {
    ThreadCommunicator comm(world, {}, std::move(everyone), rank);
    body(comm);
    for (auto& mailbox : *world) mailbox.finish(rank);
    return;
  } catch (const PeerFailed&) {
    failures.caused[r] = std::current_exception();
  } catch (...) {
    failures.own[r] = std::current_exception();
  }
  for (auto& mailbox : *world) mailbox.poison(fmt::format("rank {} failed", rank));
}

}  // namespace

void run_threads(int ranks, const std::function<void(Communicator&)>& body) {
  if (ranks < 1) fail("{} ranks cannot run; start 1 or more", ranks);
  const auto world = std::make_shared<Mailboxes>(static_cast<std::size_t>(ranks));
  Failures failures(world->size());
  {
    std::vector<std::jthread> threads;  // joined at the end of the block
    threads.reserve(world->size());
    try {
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] { run_rank(rank, world, body, failures); });
    } catch (const std::system_error& error) {
      for (auto& mailbox : *world) mailbox.poison("the system started too few threads");
      failures.own[0] = std::make_exception_ptr(
          Error(fmt::format("the system started only {} of the {} threads that the ranks need ({}); start fewer ranks, "
                            "or raise the limit (ulimit -u)",
                            threads.size(), ranks, error.code().message())));
    }
  }
  failures.rethrow();
}

}  // namespace partita
