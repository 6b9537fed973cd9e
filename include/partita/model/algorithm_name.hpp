#pragma once

#include "partita/layouts/algorithm.hpp"

#include <string>
#include <utility>

namespace partita {

/// What a strategy asks of one layer: an Algorithm, or the text of a strategy file.
class AlgorithmName {
 public:
  // NOLINTBEGIN(google-explicit-constructor): rules are written as {.algorithm = "stationary-w"}
  AlgorithmName(Algorithm algorithm) : text_(name(algorithm)) {}
  AlgorithmName(std::string text) : text_(std::move(text)) {}
  AlgorithmName(const char* text) : text_(text) {}
  // NOLINTEND(google-explicit-constructor)
  /// One for each product of a linear layer.
  AlgorithmName(Algorithm y, Algorithm dx, Algorithm dw);

  /// "stationary-w", or "summa-c/auto/dot".
  const std::string& text() const { return text_; }
  friend bool operator==(const AlgorithmName&, const AlgorithmName&) = default;

 private:
  std::string text_;
};

}  // namespace partita
