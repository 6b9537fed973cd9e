#pragma once

#include "partita/device/memory.hpp"
#include "partita/train/data/dataset.hpp"

#include <memory>
#include <vector>

namespace partita {

/// Counts the bytes of the data sets that a trainer has announced samples to, as long as each of them lives.
class HeldData {
 public:
  explicit HeldData(std::shared_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {}

  /// Counts `predicted` bytes for `data`, instead of what was counted for it before. Throws Error if the memory limit
  /// would be exceeded.
  void expect(Dataset& data, Index predicted) {
    if (predicted == 0 && !data.counted_) return;
    const auto entry = std::make_shared<Entry>();
    data.counted_ = entry;
    entry->predicted = predicted;
    entry->account = Allocator::account(allocator_, predicted, MemoryClass::data);
    std::erase_if(entries_, [](const auto& each) { return each.expired(); });
    entries_.push_back(entry);
  }
  /// Counts what the data set really holds now.
  void settle(Dataset& data) {
    const Index held = data.held_bytes();
    for (const auto& each : entries_)
      if (const auto entry = each.lock(); entry && data.counted_ == entry) {
        entry->account.reset();
        entry->account = Allocator::account(allocator_, held, MemoryClass::data);
        return;
      }
    if (held > 0) expect(data, held);
  }
  /// Returns the bytes that all data sets were predicted to hold now.
  Index predicted() const {
    Index bytes = 0;
    for (const auto& each : entries_)
      if (const auto entry = each.lock()) bytes += entry->predicted;
    return bytes;
  }

 private:
  struct Entry {
    std::shared_ptr<const void> account;
    Index predicted = 0;
  };

  std::shared_ptr<Allocator> allocator_;
  std::vector<std::weak_ptr<Entry>> entries_;
};

}  // namespace partita
