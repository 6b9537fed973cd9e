#pragma once

#include "partita/model/builtin/builtin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

// Parts that several built-in models share.

namespace partita {

/// A model under construction, with the requested sizes.
struct Draft {
  Model m;
  ModelSize size;

  /// `published` gives the sizes that are not requested.
  Draft(const std::string& name, const ModelSize& asked, const ModelSize& published) : m(name), size(asked) {
    if (size.extent == 0) size.extent = published.extent;
    if (size.channels == 0) size.channels = published.channels;
    if (size.classes == 0) size.classes = published.classes;
  }
  /// Adds the input, with `dims` spatial dimensions of equal extent.
  Value input(std::size_t dims) {
    return m.input("image", {.channels = size.channels, .spatial = std::vector<Index>(dims, size.extent)});
  }
  /// Scales a published number of channels or features by the model's width.
  Index wide(Index published) const {
    return std::max<Index>(1, std::llround(static_cast<double>(published) * size.width));
  }

  /// Adds a convolution (with stride 1 it keeps the extents), batch normalization and ReLU, named `name`, bn_`name` and
  /// relu_`name`.
  Value conv_bn_relu(const std::string& name, Value x, Index filters, Index kernel, Index stride = 1) {
    return m.relu("relu_" + name, conv_bn(name, x, filters, kernel, stride));
  }
  Value conv_bn(const std::string& name, Value x, Index filters, Index kernel, Index stride = 1) {
    const Value y = m.conv(
        name, x, {.filters = filters, .kernel = kernel, .stride = stride, .padding = (kernel - 1) / 2, .bias = false});
    return m.batch_norm("bn_" + name, y, size.batch_norm);
  }
  Value conv_relu(const std::string& name, Value x, const Conv& conv) {
    return m.relu("relu_" + name, m.conv(name, x, conv));
  }
  Value linear_relu(const std::string& name, Value x, Index features) {
    return m.relu("relu_" + name, m.linear(name, x, {.features = features}));
  }
};

}  // namespace partita
