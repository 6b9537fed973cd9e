#pragma once

#include "partita/base/shape.hpp"

#include <array>
#include <string>
#include <vector>

namespace partita {

/// The half-open interval [lo, hi) of coordinates; empty where hi <= lo.
struct Interval {
  Index lo = 0;
  Index hi = 0;
  Index extent() const { return hi > lo ? hi - lo : 0; }
  bool empty() const { return hi <= lo; }
  bool operator==(const Interval&) const = default;
};

/// The common part of two intervals.
Interval intersect(Interval a, Interval b);

/// A half-open box in global coordinates, one interval a dimension. A value.
class Box {
 public:
  Box() = default;
  explicit Box(int dims) : dims_(dims) {}
  /// Everything of `shape`: [0, extent) in each dimension.
  explicit Box(const Shape& shape);

  int dims() const { return dims_; }
  Interval& operator[](int d) { return sides_[static_cast<std::size_t>(d)]; }
  const Interval& operator[](int d) const { return sides_[static_cast<std::size_t>(d)]; }
  Index extent(int d) const { return (*this)[d].extent(); }
  bool empty() const;
  /// Number of elements.
  Index volume() const;
  /// True if every element of `other` is in this box.
  bool contains(const Box& other) const;
  /// e.g. "[0,4)x[3,7)".
  std::string print() const;

  /// Equal intervals; all empty boxes of the same number of dimensions are not equal by being empty.
  bool operator==(const Box&) const = default;

 private:
  int dims_ = 0;
  std::array<Interval, max_dims> sides_{};
};

/// The common part of two boxes of the same number of dimensions.
Box intersect(const Box& a, const Box& b);

/// The parts of `whole` outside `hole`, disjoint, at most two a dimension: faces of dimension 0 first, in full width.
std::vector<Box> subtract(const Box& whole, const Box& hole);

}  // namespace partita
