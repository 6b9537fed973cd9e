#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace partita {

/// The maximum number of dimensions of a tensor: N C D H W.
inline constexpr int max_dims = 5;

/// A named dimension. Names are single letters: N C D H W L V, and F for the outputs of a weight.
struct Dim {
  char name = '?';
  Index extent = 0;
  bool operator==(const Dim&) const = default;
};

/// The global shape of a tensor: an ordered list of named extents, in logical order (N C D H W).
class Shape {
 public:
  Shape() = default;
  /// Throws Error if a name repeats, an extent is negative, or there are more than `max_dims` dimensions.
  Shape(std::initializer_list<Dim> dims);

  /// Appends a dimension. Throws Error as the constructor does.
  void push_back(Dim dim);

  int dims() const { return dims_; }
  char name(int d) const { return names_[d]; }
  Index extent(int d) const { return extents_[d]; }
  /// Returns the position of the dimension called `name`, or -1.
  int find(char name) const;
  bool has(char name) const { return find(name) >= 0; }
  /// Returns the extent of the dimension called `name`. Throws Error if there is none.
  Index operator[](char name) const;
  /// Returns the names of the dimensions in order, e.g. "NCHW".
  std::string_view names() const { return {names_.data(), static_cast<std::size_t>(dims_)}; }
  /// Returns the number of elements.
  Index volume() const;
  /// Returns e.g. "N=128 C=1 H=28 W=28".
  std::string print() const;

  bool operator==(const Shape& other) const {
    for (std::size_t d = 0; d < static_cast<std::size_t>(dims_); ++d)
      if (extents_[d] != other.extents_[d] || names_[d] != other.names_[d]) return false;
    return dims_ == other.dims_;
  }

 private:
  int dims_ = 0;
  std::array<char, max_dims> names_{};
  std::array<Index, max_dims> extents_{};
};

/// Returns true for the dimensions that a window slides over: D, H, W and the places of a sequence, L.
constexpr bool is_spatial(char dim) { return dim == 'D' || dim == 'H' || dim == 'W' || dim == 'L'; }

}  // namespace partita
