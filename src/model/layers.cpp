#include "partita/model/layers.hpp"

#include "partita/base/error.hpp"

namespace partita {

void PerDim::check(std::size_t dims, std::string_view what, Index least) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("{} has {} values for {} spatial dimensions; give one value for all, or one per dimension", what,
         values_.size(), dims);
  for (const Index value : values_)
    if (value < least) fail("{} is {}; it must be {} or more", what, value, least);
}

void Padding::check(std::size_t dims, std::string_view what) const {
  if (values_.size() != 1 && values_.size() != dims)
    fail("{} has {} values for {} spatial dimensions; give one value for all, or one per dimension", what,
         values_.size(), dims);
  for (const auto& sides : values_)
    if (sides.lo < 0 || sides.hi < 0) fail("{} is {},{}; it must be 0 or more", what, sides.lo, sides.hi);
}

}  // namespace partita
