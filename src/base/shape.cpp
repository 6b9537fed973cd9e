#include "partita/base/shape.hpp"

#include "partita/base/error.hpp"

namespace partita {

Shape::Shape(std::initializer_list<Dim> dims) {
  for (const auto& dim : dims) push_back(dim);
}

void Shape::push_back(Dim dim) {
  if (dims_ == max_dims) fail("a tensor has at most {} dimensions; '{}' would be one more", max_dims, dim.name);
  if (has(dim.name)) fail("dimension {} is named twice in the shape {}", dim.name, print());
  if (dim.extent < 0) fail("dimension {} has the negative extent {}", dim.name, dim.extent);
  names_[dims_] = dim.name;
  extents_[dims_] = dim.extent;
  ++dims_;
}

int Shape::find(char name) const {
  for (int d = 0; d < dims_; ++d)
    if (this->name(d) == name) return d;
  return -1;
}

Index Shape::operator[](char name) const {
  const int d = find(name);
  if (d < 0) fail("there is no dimension {} in the shape {}", name, print());
  return extent(d);
}

Index Shape::volume() const {
  Index volume = 1;
  for (int d = 0; d < dims_; ++d) volume *= extent(d);
  return volume;
}

std::string Shape::print() const {
  std::string text;
  for (int d = 0; d < dims_; ++d) text += fmt::format("{}{}={}", d == 0 ? "" : " ", name(d), extent(d));
  return text;
}

}  // namespace partita
