#pragma once

#include "partita/train/data/dataset.hpp"

#include <string>

namespace partita {

/// Throws Error for a label that is not a class: that of the element `offset` of a box of a sample's target.
[[noreturn]] void fail_label(const Dataset& data, Index sample, const Box& box, Index offset, const std::string& label);

}  // namespace partita
