#include "src/train/checkpoint/written_rows.hpp"

#include <algorithm>

namespace partita {

std::optional<Box> written_rows(const Layout& layout, int rank, Index element) {
  Box rows(layout.shape());
  if (rows.empty()) return std::nullopt;
  const int ranks = layout.grid().size();
  const Index most = std::max<Index>(rows.volume() * element / least_written_bytes, 1);
  const auto writers = rows.dims() == 0 ? 1 : static_cast<int>(std::min({Index{ranks}, most, rows.extent(0)}));
  const auto number_of = [&](int r) { return static_cast<int>(Index{r} * writers / ranks); };
  if (rank > 0 && number_of(rank) == number_of(rank - 1)) return std::nullopt;
  if (rows.dims() > 0) rows[0] = balanced_block(rows[0], writers, number_of(rank));
  return rows;
}

RowsExchange rows_exchange(const Layout& layout, int rank, Index element) {
  RowsExchange exchange{written_rows(layout, rank, element), {}};
  const Grid& grid = layout.grid();
  for (const int peer : grid.group(rank, grid.all() & ~layout.replicated())) {
    if (peer == rank) continue;
    const auto add = [&](std::vector<Transfer>& transfers, const Box& owned, const std::optional<Box>& written) {
      if (!written) return;
      if (const Box part = intersect(owned, *written); !part.empty()) transfers.push_back({peer, part});
    };
    add(exchange.transfer.sends, layout.owned(rank), written_rows(layout, peer, element));
    add(exchange.transfer.recvs, layout.owned(peer), exchange.rows);
  }
  return exchange;
}

Index elements_to_write(const Layout& layout, int rank, Index element, bool packs) {
  const RowsExchange exchange = rows_exchange(layout, rank, element);
  const Box own = layout.owned(rank);
  Index elements = !exchange.rows || *exchange.rows == own ? 0 : exchange.rows->volume();
  if (packs) {
    const auto [sent, received] =
        packed_elements(exchange.transfer, layout.shape().names(), own, exchange.rows.value_or(own));
    elements += sent + received;
  }
  return elements;
}

}  // namespace partita
