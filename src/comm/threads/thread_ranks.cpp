#include "partita/comm/thread_ranks.hpp"

#include "src/comm/backoff.hpp"
#include "src/comm/job/patience.hpp"
#include "src/comm/job/peer_failed.hpp"
#include "src/comm/shared_memory/between_threads.hpp"
#include "src/comm/shared_memory/shared_request.hpp"
#include "src/comm/threads/meanwhile.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/system/host.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <numeric>

namespace partita {

namespace {

/// What the communicators of one rank share: how to wait. While the rank waits for anything, all its communication
/// goes on, since other ranks may need it first.
class ThreadRank : public Meanwhile {
 public:
  /// `failed` is the first rank that failed, or -1.
  ThreadRank(int rank, bool oversubscribed, const WaitLimits& limits, const std::atomic<int>& failed)
      : patience_(rank, limits), failed_(failed), node_{oversubscribed} {
    of_thread() = this;
  }
  ~ThreadRank() override { of_thread() = nullptr; }
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;

  void begin() override { patience_.begin(); }
  std::chrono::microseconds look(int sender) override {
    progress();
    patience_.look([sender] { return std::vector{sender}; });
    const bool idle = std::all_of(shared_.begin(), shared_.end(), [](auto* shared) { return shared->idle(); });
    return std::chrono::microseconds(idle ? 20'000 : 100);
  }

  /// Waits for an operation in shared memory. `missing` returns the ranks of the world for which it waits.
  void wait(SharedMemory& shared, const SharedOperation& operation, const std::function<std::vector<int>()>& missing) {
    constexpr int often = 16;
    Checks of_clock(often);
    NodeWait node_wait(node_);
    const auto sleep = [&] { shared.sleep(operation); };
    patience_.begin();
    while (true) {
      progress();
      if (operation.done()) return;
      if (const int rank = failed_.load(); rank >= 0) throw PeerFailed(fmt::format("rank {} failed", rank));
      node_wait.pause(sleep);
      if (!of_clock.many()) continue;
      of_clock = Checks(often);
      node_wait.pause_longer(sleep);
      patience_.look(missing);
    }
  }

  void progress() const {
    for (auto* shared : shared_) shared->progress();
  }
  /// Between `add` and `remove`, `progress` advances `shared`.
  void add(SharedMemory& shared) { shared_.push_back(&shared); }
  void remove(SharedMemory& shared) { std::erase(shared_, &shared); }

 private:
  Patience patience_;
  const std::atomic<int>& failed_;
  std::vector<SharedMemory*> shared_;
  NodeWait::Memory node_;
};

/// Sends boxes and forms sums through shared memory, and leaves all else to a communicator of run_threads().
class ThreadRanks : public Communicator {
 public:
  /// `members` are the world ranks of the communicator. Collective: every rank of `threads` constructs it.
  ThreadRanks(std::shared_ptr<ThreadRank> me, std::shared_ptr<Communicator> threads, std::vector<int> members)
      : me_(std::move(me)),
        threads_(std::move(threads)),
        members_(std::make_shared<const std::vector<int>>(std::move(members))),
        shared_(share_between_threads(*threads_)) {
    if (shared_) me_->add(*shared_);
  }
  ~ThreadRanks() override {
    if (shared_) me_->remove(*shared_);
  }
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  int rank() const override { return threads_->rank(); }
  int size() const override { return threads_->size(); }
  bool asynchronous() const override { return false; }
  bool packs() const override { return !shared_; }
  Index shared_bytes() const override { return SharedMemory::bytes(size()); }
  Index shared_bytes_of(const std::vector<std::vector<int>>& groups) const override {
    return SharedMemory::bytes(static_cast<int>(groups.front().size()));
  }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    return threads_->exchange(sends, recvs, stream);
  }
  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    return shared_ ? request(shared_->exchange(boxes)) : threads_->exchange_boxes(boxes, stream);
  }
  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    return shared_ ? request(shared_->all_reduce(data, count, dtype, op))
                   : threads_->all_reduce(data, count, dtype, op, stream);
  }
  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return shared_ ? request(shared_->all_gather(local, all, counts, dtype))
                   : threads_->all_gather(local, all, counts, dtype, stream);
  }
  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return shared_ ? request(shared_->reduce_scatter(all, local, counts, dtype))
                   : threads_->reduce_scatter(all, local, counts, dtype, stream);
  }
  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    return threads_->broadcast(data, count, dtype, root, stream);
  }
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    return threads_->all_to_all(send, send_counts, recv, recv_counts, dtype, stream);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    auto part = threads_->split(color, key);
    const std::vector<double> members = gather_numbers(*part, (*members_)[rank()]);
    return std::make_shared<ThreadRanks>(me_, std::move(part), std::vector<int>(members.begin(), members.end()));
  }

 private:
  Request request(std::shared_ptr<const SharedOperation> operation) const {
    return Request(std::make_unique<SharedRequest<ThreadRank>>(me_, members_, shared_, std::move(operation)));
  }

  std::shared_ptr<ThreadRank> me_;
  std::shared_ptr<Communicator> threads_;
  std::shared_ptr<const std::vector<int>> members_;
  std::shared_ptr<SharedMemory> shared_;
};

/// True if the process may use fewer cores than `ranks`.
bool oversubscribed(int ranks) { return ranks > allowed_cores(); }

}  // namespace

void run_thread_ranks(int ranks, const WaitLimits& limits, const std::function<void(Communicator&)>& body) {
  std::atomic<int> failed = -1;
  run_threads(ranks, [&](Communicator& threads) {
    try {
      const auto me = std::make_shared<ThreadRank>(threads.rank(), oversubscribed(ranks), limits, failed);
      std::vector<int> everyone(static_cast<std::size_t>(ranks));
      std::iota(everyone.begin(), everyone.end(), 0);
      ThreadRanks world(me, borrow(threads), std::move(everyone));
      body(world);
    } catch (...) {
      int none = -1;
      failed.compare_exchange_strong(none, threads.rank());
      throw;
    }
  });
}

}  // namespace partita
