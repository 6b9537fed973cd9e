#pragma once

#include "partita/base/types.hpp"

#include <cstddef>
#include <vector>

namespace partita {

/// A segment of memory from each rank of a communicator on one node, which all of them can access.
class Segments {
 public:
  /// Takes over the mapped segments, of `bytes` bytes each; null for one that could not be mapped.
  Segments(std::vector<std::byte*> parts, Index bytes);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  /// The segment of a rank, in the address space of this process. It begins at a page and is zero at first.
  std::byte* of(int rank) const { return parts_[rank]; }

 private:
  std::vector<std::byte*> parts_;
  Index bytes_;
};

/// Returns the free bytes of the file system that holds shared memory, or -1 if it cannot be found out.
Index free_shared_bytes();

}  // namespace partita
