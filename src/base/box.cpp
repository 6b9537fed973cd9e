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

std::array<int, max_dims> memory_order(std::string_view names) {
  std::array<int, max_dims> order{};
  std::size_t next = 0;
  const auto channels = names.find('C');
  for (std::size_t d = 0; d < names.size(); ++d)
    if (d != channels) order[next++] = static_cast<int>(d);
  if (channels != std::string_view::npos) order[next] = static_cast<int>(channels);
  return order;
}

bool is_run(std::string_view names, const Box& whole, const Box& part) {
  const auto order = memory_order(names);
  bool cut = false;  // a slower dimension has several elements, so that the faster ones must be whole
  for (int i = 0; i < part.dims(); ++i) {
    const int d = order[i];
    if (cut && part.extent(d) != whole.extent(d)) return false;
    cut = cut || part.extent(d) > 1;
  }
  return true;
}

}  // namespace partita
