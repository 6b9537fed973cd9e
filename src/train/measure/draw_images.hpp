#pragma once

#include "partita/base/philox.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "partita/train/trainer/local_batch.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace partita {

/// Sets a rank's part of a batch of shape `whole` of an input, in the memory of the CPU, to what a model may get:
/// normally distributed numbers or, where it is tokens, tokens that all its readers know. Segments are one.
inline void draw_images(const Tensor& images, const Shape& whole, const Plan& plan, int input) {
  const Random random(1, static_cast<std::uint64_t>(input) + 1);
  if (!plan.layers[input].op->integers()) return fill(images, whole, [&](Index i) { return random.normal(i); });
  Index vocabulary = Index{1} << 31;
  for (const LayerPlan& layer : plan.layers)  // embeddings, tables or, without weights, attention read them
    if (std::find(layer.inputs.begin(), layer.inputs.end(), input) != layer.inputs.end())
      vocabulary = std::min(vocabulary, layer->weights.empty() ? 1 : layer->weights[0].shape['V']);
  fill(images, whole,
       [&](Index i) { return static_cast<double>(random.bits(i) % static_cast<std::uint64_t>(vocabulary)); });
}

/// As draw_images(), for all inputs of a batch.
inline void draw_images(const LocalBatch& batch, const Plan& plan) {
  const std::vector<int> inputs = plan.inputs();
  for (std::size_t i = 0; i < batch.images.size(); ++i)
    draw_images(batch.images[i].tensor, batch.images[i].shape, plan, inputs[i % inputs.size()]);
}

}  // namespace partita
