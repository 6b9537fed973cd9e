#pragma once

#include "partita/model/model.hpp"

#include <vector>

namespace partita {

/// A model with one layer of each class, so that repeated blocks are bound and estimated once. Layers of one class have
/// equal costs under any pattern that all layers follow: they have the same operator and shapes, and compute gradients
/// of the same inputs.
struct LayerClasses {
  Model model;                      ///< the first layer of each class, in model order
  std::vector<int> of_layer;        ///< by layer of the original model: its class
  std::vector<double> occurrences;  ///< by class: number of layers
  explicit LayerClasses(const Model& model);
};

}  // namespace partita
