#include "partita/model/layers.hpp"

#include "partita/base/error.hpp"

#include <limits>

namespace partita {

namespace {

/// The largest value of a window's parameters: products of two of them fit in 64 bits.
constexpr Index most = std::numeric_limits<std::int32_t>::max();

}  // namespace

void PerDim::check(std::size_t dims, std::string_view what, Index least) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("{} has {} values for {} spatial dimensions; give one value for all, or one per dimension", what,
         values_.size(), dims);
  for (const Index value : values_) {
    if (value < least) fail("{} is {}; it must be {} or more", what, value, least);
    if (value > most) fail("{} is {}; it must be {} or less", what, value, most);
  }
}

void Padding::check(std::size_t dims, std::string_view what) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("{} has {} values for {} spatial dimensions; give one value for all, or one per dimension", what,
         values_.size(), dims);
  for (const auto& sides : values_) {
    if (sides.lo < 0 || sides.hi < 0) fail("{} is {},{}; it must be 0 or more", what, sides.lo, sides.hi);
    if (sides.lo > most || sides.hi > most) fail("{} is {},{}; it must be {} or less", what, sides.lo, sides.hi, most);
  }
}

}  // namespace partita
