#pragma once

#include "partita/base/error.hpp"
#include "partita/device/tensor.hpp"

namespace partita {

/// The elements of x as rows of channels, which are the innermost dimension.
struct ChannelRows {
  Index rows, channels;
  explicit ChannelRows(const Tensor& x) : rows(0), channels(x.extent('C')) {
    require(x.find('C') >= 0, "x must have channels");
    if (x.volume() > 0) rows = x.volume() / channels;
  }
};

}  // namespace partita
