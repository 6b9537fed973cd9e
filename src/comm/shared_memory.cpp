#include "shared_memory.hpp"

#include "partita/base/dispatch.hpp"
#include "partita/comm/textbook.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <thread>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace partita {

namespace {

constexpr Index slot_bytes = Index{128} << 10;  // a piece stays in a core's second cache
constexpr Index slots = 4;
constexpr Index small_bytes = Index{4} << 10;

using Counter = std::atomic<Index>;
static_assert(Counter::is_always_lock_free, "counters work between processes");

#ifdef __linux__
/// Sleeps until the bell is rung, if it still says `rung`. Between processes, unlike std::atomic::wait.
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

/// Block r of `count` elements.
std::pair<Index, Index> block(Index count, int ranks, int r) { return {count * r / ranks, count * (r + 1) / ranks}; }

/// to = also = op(to, from), in one pass.
template <class T>
void combine_twice(T* __restrict to, T* __restrict also, const T* __restrict from, Index count, Op op) {
  using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
  if (op == Op::sum)
    for (Index i = 0; i < count; ++i) also[i] = to[i] = static_cast<T>(static_cast<A>(to[i]) + static_cast<A>(from[i]));
  else  // as textbook::combine: what is not a number wins
    for (Index i = 0; i < count; ++i) also[i] = to[i] = from[i] > to[i] || from[i] != from[i] ? from[i] : to[i];
}

}  // namespace

/// How many pieces a rank has staged, reduced and gathered since the beginning; each in a line of its own.
struct SharedMemory::Flags {
  alignas(64) Counter staged{0};
  alignas(64) Counter reduced{0};
  alignas(64) Counter gathered{0};
  // Rank 0's, for all: rung when something is complete that others may sleep for.
  alignas(64) std::atomic<std::uint32_t> bell{0};
  std::atomic<std::uint32_t> sleepers{0};
};

std::unique_ptr<SharedMemory> SharedMemory::make(MPI_Comm comm, bool one_node) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  if (size == 1) return nullptr;
  if (!one_node) {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int on_node = 0;
    MPI_Comm_size(node, &on_node);
    MPI_Comm_free(&node);
    int all_here = on_node == size ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all_here, 1, MPI_INT, MPI_MIN, comm);
    if (all_here == 0) return nullptr;
  }
  return std::unique_ptr<SharedMemory>(new SharedMemory(comm));
}

SharedMemory::SharedMemory(MPI_Comm comm) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  void* mine = nullptr;
  // Open MPI places the ranks' parts at multiples of 8 bytes; the same distance in all mappings, which begin with a page.
  const auto bytes =
      static_cast<MPI_Aint>(alignof(Flags) + sizeof(Flags)) + slots * slot_bytes + SharedExchange::bytes(size_);
  if (MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &mine, &window_) != MPI_SUCCESS)
    throw CommunicationError("the ranks of a node cannot share memory; is /dev/shm full?");
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  for (int r = 0; r < size_; ++r) {
    MPI_Aint size = 0;
    int unit = 0;
    void* at = nullptr;
    MPI_Win_shared_query(window_, r, &size, &unit, &at);
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    segments_.push_back(static_cast<std::byte*>(at) + (alignof(Flags) - address % alignof(Flags)) % alignof(Flags));
  }
  new (segments_[static_cast<std::size_t>(rank_)]) Flags;
  auto behind = segments_;
  for (auto& segment : behind) segment += sizeof(Flags) + slots * slot_bytes;
  exchange_ = std::make_unique<SharedExchange>(rank_, behind);
  MPI_Barrier(comm);
}

SharedMemory::~SharedMemory() {
  // Freeing is collective: while an exception unwinds, this rank has failed and its peers may never come.
  if (std::uncaught_exceptions() > 0) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;  // MPI has taken the memory back
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

SharedMemory::Flags& SharedMemory::flags(int rank) const {
  return *reinterpret_cast<Flags*>(segments_[static_cast<std::size_t>(rank)]);
}

std::byte* SharedMemory::slot(int rank, Index piece) const {
  return segments_[static_cast<std::size_t>(rank)] + sizeof(Flags) + piece % slots * slot_bytes;
}

std::shared_ptr<const SharedOperation> SharedMemory::all_reduce(void* data, Index count, DType dtype, Op op) {
  auto operation = std::make_shared<Operation>();
  operation->data_ = static_cast<std::byte*>(data);
  operation->count_ = count;
  operation->dtype_ = dtype;
  operation->op_ = op;
  operation->small_ = count * size_of(dtype) <= small_bytes;
  operation->per_piece_ = slot_bytes / size_of(dtype);
  operation->pieces_ = (count + operation->per_piece_ - 1) / operation->per_piece_;
  operation->done_ = operation->pieces_ == 0;
  if (!operation->done_) started_.push_back(operation);
  progress();
  return operation;
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
    Operation& now = *started_.front();
    if (now.gathered_ < now.pieces_) continue;
    now.done_ = true;
    before_ += now.pieces_;
    started_.pop_front();
  }
}

