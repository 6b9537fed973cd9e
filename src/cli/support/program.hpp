#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <functional>

namespace partita::cli {

/// A function that makes the model. It is empty if `--model` chooses a built-in model.
using ModelFactory = std::function<Model()>;

/// What a program declares in C++.
struct Program {
  ModelFactory model;
  std::function<Strategy()> strategy;  ///< empty if only the command line gives strategies

  /// True if the program has the options that choose a built-in model.
  bool builtin() const { return !model; }
};

}  // namespace partita::cli
