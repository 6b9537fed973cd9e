#pragma once

#include "partita/base/dispatch.hpp"
#include "partita/base/tensor.hpp"

#include <vector>

namespace partita {

/// A box without its first dimension, N.
inline Box inside_of(const Box& box) {
  Box inside(box.dims() - 1);
  for (int d = 1; d < box.dims(); ++d) inside[d - 1] = box[d];
  return inside;
}

/// Sets the samples of a tensor N ...: `write(n, values)` sets those of position n in logical order. The tensor has
/// channels last.
template <class Value, class Write>
void write_samples(const Tensor& tensor, const Write& write) {
  const Box& box = tensor.box();
  if (box.empty()) return;
  const Index channels = tensor.extent('C'), volume = tensor.volume() / box.extent(0), places = volume / channels;
  std::vector<Value> values(static_cast<std::size_t>(volume));
  for (Index n = box[0].lo; n < box[0].hi; ++n) {
    write(n, values);
    dispatch(tensor.dtype(), [&](auto t) {
      auto* to = tensor.as<decltype(t)>() + (n - box[0].lo) * volume;
      for (Index place = 0; place < places; ++place)
        for (Index c = 0; c < channels; ++c)
          *to++ = static_cast<decltype(t)>(values[static_cast<std::size_t>(c * places + place)]);
    });
  }
}

}  // namespace partita
