#pragma once

#include "partita/base/device.hpp"
#include "partita/base/error.hpp"
#include "test/support/access_history.hpp"
#include "test/support/device_memory.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace partita::test {

/// A device that does everything as late as its rules allow, in a random legal order: operations run only when the CPU
/// waits for a stream. So a missing event gives wrong numbers. Besides, it finds every pair of operations that touch
/// the same bytes, one of them writing, without an order between them (races). Its memory is closed to the CPU outside
/// of operations. The ranks of a test share one device, or one engine.
class LazyDevice final : public Device {
 public:
  explicit LazyDevice(unsigned seed) : random_(seed) {}

  std::string_view name() const override { return "lazy"; }
  bool host() const override { return false; }

  void* allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    count_call("allocate");
    return arena_.allocate(bytes);
  }
  void release(void* data) override {
    const std::scoped_lock lock(mutex_);
    run_all();  // a device frees memory when it has done everything
    const Access block = range(data, arena_.block_of(data).size(), true);
    history_.forget(block.begin, block.end);
    arena_.release(data);
  }

  std::string memory_left() const override { return "the lazy device has little left"; }
  /// From now on, all blocks together have at most this size.
  void limit_memory(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    arena_.limit(bytes);
  }

  Stream make_stream(Priority priority) override {
    const std::scoped_lock lock(mutex_);
    count_call("make_stream");
    streams_.emplace_back().priority = priority;
    return {reinterpret_cast<void*>(streams_.size() - 1)};
  }
  Event record(Stream stream) override {
    const std::scoped_lock lock(mutex_);
    count_call("record");
    auto moment = std::make_shared<Moment>();
    moment->stream = number_of(stream);
    of(stream).items.push_back({.marks = moment, .host = host_clock()});
    return {moment};
  }
  void wait(Stream stream, const Event& event) override {
    const std::scoped_lock lock(mutex_);
    count_call("wait");
    const auto moment = std::static_pointer_cast<Moment>(event.native);
    if (!moment || moment->stream == number_of(stream)) return;
    Item item{.host = host_clock()};
    const bool kind =
        forgets_kind_ && of(stream).priority == waiter_ && streams_.at(moment->stream).priority == awaited_;
    (++waits_ == forgotten_ || kind ? item.forgets : item.awaits) = moment;
    of(stream).items.push_back(std::move(item));
  }
  /// Its clock counts operations, in microseconds.
  Event mark(Stream stream) override { return record(stream); }
  double seconds(const Event& from, const Event& to) override {
    const std::scoped_lock lock(mutex_);
    const auto time = [](const Event& event) {
      const auto moment = std::static_pointer_cast<Moment>(event.native);
      require(moment->passed, "a moment has no time before it has passed");
      return 1e-6 * static_cast<double>(moment->time);
    };
    return time(to) - time(from);
  }
  bool passed(const Event& event) override {
    const std::scoped_lock lock(mutex_);
    count_call("passed");
    return event.native == nullptr || std::static_pointer_cast<Moment>(event.native)->passed;
  }
  void finish(Stream stream) override {
    const std::scoped_lock lock(mutex_);
    count_call("finish");
    drain(stream);
    if (!race_.empty()) fail("{}", race_);
  }
  void wait(const Event& event) override {
    const std::scoped_lock lock(mutex_);
    count_call("wait for an event");
    const auto moment = std::static_pointer_cast<Moment>(event.native);
    if (!moment) return;
    if (!moment->passed) ++host_waits_[std::this_thread::get_id()];
    run_until([&] { return moment->passed; });
    merge(host_clocks_[std::this_thread::get_id()], moment->clock);
    if (!race_.empty()) fail("{}", race_);
  }

  void zero(void* data, std::size_t bytes, Stream stream) override {
    enqueue("zero", stream, {range(data, bytes, true)}, [=] { host_device().zero(data, bytes, {}); });
  }
  Device& staging() override { return staging_; }
  void copy(const void* from, void* to, std::size_t bytes, Stream stream) override {
    const bool reads_cpu = !owns(from) && !staging_.owns(from), writes_cpu = !owns(to) && !staging_.owns(to);
    std::vector<std::byte> values;
    if (reads_cpu) values.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    std::vector<Access> accesses;
    if (!reads_cpu) accesses.push_back(range(from, bytes, false));
    if (!writes_cpu) accesses.push_back(range(to, bytes, true));
    enqueue("copy", stream, std::move(accesses), [=, held = std::move(values)] {
      host_device().copy(reads_cpu ? static_cast<const void*>(held.data()) : from, to, bytes, {});
    });
    if (writes_cpu) finish_now(stream);
  }
  void move(std::span<const BoxMove> moves, Stream stream) override {
    std::vector<Access> accesses;
    for (const BoxMove& move : moves) add_rows(move, accesses);
    enqueue("move", stream, std::move(accesses),
            [all = std::vector<BoxMove>(moves.begin(), moves.end())] { host_device().move(all, {}); });
  }
  void run(std::string_view what, std::span<const Touched> touched, std::function<void()> function,
           Stream stream) override {
    std::vector<Access> accesses;
    for (const auto& [data, bytes, writes] : touched) accesses.push_back(range(data, bytes, writes));
    enqueue(std::string(what), stream, std::move(accesses), std::move(function));
  }
  /// Returns the block of memory that holds an address; empty if it does not lie on the device.
  std::span<std::byte> block_of(const void* address) {
    const std::scoped_lock lock(mutex_);
    return arena_.block_of(address);
  }
  /// The number of blocks that are not released.
  std::size_t blocks() {
    const std::scoped_lock lock(mutex_);
    return arena_.blocks();
  }
  /// Adds an operation to a stream.
  void enqueue(std::string what, Stream stream, std::vector<Access> accesses, std::function<void()> run) {
    const std::scoped_lock lock(mutex_);
    count_call(what);
    of(stream).unwaited = true;
    of(stream).items.push_back(
        {std::move(what), merged(std::move(accesses)), std::move(run), {}, {}, {}, host_clock()});
  }

  /// Of the calls of wait() that order two streams, number `call` does nothing.
  void forget_wait(int call) { forgotten_ = call; }
  /// No stream of priority `waiter` waits for an event of another stream, of priority `awaited`.
  void forget_waits(Priority waiter, Priority awaited) {
    forgets_kind_ = true;
    waiter_ = waiter;
    awaited_ = awaited;
  }
  /// True if a call that did nothing would have ordered more than the stream knew from other events.
  bool missed() const { return missed_; }
  int waits() const { return waits_; }
  /// From now on, call number `call` of the device throws Error.
  void fail_at(int call) { failing_ = call; }
  int calls() const { return calls_; }

  /// How often this thread has waited for a stream to which operations had been added.
  int host_waits() {
    const std::scoped_lock lock(mutex_);
    return host_waits_[std::this_thread::get_id()];
  }

  /// Does everything that is left. Throws Error if there was a race.
  void check() {
    const std::scoped_lock lock(mutex_);
    run_all();
    if (!race_.empty()) fail("{}", race_);
  }

  static Access range(const void* data, std::size_t bytes, bool writes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin, begin + bytes, writes};
  }

 private:
  struct Moment {
    bool passed = false;
    std::size_t stream = 0;
    Index time = 0;  // operations that the device had done
    Clock clock;
  };
  struct Item {
    std::string what{};
    std::vector<Access> accesses{};
    std::function<void()> run{};
    std::shared_ptr<Moment> marks{}, awaits{}, forgets{};
    Clock host{};  // what the CPU knew to be done when it added the item
  };
  struct Queue {
    std::deque<Item> items;
    Clock clock;
    Priority priority = Priority::normal;
    bool unwaited = false;  // something was added since the CPU has waited for it
  };

  /// True for memory of the device.
  bool owns(const void* data) { return !block_of(data).empty(); }
  void finish_now(Stream stream) {
    const std::scoped_lock lock(mutex_);
    drain(stream);
  }
  void drain(Stream stream) {
    Queue& queue = of(stream);
    if (std::exchange(queue.unwaited, false)) ++host_waits_[std::this_thread::get_id()];
    run_until([&] { return queue.items.empty(); });
    merge(host_clocks_[std::this_thread::get_id()], queue.clock);
  }

  static bool knows(const Clock& clock, const Moment& moment) {
    if (!moment.passed) return false;
    for (std::size_t s = 0; s < moment.clock.size(); ++s)
      if (moment.clock[s] > (s < clock.size() ? clock[s] : 0)) return false;
    return true;
  }
  /// Returns the same bytes in as few ranges as possible.
  static std::vector<Access> merged(std::vector<Access> accesses) {
    const auto order = [](const Access& access) { return std::tuple(access.writes, access.begin, access.end); };
    std::sort(accesses.begin(), accesses.end(), [&](const Access& a, const Access& b) { return order(a) < order(b); });
    std::vector<Access> few;
    for (const Access& access : accesses)
      if (!few.empty() && few.back().writes == access.writes && access.begin <= few.back().end)
        few.back().end = std::max(few.back().end, access.end);
      else
        few.push_back(access);
    return few;
  }
  static void merge(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t s = 0; s < from.size(); ++s) to[s] = std::max(to[s], from[s]);
  }
  static std::size_t number_of(Stream stream) { return reinterpret_cast<std::size_t>(stream.native); }
  Queue& of(Stream stream) { return streams_.at(number_of(stream)); }
  Clock host_clock() { return host_clocks_[std::this_thread::get_id()]; }

  void count_call(std::string_view what) {
    if (++calls_ == failing_) fail("the call {} of the device fails: {}", calls_, what);
  }
  static bool blocked(const Queue& queue) {
    return queue.items.empty() || (queue.items.front().awaits && !queue.items.front().awaits->passed);
  }
  void run_all() {
    run_until([&] {
      return std::all_of(streams_.begin(), streams_.end(), [](const Queue& queue) { return queue.items.empty(); });
    });
  }
  template <class Done>
  void run_until(Done&& done) {
    arena_.open(true);
    while (!done()) run_one();
    arena_.open(false);
  }
  /// Runs the first item of a drawn stream that may go on.
  void run_one() {
    std::vector<std::size_t> ready;
    for (std::size_t s = 0; s < streams_.size(); ++s)
      if (!blocked(streams_[s])) ready.push_back(s);
    require(!ready.empty(), "a stream waits for an event that never passes");
    const std::size_t stream = ready[random_() % ready.size()];
    Queue& queue = streams_[stream];
    Item item = std::move(queue.items.front());
    queue.items.pop_front();
    merge(queue.clock, item.host);
    if (item.awaits) merge(queue.clock, item.awaits->clock);
    if (item.forgets) missed_ = missed_ || !knows(queue.clock, *item.forgets);
    if (item.marks) {
      item.marks->passed = true;
      item.marks->time = done_;
      item.marks->clock = queue.clock;
    }
    if (!item.run) return;
    ++done_;
    if (queue.clock.size() <= stream) queue.clock.resize(stream + 1);
    ++queue.clock[stream];
    const Operation operation{stream, queue.clock[stream], std::make_shared<const std::string>(item.what)};
    for (const Access& access : item.accesses) note(access, operation, queue.clock);
    item.run();
  }
  /// Remembers the access, and notes a race with an earlier one.
  void note(const Access& access, const Operation& operation, const Clock& clock) {
    const auto other = history_.add(access, operation, clock);
    if (!other || !race_.empty()) return;
    race_ = fmt::format("a race: '{}' on stream {} and '{}' on stream {} touch the same bytes, without an event",
                        *other->what, other->stream, *operation.what, operation.stream);
  }

  /// Adds what a move touches, run by run along its fastest dimension.
  static void add_rows(const BoxMove& move, std::vector<Access>& accesses) {
    const auto dims = static_cast<std::size_t>(move.dims);
    Index rows = 1;
    for (std::size_t d = 0; d + 1 < dims; ++d) rows *= move.extent[d];
    for (Index row = 0; row < rows; ++row) {
      Index from = 0, to = 0, rest = row;
      for (std::size_t d = dims > 0 ? dims - 1 : 0; d-- > 0; rest /= move.extent[d]) {
        from += rest % move.extent[d] * move.from_stride[d];
        to += rest % move.extent[d] * move.to_stride[d];
      }
      const Index count = dims > 0 ? move.extent[dims - 1] : 1;
      const Index from_step = dims > 0 ? move.from_stride[dims - 1] : 1,
                  to_step = dims > 0 ? move.to_stride[dims - 1] : 1;
      add_run(move.from, move.from_type, from, count, from_step, false, accesses);
      add_run(move.to, move.to_type, to, count, to_step, true, accesses);
    }
  }
  static void add_run(const void* base, DType dtype, Index first, Index count, Index step, bool writes,
                      std::vector<Access>& accesses) {
    const auto size = static_cast<std::size_t>(size_of(dtype));
    const auto* data = static_cast<const std::byte*>(base);
    if (step == 1)
      return accesses.push_back(range(data + first * size_of(dtype), static_cast<std::size_t>(count) * size, writes));
    for (Index i = 0; i < count; ++i)
      accesses.push_back(range(data + (first + i * step) * size_of(dtype), size, writes));
  }

  std::mutex mutex_;
  std::mt19937 random_;
  Arena arena_;
  StagingMemory staging_{[this] {
    const std::scoped_lock lock(mutex_);
    run_all();
  }};
  std::deque<Queue> streams_{1};  // stream 0 is the one without a name
  std::map<std::thread::id, Clock> host_clocks_;
  std::map<std::thread::id, int> host_waits_;
  AccessHistory history_;
  std::string race_;
  bool missed_ = false, forgets_kind_ = false;
  Priority waiter_ = Priority::normal, awaited_ = Priority::normal;
  int calls_ = 0, failing_ = 0, waits_ = 0, forgotten_ = 0;
  Index done_ = 0;
};

}  // namespace partita::test
