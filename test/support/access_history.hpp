#pragma once

#include "partita/base/types.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace partita::test {

/// Bytes of memory that an operation reads or writes.
struct Access {
  std::uintptr_t begin = 0, end = 0;
  bool writes = false;
};

/// For each stream, how many of its operations have happened before.
using Clock = std::vector<Index>;

/// One operation of a stream: the `number`th of that stream.
struct Operation {
  std::size_t stream = 0;
  Index number = 0;
  std::shared_ptr<const std::string> what{};

  bool happened_before(const Clock& clock, std::size_t own_stream) const {
    return stream == own_stream || (stream < clock.size() && number <= clock[stream]);
  }
};

/// For each byte, the operation that wrote it last, and those that have read it since, one for each stream. So the cost
/// of an access grows with the number of different ranges that it meets, not with the number of accesses before it
/// (Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009).
class AccessHistory {
 public:
  /// Adds an access by an operation that knows what `clock` holds. Returns an earlier operation that touched the same
  /// bytes, one of the two writing, and is not known to be done; nothing if there is none.
  std::optional<Operation> add(const Access& access, const Operation& operation, const Clock& clock) {
    if (access.begin >= access.end) return {};
    std::optional<Operation> race;
    const auto check = [&](const Operation& other) {
      if (!race && !other.happened_before(clock, operation.stream)) race = other;
    };
    const auto first = split(access.begin), last = split(access.end);
    for (auto at = first; at != last; ++at) {
      auto& [write, reads] = at->second;
      if (write) check(*write);
      if (access.writes)
        for (const Operation& read : reads) check(read);
      else
        add_read(reads, operation);
    }
    if (access.writes) {
      first->second = {operation, {}};
      ranges_.erase(std::next(first), last);
    }
    return race;
  }

  /// Forgets what touched these bytes.
  void forget(std::uintptr_t begin, std::uintptr_t end) {
    const auto first = split(begin), last = split(end);
    if (first == last) return;
    first->second = {};
    ranges_.erase(std::next(first), last);
  }

 private:
  struct Bytes {
    std::optional<Operation> write{};
    std::vector<Operation> reads{};
  };
  using Ranges = std::map<std::uintptr_t, Bytes>;

  /// Makes a range begin at an address, and returns it.
  Ranges::iterator split(std::uintptr_t address) {
    const auto next = ranges_.upper_bound(address);
    const auto before = std::prev(next);
    return before->first == address ? before : ranges_.emplace_hint(next, address, before->second);
  }
  static void add_read(std::vector<Operation>& reads, const Operation& operation) {
    const auto same = std::find_if(reads.begin(), reads.end(),
                                   [&](const Operation& read) { return read.stream == operation.stream; });
    if (same == reads.end())
      reads.push_back(operation);
    else
      *same = operation;  // whoever knows the later one to be done knows the earlier one too
  }

  Ranges ranges_{{0, {}}};  // by the first address; each range ends where the next one begins
};

}  // namespace partita::test
