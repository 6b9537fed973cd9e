#pragma once

#include "partita/model/model.hpp"

#include <string>
#include <vector>

namespace partita {

/// Two convolutions with batch normalisation and two linear layers for 28x28 grey images of 10 classes; 421,738
/// weights.
Model fashion_cnn();

/// Names of the built-in models.
std::vector<std::string> builtin_models();
/// The built-in model of that name; throws Error, with the nearest name, if there is none.
Model builtin_model(const std::string& name);

}  // namespace partita
