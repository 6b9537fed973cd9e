#pragma once

#include "test/support/lazy_device.hpp"

namespace partita::test {

/// The items of a capture, with which each launch fills the streams once more.
class LazyDevice::LazyGraph final : public Graph {
 public:
  LazyGraph(LazyDevice& device, std::size_t origin, std::vector<std::pair<std::size_t, Item>> items)
      : device_(device), origin_(origin), items_(std::move(items)) {}
  void launch(std::span<const OtherSource> others) override { device_.launch(origin_, items_, others); }

 private:
  LazyDevice& device_;
  std::size_t origin_;
  std::vector<std::pair<std::size_t, Item>> items_;
};

inline std::unique_ptr<Graph> LazyDevice::end() {
  const std::scoped_lock lock(mutex_);
  require(present() != nullptr, "a capture must have begun");
  const auto captured = std::move(captures_.extract(std::this_thread::get_id()).mapped());
  count_call("end a capture");
  captured_.clear();
  for (const auto& [stream, item] : captured->items)
    if (item.run) ++captured_[item.what];
  return std::make_unique<LazyGraph>(*this, captured->origin, std::move(captured->items));
}

inline void LazyDevice::launch(std::size_t origin, const std::vector<std::pair<std::size_t, Item>>& items,
                               std::span<const OtherSource> others) {
  const std::scoped_lock lock(mutex_);
  count_call("launch a graph");
  refuse_in_capture("launch a graph");
  ++launches_;
  std::vector<std::size_t> mine;
  for (std::size_t s = 0; s < engine_.streams().size(); ++s)
    if (engine_.streams()[s].owner == std::this_thread::get_id()) mine.push_back(s);
  const auto meet = [&] {  // all streams of this thread wait for each other
    for (const std::size_t s : mine)
      if (s != origin) push(origin, {.awaits = mark_in(s), .host = host_clock()});
    const auto together = mark_in(origin);
    for (const std::size_t s : mine)
      if (s != origin) push(s, {.awaits = together, .host = host_clock()});
  };
  meet();
  std::map<const Moment*, std::shared_ptr<Moment>> moments;  // of the capture, and of this launch
  const auto now = [&](const std::shared_ptr<Moment>& captured) {
    if (!captured) return captured;
    auto& moment = moments[captured.get()];
    if (!moment) {
      moment = std::make_shared<Moment>();
      moment->stream = captured->stream;
    }
    return moment;
  };
  for (const auto& each : items) {
    const Item& captured = each.second;
    Item item = captured;
    item.host = host_clock();
    item.marks = now(captured.marks);
    item.awaits = now(captured.awaits);
    item.forgets = now(captured.forgets);
    const auto other = std::find_if(others.begin(), others.end(), [&](const OtherSource& one) {
      return captured.source != nullptr && one.captured == captured.source;
    });
    if (captured.source != nullptr) {
      const void* const source = other != others.end() ? other->now : captured.source;
      item.run = captured.from_other(source);
      const auto bytes = captured.accesses.front().end - captured.accesses.front().begin;
      item.accesses.front() = range(source, bytes, false);  // reads come before writes
    }
    push(each.first, std::move(item));
  }
  meet();
}

}  // namespace partita::test
