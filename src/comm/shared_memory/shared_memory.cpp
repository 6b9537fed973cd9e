#include "src/comm/shared_memory/shared_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace partita {

namespace {

constexpr Index slots = SharedCollective::slots;

using Counter = std::atomic<Index>;
static_assert(Counter::is_always_lock_free, "counters must work between processes");

#ifdef __linux__
/// Sleeps until another process rings the bell, at most `longest_ns` nanoseconds. Returns at once if the value of the
/// bell is no longer `rung`. Unlike std::atomic::wait it works between processes.
void futex_wait(std::atomic<std::uint32_t>& bell, std::uint32_t rung, long longest_ns) {
  const timespec longest{0, longest_ns};
  syscall(SYS_futex, &bell, FUTEX_WAIT, rung, &longest, nullptr, 0);
}
void futex_wake_all(std::atomic<std::uint32_t>& bell) {
  syscall(SYS_futex, &bell, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}
#else
void futex_wait(std::atomic<std::uint32_t>&, std::uint32_t, long) {
  std::this_thread::sleep_for(std::chrono::microseconds(1));
}
void futex_wake_all(std::atomic<std::uint32_t>&) {}
#endif

}  // namespace

/// The numbers of pieces that a rank has staged, reduced and gathered since the beginning, each in its own cache line.
/// The other members are used in rank 0's flags only, by all ranks: `streams` says whether stores bypass the caches,
/// `bell` rings when something is complete for which other ranks may sleep, and `told` is set by the first rank that
/// prints a note about shared memory.
struct SharedMemory::Flags {
  alignas(64) Counter staged{0};
  alignas(64) Counter reduced{0};
  alignas(64) Counter gathered{0};
  alignas(64) std::atomic<bool> streams{false};
  alignas(64) std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<bool> told{false};
};

Index SharedMemory::bytes(int ranks) {
  return ranks == 1
             ? 0
             : static_cast<Index>(sizeof(Flags)) + slots * SharedCollective::slot_bytes + SharedExchange::bytes(ranks);
}

SharedMemory::SharedMemory(int rank, int size, std::shared_ptr<const Segments> segments)
    : rank_(rank), size_(size), segments_(std::move(segments)) {
  new (segments_->of(rank_)) Flags;
  std::vector<std::byte*> behind;
  for (int r = 0; r < size_; ++r)
    behind.push_back(segments_->of(r) + sizeof(Flags) + slots * SharedCollective::slot_bytes);
  exchange_ = std::make_unique<SharedExchange>(rank_, behind);
  if (rank_ == 0) choice_.emplace(flags(0).streams);
}

bool SharedMemory::first_to_tell() const { return !flags(0).told.exchange(true); }

SharedMemory::Flags& SharedMemory::flags(int rank) const { return *reinterpret_cast<Flags*>(segments_->of(rank)); }

std::byte* SharedMemory::slot(int rank, Index piece) const {
  return segments_->of(rank) + sizeof(Flags) + piece % slots * SharedCollective::slot_bytes;
}

std::shared_ptr<const SharedOperation> SharedMemory::start(std::shared_ptr<SharedCollective> operation) {
  if (operation->is_large()) operation->first_large = std::exchange(large_, large_ + operation->pieces());
  if (!operation->done()) started_.push_back(operation);
  progress();
  return operation;
}

std::shared_ptr<const SharedOperation> SharedMemory::all_reduce(void* data, Index count, DType dtype, ReduceOp op) {
  const std::vector<Index> counts(static_cast<std::size_t>(size_), count);
  return start(
      std::make_shared<SharedCollective>(SharedCollective::Kind::all_reduce, data, data, counts, rank_, dtype, op));
}

std::shared_ptr<const SharedOperation> SharedMemory::all_gather(const void* local, void* all,
                                                                std::span<const Index> counts, DType dtype) {
  return start(std::make_shared<SharedCollective>(SharedCollective::Kind::all_gather, local, all, counts, rank_, dtype,
                                                  ReduceOp::sum));
}

std::shared_ptr<const SharedOperation> SharedMemory::reduce_scatter(const void* all, void* local,
                                                                    std::span<const Index> counts, DType dtype) {
  return start(std::make_shared<SharedCollective>(SharedCollective::Kind::reduce_scatter, all, local, counts, rank_,
                                                  dtype, ReduceOp::sum));
}

std::shared_ptr<const SharedOperation> SharedMemory::exchange(const BoxExchange& boxes) {
  auto operation = exchange_->start(boxes);
  progress();
  return operation;
}

void SharedMemory::progress() {
  bool moved = false;
  while (!exchange_->idle() && exchange_->advance()) moved = true;
  if (moved && flags(0).sleepers.load() > 0) ring();
  while (!started_.empty() && advance(*started_.front())) {
    SharedCollective& now = *started_.front();
    if (!now.done()) continue;
    before_ += now.pieces();
    started_.pop_front();
  }
}

namespace {

/// Returns true if every rank has done `piece`, by its counter.
template <class CounterOf>
bool all_beyond(int ranks, Index piece, CounterOf&& counter) {
  for (int r = 0; r < ranks; ++r)
    if (counter(r).load() <= piece) return false;
  return true;
}

}  // namespace

/// Publishes that this rank has done `piece`. The last rank to do so wakes the ranks that sleep. The accesses are
/// sequentially consistent: if two ranks come last at the same time, at least one sees the counter of the other.
template <class CounterOf>
void SharedMemory::publish(Index piece, CounterOf&& counter) {
  counter(rank_).store(piece + 1);
  if (flags(0).sleepers.load() > 0 && all_beyond(size_, piece, counter)) ring();
}

/// Wakes the ranks that sleep.
void SharedMemory::ring() {
  flags(0).bell.fetch_add(1);
  futex_wake_all(flags(0).bell);
}

void SharedMemory::sleep(const SharedOperation& awaited) {
  constexpr long longest_ns = 500'000;  // then the waiting rank must let MPI make progress
  Flags& first = flags(0);
  first.sleepers.fetch_add(1);
  const auto rung = first.bell.load();
  progress();
  if (!awaited.done()) futex_wait(first.bell, rung, longest_ns);
  first.sleepers.fetch_sub(1);
  progress();
}

std::vector<int> SharedMemory::missing(const SharedOperation& operation) const {
  const bool collective =
      std::any_of(started_.begin(), started_.end(), [&](const auto& each) { return each.get() == &operation; });
  if (!collective) return exchange_->missing(operation);
  const auto steps = [&](int r) {
    const Flags& f = flags(r);
    return f.staged.load() + f.reduced.load() + f.gathered.load();
  };
  std::vector<int> behind;
  Index least = steps(rank_);
  for (int r = 0; r < size_; ++r) least = std::min(least, steps(r));
  for (int r = 0; r < size_; ++r)
    if (r != rank_ && steps(r) == least) behind.push_back(r);
  return behind;
}

bool SharedMemory::streams(const SharedCollective& now, Index piece) const {
  return now.is_large() && SharedCollective::Choice::streams(flags(0).streams, now.first_large + piece);
}

/// Runs a step of a piece. Rank 0, which decides for all ranks how pieces are stored, measures its time if needed.
template <class Step>
void SharedMemory::timed(const SharedCollective& now, Index piece, Step&& step) {
  if (!decides(now, piece)) return step();
  choice_->add(now.first_large + piece, seconds_of(step));
}

bool SharedMemory::decides(const SharedCollective& now, Index piece) const {
  return choice_ && now.is_large() && SharedCollective::Choice::needs(now.first_large + piece);
}

/// Does one step for the piece that has advanced furthest, while it is in the caches. Returns false if all steps must
/// wait for other ranks.
bool SharedMemory::advance(SharedCollective& now) { return gather(now) || reduce(now) || stage(now); }

bool SharedMemory::stage(SharedCollective& now) {
  const Index piece = before_ + now.staged;
  if (now.staged == now.pieces() || now.staged >= now.gathered + slots) return false;
  // Wait until nobody reads the previous piece in this slot any more.
  if (!all_beyond(size_, piece - slots, [&](int r) -> Counter& { return flags(r).gathered; })) return false;
  timed(now, now.staged, [&] { now.stage(now.staged, slot(rank_, piece), streams(now, now.staged)); });
  ++now.staged;
  publish(piece, [&](int r) -> Counter& { return flags(r).staged; });
  return true;
}

bool SharedMemory::reduce(SharedCollective& now) {
  const Index piece = before_ + now.reduced;
  if (now.reduced == now.staged) return false;
  if (!all_beyond(size_, piece, [&](int r) -> Counter& { return flags(r).staged; })) return false;
  const auto slot_of = [&](int r) { return slot(r, piece); };
  timed(now, now.reduced, [&] { now.reduce(now.reduced, slot_of, streams(now, now.reduced)); });
  ++now.reduced;
  publish(piece, [&](int r) -> Counter& { return flags(r).reduced; });
  return true;
}

bool SharedMemory::gather(SharedCollective& now) {
  const Index piece = before_ + now.gathered;
  if (now.gathered == now.reduced) return false;
  if (now.gathers_sums() && !all_beyond(size_, piece, [&](int r) -> Counter& { return flags(r).reduced; }))
    return false;
  timed(now, now.gathered, [&] { now.gather(now.gathered, [&](int r) { return slot(r, piece); }); });
  if (decides(now, now.gathered)) choice_->finish(now.first_large + now.gathered, now.bytes_of(now.gathered));
  ++now.gathered;
  publish(piece, [&](int r) -> Counter& { return flags(r).gathered; });
  return true;
}

}  // namespace partita
