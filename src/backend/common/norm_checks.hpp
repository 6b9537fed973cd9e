#pragma once

#include "partita/base/error.hpp"
#include "partita/device/tensor.hpp"
#include "src/backend/common/norm_extents.hpp"

namespace partita {

// What every backend checks of the tensors of a normalization (Backend::channel_sums and the functions after it).

/// Returns the extents of a tensor of `count` numbers for each part and channel.
inline NormExtents norm_extents(const Tensor& numbers, Index count) {
  require(numbers.dtype() == DType::f64 && numbers.names() == "SNC" && numbers.extent('S') == count,
          "numbers of a normalization must be an f64 tensor S N C");
  return {numbers.extent('N'), numbers.extent('C')};
}

/// x as parts of consecutive rows of channels, which are the innermost dimension.
struct NormParts {
  Index parts, rows, channels;
  Index a_group;  ///< channels of a group
};

/// Returns x cut into the parts and groups that its numbers have.
inline NormParts norm_parts(const Tensor& x, const NormExtents& numbers) {
  require(x.find('C') >= 0, "x must have channels");
  const Index channels = x.extent('C'), parts = numbers.parts, groups = numbers.channels;
  require(parts == 1 || parts == x.extent('N'), "a part must be all of x or one sample");
  require(groups == 0 ? channels == 0 : channels % groups == 0,
          "there must be one number for each channel or group of channels");
  return {parts, x.volume() > 0 ? x.volume() / channels / parts : 0, channels, groups == 0 ? 1 : channels / groups};
}

inline void check_sums(const NormExtents& sums, const NormParts& x) {
  require(sums == NormExtents{x.parts, x.channels}, "there must be one sum per part and channel");
}

inline void check_same(const NormExtents& a, const NormExtents& b) {
  require(a == b, "sums, moments and statistics must be of the same parts and channels");
}

inline void check_groups(const NormExtents& channels, const NormExtents& groups) {
  require(channels.parts == groups.parts, "a group must keep its part");
  require(groups.channels == 0 ? channels.channels == 0 : channels.channels % groups.channels == 0,
          "groups must divide the channels");
}

inline void check_one_part(const NormExtents& statistics) {
  require(statistics.parts == 1, "given statistics are those of all of x");
}

/// @param vector e.g. a scale
inline void check_channels(const Tensor& vector, Index channels) {
  require(vector.volume() == channels, "there must be one entry per channel");
}

}  // namespace partita
