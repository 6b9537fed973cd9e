#pragma once

#include "partita/base/error.hpp"
#include "src/device/capture.hpp"
#include "test/support/accesses.hpp"
#include "test/support/device_memory.hpp"
#include "test/support/lazy_engine.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace partita::test {

/// A device that does everything as late as its rules allow, in a random legal order: operations run only when the CPU
/// waits for a stream. So a missing event gives wrong numbers. Besides, it finds races (LazyEngine). Its memory is
/// closed to the CPU outside of operations. The ranks of a test share one device. It captures what one thread adds, and
/// refuses what CUDA cannot capture.
class LazyDevice final : public Device, public Capture {
 public:
  explicit LazyDevice(unsigned seed) : engine_(seed) {}

  std::string_view name() const override { return "lazy"; }
  bool host() const override { return false; }

  void* allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    count_call("allocate");
    refuse_in_capture("allocate memory");
    return arena_.allocate(bytes);
  }
  void release(void* data) override {
    std::unique_lock lock(mutex_);
    refuse_in_capture("release memory");
    end_use(data, arena_.block_of(data).size(), lock);
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
    refuse_in_capture("make a stream");
    auto& streams = engine_.streams();
    streams.push_back({.priority = priority, .owner = std::this_thread::get_id()});
    return {reinterpret_cast<void*>(streams.size() - 1)};
  }
  Event record(Stream stream) override {
    const std::scoped_lock lock(mutex_);
    count_call("record");
    return {mark_in(number_of(stream))};
  }
  void wait(Stream stream, const Event& event) override {
    const std::scoped_lock lock(mutex_);
    count_call("wait");
    const auto moment = std::static_pointer_cast<Moment>(event.native);
    if (!moment || moment->stream == number_of(stream)) return;
    Captured* const captured = present();
    if (moment->captured_by != number_of(captured))
      return;  // a launch comes after all streams, and all streams come after it
    if (captured != nullptr) captured->streams.insert(number_of(stream));
    Item item{.host = host_clock()};
    const bool kind =
        forgets_kind_ && of(stream).priority == waiter_ && engine_.streams().at(moment->stream).priority == awaited_;
    (++waits_ == forgotten_ || kind ? item.forgets : item.awaits) = moment;
    push(number_of(stream), std::move(item));
  }
  /// Its clock counts operations, in microseconds.
  Event mark(Stream stream) override { return record(stream); }
  double seconds(const Event& from, const Event& to) override {
    const std::scoped_lock lock(mutex_);
    refuse_in_capture("read a time");
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
    refuse_in_capture("look at an event");
    if (event.native == nullptr) return true;
    const auto moment = std::static_pointer_cast<Moment>(event.native);
    if (moment->captured_by != 0) fail("the CPU cannot look at an event of a capture");
    return moment->passed;
  }
  void finish(Stream stream) override {
    std::unique_lock lock(mutex_);
    count_call("finish");
    refuse_in_capture("wait for a stream");
    drain(stream, lock);
    fail_after_race();
  }
  void wait(const Event& event) override {
    std::unique_lock lock(mutex_);
    count_call("wait for an event");
    refuse_in_capture("wait for an event");
    const auto moment = std::static_pointer_cast<Moment>(event.native);
    if (!moment) return;
    if (!moment->passed) ++host_waits_[std::this_thread::get_id()];
    run_until(lock, [&] { return moment->passed; });
    LazyEngine::merge(host_clocks_[std::this_thread::get_id()], moment->clock);
    fail_after_race();
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
    if (staging_.owns(from)) return enqueue_copy(from, to, bytes, stream, std::move(accesses));
    enqueue("copy", stream, std::move(accesses), [=, held = std::move(values)] {
      host_device().copy(reads_cpu ? static_cast<const void*>(held.data()) : from, to, bytes, {});
    });
    if (reads_cpu || writes_cpu) refuse_pageable();
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
  /// Adds an operation to a stream that other streams do too: `meet` joins its meetings, while nobody else uses the
  /// device.
  void enqueue_meeting(std::string what, Stream stream, std::vector<Access> accesses,
                       std::function<LazyEngine::Meetings()> meet) {
    const std::scoped_lock lock(mutex_);
    count_call(what);
    push(number_of(stream), {.what = std::move(what),
                             .accesses = merged(std::move(accesses)),
                             .run = [] {},
                             .host = host_clock(),
                             .meet = std::move(meet)});
  }
  /// Adds an operation to a stream.
  void enqueue(std::string what, Stream stream, std::vector<Access> accesses, std::function<void()> run) {
    const std::scoped_lock lock(mutex_);
    count_call(what);
    push(number_of(stream), {.what = std::move(what),
                             .accesses = merged(std::move(accesses)),
                             .run = std::move(run),
                             .host = host_clock()});
  }

  Capture* capture() override { return this; }
  void begin(Stream stream) override {
    const std::scoped_lock lock(mutex_);
    count_call("begin a capture");
    refuse_in_capture("begin a capture");
    captures_[std::this_thread::get_id()] =
        std::make_unique<Captured>(Captured{++capture_count_, number_of(stream), {number_of(stream)}, {}});
  }
  std::unique_ptr<Graph> end() override;
  bool active() const override {
    const std::scoped_lock lock(mutex_);
    return present() != nullptr;
  }
  /// The number of launches of graphs.
  int launches() const { return launches_; }
  /// By name, how many operations the last graph has.
  const std::map<std::string, int>& captured() const { return captured_; }

  /// From now on, the stream that was made as number `stream`, from 1, runs only when no other one can.
  void starve(std::size_t stream) { engine_.starve(stream); }

  /// Of the calls of wait() that order two streams, number `call` does nothing.
  void forget_wait(int call) { forgotten_ = call; }
  /// No stream of priority `waiter` waits for an event of another stream, of priority `awaited`.
  void forget_waits(Priority waiter, Priority awaited) {
    forgets_kind_ = true;
    waiter_ = waiter;
    awaited_ = awaited;
  }
  /// True if a call that did nothing would have ordered more than the stream knew from other events.
  bool missed() const { return engine_.missed(); }
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
    std::unique_lock lock(mutex_);
    run_all(lock);
    fail_after_race();
  }

 private:
  using Moment = LazyEngine::Moment;
  using Item = LazyEngine::Item;
  /// What one thread captures.
  struct Captured {
    int number = 0;
    std::size_t origin = 0;
    std::set<std::size_t> streams;  // the first one, and those that have waited for another one of these
    std::vector<std::pair<std::size_t, Item>> items;
  };
  class LazyGraph;
  /// True for memory of the device.
  bool owns(const void* data) { return !block_of(data).empty(); }
  void finish_now(Stream stream) {
    std::unique_lock lock(mutex_);
    drain(stream, lock);
  }
  void drain(Stream stream, std::unique_lock<std::mutex>& lock) {
    LazyEngine::Queue& queue = of(stream);
    if (std::exchange(queue.unwaited, false)) ++host_waits_[std::this_thread::get_id()];
    run_until(lock, [&] { return queue.items.empty(); });
    LazyEngine::merge(host_clocks_[std::this_thread::get_id()], queue.clock);
  }

  static std::size_t number_of(Stream stream) { return reinterpret_cast<std::size_t>(stream.native); }
  LazyEngine::Queue& of(Stream stream) { return engine_.streams().at(number_of(stream)); }
  Captured* present() const {
    const auto found = captures_.find(std::this_thread::get_id());
    return found == captures_.end() ? nullptr : found->second.get();
  }
  static int number_of(const Captured* captured) { return captured == nullptr ? 0 : captured->number; }
  void refuse_in_capture(std::string_view what) const {
    if (present() != nullptr) fail("a thread that captures cannot {}", what);
  }
  void refuse_pageable() const {
    const std::scoped_lock lock(mutex_);
    refuse_in_capture("copy from or to memory of the CPU that is not staging");
  }
  /// Adds an item to a stream, or to the capture of the calling thread.
  void push(std::size_t stream, Item item) {
    Captured* const captured = present();
    if (captured == nullptr) {
      engine_.push(stream, std::move(item));
      return added_.notify_all();
    }
    if (!captured->streams.contains(stream)) fail("stream {} is not part of the capture", stream);
    captured->items.emplace_back(stream, std::move(item));
  }
  std::shared_ptr<Moment> mark_in(std::size_t stream) {
    auto moment = std::make_shared<Moment>();
    moment->stream = stream;
    moment->captured_by = number_of(present());
    push(stream, {.marks = moment, .host = host_clock()});
    return moment;
  }
  /// Copies from the staging memory. A launch may take another source. The CPU must leave it as it is until then.
  void enqueue_copy(const void* from, void* to, std::size_t bytes, Stream stream, std::vector<Access> accesses) {
    const auto copy_from = [to, bytes](const void* source) -> std::function<void()> {
      const auto* const first = static_cast<const std::byte*>(source);
      return [=, then = std::vector<std::byte>(first, first + bytes)] {
        if (!std::equal(then.begin(), then.end(), first))
          fail("the CPU has overwritten memory that a copy of {} bytes was still to read", bytes);
        host_device().copy(source, to, bytes, {});
      };
    };
    const std::scoped_lock lock(mutex_);
    count_call("copy");
    push(number_of(stream), {.what = "copy",
                             .accesses = merged(std::move(accesses)),
                             .run = copy_from(from),
                             .host = host_clock(),
                             .source = from,
                             .from_other = copy_from});
  }
  void launch(std::size_t origin, const std::vector<std::pair<std::size_t, Item>>& items,
              std::span<const OtherSource> others);
  void fail_after_race() const {
    if (!engine_.race().empty()) fail("{}", engine_.race());
  }
  Clock host_clock() { return host_clocks_[std::this_thread::get_id()]; }

  void count_call(std::string_view what) {
    if (++calls_ == failing_) fail("the call {} of the device fails: {}", calls_, what);
  }
  void run_all(std::unique_lock<std::mutex>& lock) {
    run_until(lock, [&] { return engine_.idle(); });
  }
  /// Opens the memory to the CPU while operations run.
  class Opened {
   public:
    explicit Opened(const Arena& arena) : arena_(arena) { arena_.open(true); }
    ~Opened() { arena_.open(false); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    const Arena& arena_;
  };

  /// Runs all that the calling thread has added, and what others have added that does not wait for this thread. Gives
  /// up if another rank has failed, so that destructors may call it.
  void run_everything_possible(std::unique_lock<std::mutex>& lock) {
    const auto mine = std::this_thread::get_id();
    const auto is_done = [&](const LazyEngine::Queue& queue) { return queue.owner != mine || queue.items.empty(); };
    const auto& streams = engine_.streams();
    const Opened opened(arena_);
    while (!std::all_of(streams.begin(), streams.end(), is_done))
      if (!run_one() && !others_come(lock)) return;
    while (!engine_.idle() && run_one()) {
    }
  }
  /// A device frees memory when it has done everything. The same bytes may come back, for another use.
  void end_use(const void* data, std::size_t bytes, std::unique_lock<std::mutex>& lock) {
    run_everything_possible(lock);
    engine_.forget(range(data, bytes, true));
  }
  /// Runs operations. Where all wait for those of other ranks, other threads may add them.
  template <class Done>
  void run_until(std::unique_lock<std::mutex>& lock, Done&& done) {
    const Opened opened(arena_);
    while (!done())
      if (!run_one() && !others_come(lock)) {
        fail_after_race();
        fail("a rank never came to a meeting");
      }
  }
  bool run_one() {
    const bool ran = engine_.run_one();
    if (!engine_.race().empty()) added_.notify_all();
    return ran;
  }
  /// Waits until another thread has added an operation. Returns false if that may never happen.
  bool others_come(std::unique_lock<std::mutex>& lock) {
    constexpr std::chrono::seconds patience{20};
    if (!engine_.race().empty()) return false;
    arena_.open(false);
    const auto end = added_.wait_for(lock, patience);
    arena_.open(true);
    return end == std::cv_status::no_timeout && engine_.race().empty();
  }

  mutable std::mutex mutex_;
  std::condition_variable added_;
  LazyEngine engine_;
  Arena arena_;
  StagingMemory staging_{[this](const void* data, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    end_use(data, bytes, lock);
  }};
  std::map<std::thread::id, Clock> host_clocks_;
  std::map<std::thread::id, int> host_waits_;
  std::map<std::thread::id, std::unique_ptr<Captured>> captures_;
  std::map<std::string, int> captured_;
  bool forgets_kind_ = false;
  Priority waiter_ = Priority::normal, awaited_ = Priority::normal;
  int calls_ = 0, failing_ = 0, waits_ = 0, forgotten_ = 0, launches_ = 0, capture_count_ = 0;
};

}  // namespace partita::test

#include "test/support/lazy_graph.hpp"
