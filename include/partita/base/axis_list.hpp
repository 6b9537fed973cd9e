#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

namespace partita {

/// The maximum number of axes of a grid.
inline constexpr int max_axes = 16;

/// An ordered list of axes of one grid, e.g. the axes that shard a dimension, major axis first. It stores its elements
/// inline, without a heap allocation, because plans hold thousands of these lists.
class AxisList {
 public:
  AxisList() = default;
  AxisList(std::initializer_list<int> axes) {
    for (const int axis : axes) push_back(axis);
  }
  AxisList(const std::uint8_t* begin, const std::uint8_t* end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  std::uint8_t* begin() { return axes_.data(); }
  std::uint8_t* end() { return axes_.data() + count_; }

  const std::uint8_t* begin() const { return axes_.data(); }
  const std::uint8_t* end() const { return axes_.data() + count_; }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  int operator[](std::size_t i) const { return axes_[i]; }

  void push_back(int axis) { insert(count_, axis); }
  /// Inserts an axis before position `at`; `at` may be size().
  /// @pre The list has fewer than `max_axes` axes.
  void insert(std::size_t at, int axis) {
    std::copy_backward(begin() + at, end(), axes_.data() + count_ + 1);
    axes_[at] = static_cast<std::uint8_t>(axis);
    ++count_;
  }

  bool operator==(const AxisList& other) const {
    for (std::size_t i = 0; i < count_; ++i)  // a list has one or two axes: the loop is faster than a call of memcmp
      if (axes_[i] != other.axes_[i]) return false;
    return count_ == other.count_;
  }

 private:
  std::array<std::uint8_t, max_axes> axes_{};
  std::uint8_t count_ = 0;
};

}  // namespace partita
