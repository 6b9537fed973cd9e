#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/comm/communicator.hpp"

#include <cstring>
#include <span>
#include <vector>

namespace partita::textbook {

/// Sends one message to `to` and receives one from `from` at the same time, and waits. An empty buffer makes no
/// message.
inline void swap(Communicator& comm, int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  const Send send{to, out};
  const Recv recv{from, in};
  comm.exchange({&send, out.empty() ? 0U : 1U}, {&recv, in.empty() ? 0U : 1U}, {}).wait();
}
inline void send_to(Communicator& comm, int to, std::span<const std::byte> out) { swap(comm, to, out, to, {}); }
inline void receive_from(Communicator& comm, int from, std::span<std::byte> in) { swap(comm, from, {}, from, in); }

/// A buffer divided into consecutive blocks of `counts` elements.
template <class Byte>
class Blocks {
 public:
  Blocks(Byte* data, std::span<const Index> counts, DType dtype) : data_(data), bounds_(counts.size() + 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) bounds_[i + 1] = bounds_[i] + counts[i] * size_of(dtype);
  }
  std::span<Byte> operator[](int block) const { return range(block, block + 1); }
  /// Returns the bytes of the blocks `first` to `last` - 1, which are contiguous.
  std::span<Byte> range(int first, int last) const {
    const Index begin = bounds_[first], end = bounds_[last];
    return {data_ + begin, static_cast<std::size_t>(end - begin)};
  }
  std::span<Byte> all() const { return range(0, static_cast<int>(bounds_.size()) - 1); }

 private:
  Byte* data_;
  std::vector<Index> bounds_;
};

inline Blocks<const std::byte> blocks(const void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<const std::byte*>(data), counts, dtype};
}
inline Blocks<std::byte> blocks(void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<std::byte*>(data), counts, dtype};
}

inline void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  require(from.size() == to.size(), "a copied block must keep its size");
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

inline std::span<std::byte> buffer_of(void* data, Index count, DType dtype) {
  return {static_cast<std::byte*>(data), static_cast<std::size_t>(count * size_of(dtype))};
}

/// Divides `count` elements into `parts` blocks whose sizes differ by at most one. The larger blocks come first.
inline std::vector<Index> balanced(Index count, int parts) {
  std::vector<Index> counts(static_cast<std::size_t>(parts), count / parts);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count % parts); ++i) ++counts[i];
  return counts;
}

/// Returns, for each place of a fold, the sum of the counts of its ranks.
inline std::vector<Index> folded(const Fold& fold, std::span<const Index> counts) {
  std::vector<Index> sums(static_cast<std::size_t>(fold.core));
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) sums[fold.place(rank)] += counts[rank];
  return sums;
}

}  // namespace partita::textbook
