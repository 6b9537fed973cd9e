#pragma once

#include "partita/base/types.hpp"

#include <mpi.h>

#include <memory>
#include <vector>

namespace partita {

/// A segment of memory from each rank of a communicator on one node, which all of them can access.
class Segments {
 public:
  /// Reserves `bytes` bytes on every rank, all pages of them, so that no later access can fail for want of memory.
  /// Returns null on every rank if it fails on any rank. Collective: every rank of `comm` calls it.
  static std::unique_ptr<Segments> make(MPI_Comm comm, Index bytes);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  /// The segment of a rank, in the address space of this process. It begins at a page and is zero at first.
  std::byte* of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }

 private:
  explicit Segments(Index bytes) : bytes_(bytes) {}

  Index bytes_;
  std::vector<std::byte*> parts_;
};

/// Returns the free bytes of the file system that holds shared memory, or -1 if it cannot be found out.
Index free_shared_bytes();

}  // namespace partita
