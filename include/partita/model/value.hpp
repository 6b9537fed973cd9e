#pragma once

#include <string>

namespace partita {

/// The output of a layer: an input for other layers, and a name of the layer for strategies and plans.
struct Value {
  int layer = -1;     ///< the layer's position in its model
  std::string name;   ///< the layer's name
  std::string model;  ///< the model's name
};

}  // namespace partita
