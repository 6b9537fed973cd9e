#pragma once

#include "partita/base/philox.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <algorithm>

namespace partita {

/// Sets a rank's part of a batch of shape `whole`, in the memory of the CPU, to what a model may get: normally
/// distributed numbers or, where its input is tokens, tokens that all its embeddings know.
inline void draw_images(const Tensor& images, const Shape& whole, const Plan& plan) {
  const Random random(1, 1);
  if (!plan.layers.front().op->integers()) return fill(images, whole, [&](Index i) { return random.normal(i); });
  Index vocabulary = Index{1} << 31;
  for (const LayerPlan& layer : plan.layers)  // only embeddings read tokens
    if (!layer.inputs.empty() && layer.inputs[0] == 0) vocabulary = std::min(vocabulary, layer->weights[0].shape['V']);
  fill(images, whole,
       [&](Index i) { return static_cast<double>(random.bits(i) % static_cast<std::uint64_t>(vocabulary)); });
}

}  // namespace partita
