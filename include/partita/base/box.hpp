#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/shape.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// The half-open interval [lo, hi) of coordinates. It is empty if hi <= lo.
struct Interval {
  Index lo = 0;
  Index hi = 0;
  PARTITA_HOST_DEVICE Index extent() const { return hi > lo ? hi - lo : 0; }
  bool empty() const { return hi <= lo; }
  bool operator==(const Interval&) const = default;
};

/// Returns the intersection of two intervals.
inline Interval intersect(Interval a, Interval b) {
  const Index lo = std::max(a.lo, b.lo);
  return {lo, std::max(lo, std::min(a.hi, b.hi))};
}

/// A half-open box in global coordinates: one interval per dimension.
class Box {
 public:
  Box() = default;
  explicit Box(int dims) : dims_(dims) {}
  /// The whole of `shape`: [0, extent) in each dimension.
  explicit Box(const Shape& shape);

  int dims() const { return dims_; }
  Interval& operator[](int d) { return sides_[d]; }
  const Interval& operator[](int d) const { return sides_[d]; }
  Index extent(int d) const { return (*this)[d].extent(); }
  bool empty() const;
  /// Returns the number of elements.
  Index volume() const;
  /// Returns true if every element of `other` is in this box.
  bool contains(const Box& other) const;
  /// Returns e.g. "[0,4)x[3,7)".
  std::string print() const;

  /// Compares the intervals. Two empty boxes with different intervals are not equal.
  bool operator==(const Box&) const = default;

 private:
  int dims_ = 0;
  std::array<Interval, max_dims> sides_{};
};

/// Returns the intersection of two boxes.
/// @pre The boxes have the same number of dimensions.
Box intersect(const Box& a, const Box& b);

/// Returns `whole` without `hole` as disjoint boxes, at most two per dimension. The boxes below and above `hole` in
/// dimension 0 come first and have the full width of `whole` in the other dimensions.
std::vector<Box> subtract(const Box& whole, const Box& hole);

/// Returns the dimensions of a tensor in memory, the slowest first: channels vary fastest.
std::array<int, max_dims> memory_order(std::string_view names);
/// Returns true if the elements of `part`, which lies inside `whole`, are contiguous in the memory of a tensor that
/// holds `whole`.
bool is_run(std::string_view names, const Box& whole, const Box& part);

}  // namespace partita