namespace {

/// True if every rank's counter has gone beyond `piece`.
template <class CounterOf>
bool all_beyond(int ranks, Index piece, CounterOf&& counter) {
  for (int r = 0; r < ranks; ++r)
    if (counter(r).load() <= piece) return false;
  return true;
}

}  // namespace

/// Says that this rank has done `piece`; whoever completes it for all wakes those who sleep. Sequentially consistent:
/// of two ranks that come last at once, one sees the other.
template <class CounterOf>
void SharedMemory::publish(Index piece, CounterOf&& counter) {
  counter(rank_).store(piece + 1);
  if (flags(0).sleepers.load() > 0 && all_beyond(size_, piece, counter)) ring();
}

/// Wakes those who sleep.
void SharedMemory::ring() {
  flags(0).bell.fetch_add(1);
  futex_wake_all(flags(0).bell);
}

void SharedMemory::sleep(const SharedOperation& awaited) {
  constexpr long longest_ns = 500'000;  // then whoever waits looks after his messages
  Flags& first = flags(0);
  first.sleepers.fetch_add(1);
  const auto rung = first.bell.load();
  progress();
  if (!awaited.done()) futex_wait(first.bell, rung, longest_ns);
  first.sleepers.fetch_sub(1);
  progress();
}

/// One step of the piece that is furthest, while the caches hold it; false if every one has to wait.
bool SharedMemory::advance(Operation& now) { return gather(now) || reduce(now) || stage(now); }

bool SharedMemory::stage(Operation& now) {
  const Index piece = before_ + now.staged_;
  if (now.staged_ == now.pieces_ || now.staged_ >= now.gathered_ + slots) return false;
  // Nobody reads any more what the slot held.
  if (!all_beyond(size_, piece - slots, [&](int r) -> Counter& { return flags(r).gathered; })) return false;
  const Index count = now.extent(now.staged_), size = now.element();
  std::byte* data = now.at(now.staged_);
  for (int r = 0; r < size_; ++r) {  // one's own block is read where it is
    if (r == rank_ && !now.small_) continue;
    const auto [lo, hi] = block(count, size_, r);
    std::memcpy(slot(rank_, piece) + lo * size, data + lo * size, static_cast<std::size_t>((hi - lo) * size));
  }
  ++now.staged_;
  publish(piece, [&](int r) -> Counter& { return flags(r).staged; });
  return true;
}

bool SharedMemory::reduce(Operation& now) {
  const Index piece = before_ + now.reduced_;
  if (now.reduced_ == now.staged_) return false;
  if (!all_beyond(size_, piece, [&](int r) -> Counter& { return flags(r).staged; })) return false;
  const Index count = now.extent(now.reduced_), size = now.element();
  std::byte* data = now.at(now.reduced_);
  if (now.small_) {  // every rank sums all, in rank order
    std::memcpy(data, slot(0, piece), static_cast<std::size_t>(count * size));
    for (int r = 1; r < size_; ++r) textbook::combine(data, slot(r, piece), count, now.dtype_, now.op_);
  } else {
    const auto [lo, hi] = block(count, size_, rank_);
    std::byte* mine = data + lo * size;
    for (int i = 1; i < size_; ++i) {
      const std::byte* theirs = slot((rank_ + i) % size_, piece) + lo * size;
      if (i + 1 < size_) {
        textbook::combine(mine, theirs, hi - lo, now.dtype_, now.op_);
        continue;
      }
      dispatch(now.dtype_, [&, low = lo, high = hi](auto t) {
        using T = decltype(t);
        combine_twice(reinterpret_cast<T*>(mine), reinterpret_cast<T*>(slot(rank_, piece) + low * size),
                      reinterpret_cast<const T*>(theirs), high - low, now.op_);
      });
    }
  }
  ++now.reduced_;
  publish(piece, [&](int r) -> Counter& { return flags(r).reduced; });
  return true;
}

bool SharedMemory::gather(Operation& now) {
  const Index piece = before_ + now.gathered_;
  if (now.gathered_ == now.reduced_) return false;
  if (!now.small_) {
    if (!all_beyond(size_, piece, [&](int r) -> Counter& { return flags(r).reduced; })) return false;
    const Index count = now.extent(now.gathered_), size = now.element();
    std::byte* data = now.at(now.gathered_);
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      const auto [lo, hi] = block(count, size_, r);
      std::memcpy(data + lo * size, slot(r, piece) + lo * size, static_cast<std::size_t>((hi - lo) * size));
    }
  }
  ++now.gathered_;
  publish(piece, [&](int r) -> Counter& { return flags(r).gathered; });
  return true;
}

}  // namespace partita
