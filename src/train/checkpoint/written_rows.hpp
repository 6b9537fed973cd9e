#pragma once

#include "partita/layouts/layout.hpp"
#include "partita/layouts/transfer.hpp"

#include <optional>

namespace partita {

/// Fewer bytes of a tensor than this are not worth a write of their own. Tests set it to a small number.
inline Index least_written_bytes = Index{64} << 10;

/// The rows of a tensor (blocks of its first dimension) that a rank of its grid writes to a file, if it writes any.
/// They are contiguous there. As many ranks write as have rows of least_written_bytes, evenly over the grid. An element
/// has `element` bytes in the file.
std::optional<Box> written_rows(const Layout& layout, int rank, Index element);

/// What a rank exchanges so that each has the rows that it writes. Each takes them from ranks with its coordinates
/// along the axes that replicate the tensor, so that replicas share the work. Peers are ranks of the grid.
struct RowsExchange {
  std::optional<Box> rows;  ///< that it writes
  TransferPlan transfer;
};
RowsExchange rows_exchange(const Layout& layout, int rank, Index element);

/// The elements that a rank holds beside the tensor while it gets its rows: the rows, unless they are all that it has,
/// and the buffers of messages if these are packed.
Index elements_to_write(const Layout& layout, int rank, Index element, bool packs);

}  // namespace partita
