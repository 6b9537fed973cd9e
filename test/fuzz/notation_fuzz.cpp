// A text that is read as a grid or a layout prints as text that reads back the same; otherwise there is an Error.
#include "partita/base/error.hpp"
#include "partita/layouts/layout.hpp"

#include <cstdlib>

using namespace partita;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Shape shape{{'N', 5}, {'C', 3}, {'H', 7}, {'W', 2}};
  try {
    const Layout layout = Layout::parse(text, shape, Grid::parse("data=2 y=3 x=2"));
    if (!(Layout::parse(layout.print(), shape, layout.grid()) == layout)) std::abort();
    for (int rank = 0; rank < layout.grid().size(); ++rank)
      if (!Box(shape).contains(layout.owned(rank)) && !layout.owned(rank).empty()) std::abort();
  } catch (const Error&) {
  }
  try {
    const Grid grid = Grid::parse(text);
    if (!(Grid::parse(grid.print()) == grid)) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
