#include "partita/base/box.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

Box::Box(const Shape& shape) : dims_(shape.dims()) {
  for (int d = 0; d < dims_; ++d) (*this)[d] = {0, shape.extent(d)};
}

bool Box::empty() const {
  for (int d = 0; d < dims_; ++d)
    if ((*this)[d].empty()) return true;
  return false;
}

Index Box::volume() const {
  Index volume = 1;
  for (int d = 0; d < dims_; ++d) volume *= extent(d);
  return volume;
}

bool Box::contains(const Box& other) const {
  if (other.empty()) return true;
  for (int d = 0; d < dims_; ++d)
    if (other[d].lo < (*this)[d].lo || other[d].hi > (*this)[d].hi) return false;
  return true;
}

std::string Box::print() const {
  std::string text;
  for (int d = 0; d < dims_; ++d) text += fmt::format("{}[{},{})", d == 0 ? "" : "x", (*this)[d].lo, (*this)[d].hi);
  return text;
}

Box intersect(const Box& a, const Box& b) {
  require(a.dims() == b.dims(), "intersected boxes must have the same number of dimensions");
  Box common(a.dims());
  for (int d = 0; d < a.dims(); ++d) common[d] = intersect(a[d], b[d]);
  return common;
}

std::vector<Box> subtract(const Box& whole, const Box& hole) {
  const Box common = intersect(whole, hole);
  if (common.empty()) return whole.empty() ? std::vector<Box>{} : std::vector<Box>{whole};
  std::vector<Box> parts;
  Box rest = whole;
  for (int d = 0; d < whole.dims(); ++d) {
    Box below = rest;
    below[d].hi = common[d].lo;
    if (!below.empty()) parts.push_back(below);
    Box above = rest;
    above[d].lo = common[d].hi;
    if (!above.empty()) parts.push_back(above);
    rest[d] = common[d];
  }
  return parts;
}

}  // namespace partita
