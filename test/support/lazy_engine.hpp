#pragma once

#include "partita/base/error.hpp"
#include "partita/device/device.hpp"
#include "test/support/access_history.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace partita::test {

/// Streams of operations. It runs them one at a time, in a random order that streams and events allow, and finds every
/// pair of operations that touch the same bytes, one of them writing, without an order between them (races).
/// @pre One thread at a time uses it.
class LazyEngine {
 public:
  /// A moment in a stream.
  struct Moment {
    bool passed = false;
    std::size_t stream = 0;
    int captured_by = 0;  // the number of the capture in which it lies; 0: none
    Index time = 0;       // operations that were done before
    Clock clock{};
  };
  /// What several streams do together, when all of them have reached it.
  struct Meeting {
    virtual ~Meeting() = default;
    virtual void act() = 0;
    int missing = 0;  // streams that have not reached it
    bool done = false;
    Clock clock{};  // of the streams that have
  };
  using Meetings = std::vector<std::shared_ptr<Meeting>>;
  struct Item {
    std::string what{};
    std::vector<Access> accesses{};
    std::function<void()> run{};
    std::shared_ptr<Moment> marks{}, awaits{}, forgets{};
    Clock host{};                  // what the CPU knew to be done when it added the item
    const void* source = nullptr;  // of a copy from the staging memory
    std::function<std::function<void()>(const void*)> from_other{};  // the copy from another place
    std::function<Meetings()> meet{};                                // joins the meetings of the item
    Meetings meetings{};
    bool arrived = false;  // at its meetings
  };
  struct Queue {
    std::deque<Item> items{};
    Clock clock{};
    Priority priority = Priority::normal;
    std::thread::id owner{};  // the thread that made it
    bool unwaited = false;    // something was added since the CPU has waited for it
  };

  explicit LazyEngine(unsigned seed) : random_(seed) {}

  std::deque<Queue>& streams() { return streams_; }
  void push(std::size_t stream, Item item) {
    Queue& queue = streams_.at(stream);
    queue.unwaited = queue.unwaited || item.run;
    if (item.meet) item.meetings = item.meet();
    queue.items.push_back(std::move(item));
  }
  bool idle() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const Queue& queue) { return queue.items.empty(); });
  }
  /// Runs the first item of a drawn stream that may go on. Returns false if none may, but a stream waits at a meeting,
  /// and after a race, which ends everything.
  bool run_one() {
    if (!race_.empty()) return false;
    std::vector<std::size_t> ready;
    bool meets = false;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      const Readiness is = readiness(streams_[s]);
      if (is == Readiness::ready) ready.push_back(s);
      meets = meets || is == Readiness::meets;
    }
    require(!ready.empty() || meets, "a stream waits for an event that never passes");
    if (ready.empty()) return false;
    if (ready.size() > 1 && starved_) std::erase(ready, *starved_);
    run_first_of(ready[random_() % ready.size()]);
    return true;
  }
  /// From now on, a stream runs only when no other one can.
  void starve(std::size_t stream) { starved_ = stream; }
  /// Forgets what touched these bytes.
  void forget(const Access& block) { history_.forget(block.begin, block.end); }
  /// Describes the first race; "" if there was none.
  const std::string& race() const { return race_; }
  /// True if a forgotten event would have ordered more than its stream knew from other events.
  bool missed() const { return missed_; }

  static void merge(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (std::size_t s = 0; s < from.size(); ++s) to[s] = std::max(to[s], from[s]);
  }

 private:
  enum class Readiness : std::uint8_t { ready, meets, waits };

  static Readiness readiness(Queue& queue) {
    if (queue.items.empty()) return Readiness::waits;
    Item& item = queue.items.front();
    if (item.awaits && !item.awaits->passed) return Readiness::waits;
    bool complete = true;
    for (const auto& meeting : item.meetings) {
      if (!item.arrived) {
        --meeting->missing;
        merge(meeting->clock, queue.clock);
        merge(meeting->clock, item.host);
      }
      complete = complete && meeting->missing == 0;
    }
    item.arrived = true;
    return complete ? Readiness::ready : Readiness::meets;
  }

  void run_first_of(std::size_t stream) {
    Queue& queue = streams_[stream];
    const Item item = std::move(queue.items.front());
    queue.items.pop_front();
    merge(queue.clock, item.host);
    if (item.awaits) merge(queue.clock, item.awaits->clock);
    for (const auto& meeting : item.meetings) merge(queue.clock, meeting->clock);
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
    for (const auto& meeting : item.meetings)
      if (!std::exchange(meeting->done, true)) meeting->act();
    item.run();
  }

  static bool knows(const Clock& clock, const Moment& moment) {
    if (!moment.passed) return false;
    for (std::size_t s = 0; s < moment.clock.size(); ++s)
      if (moment.clock[s] > (s < clock.size() ? clock[s] : 0)) return false;
    return true;
  }
  /// Remembers the access, and notes a race with an earlier one.
  void note(const Access& access, const Operation& operation, const Clock& clock) {
    const auto other = history_.add(access, operation, clock);
    if (!other || !race_.empty()) return;
    race_ = fmt::format("a race: '{}' on stream {} and '{}' on stream {} touch the same bytes, without an event",
                        *other->what, other->stream, *operation.what, operation.stream);
  }

  std::mt19937 random_;
  std::deque<Queue> streams_{1};  // stream 0 is the one without a name
  AccessHistory history_;
  std::optional<std::size_t> starved_;
  std::string race_;
  bool missed_ = false;
  Index done_ = 0;
};

}  // namespace partita::test
