#include "src/train/data/fail_label.hpp"

#include "partita/base/error.hpp"

namespace partita {

void fail_label(const Dataset& data, Index sample, const Box& box, Index offset, const std::string& label) {
  std::string place;
  for (int d = box.dims() - 1; d >= 0; --d) {
    place = fmt::format(" {}={}{}", data.target().name(d), box[d].lo + offset % box.extent(d), place);
    offset /= box.extent(d);
  }
  fail("data set '{}': sample {} has the label {}{}{}, but classes() is {}; labels are 0 to {}{}", data.name(),
       data.number(sample), label, place.empty() ? "" : " at", place, data.classes(), data.classes() - 1,
       place.empty() ? "" : "; give such places one of them");
}

}  // namespace partita
