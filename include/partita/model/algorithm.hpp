#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace partita {

/// How a layer runs where its channels are sharded. Operator::algorithms() says which of them a kind of layer has.
/// Below, C = A B is one of the matrix products of a linear layer.
enum class Algorithm : std::uint8_t {
  automatic,         ///< "auto": the plan chooses
  stationary_x,      ///< "stationary-x", of convolutions: x stays, y is reduce-scattered
  stationary_y,      ///< "stationary-y", of convolutions: x is gathered, y stays
  stationary_w,      ///< "stationary-w", of convolutions: x is gathered, y is reduce-scattered
  groups,            ///< "groups", of grouped convolutions: no group is cut
  summa_a,           ///< "summa-a", of linear layers: A stays, B is gathered, C is summed
  summa_b,           ///< "summa-b", of linear layers: B stays, A is gathered, C is summed
  summa_c,           ///< "summa-c", of linear layers: C stays, A and B are gathered
  dot,               ///< "dot", of linear layers: nothing is gathered, C is summed
  two_and_a_half_d,  ///< "2.5d", of linear layers: SUMMA, replicated over a third axis (Solomonik and Demmel 2011)
};

/// The algorithm's name in strategy files, e.g. "stationary-w".
std::string_view name(Algorithm algorithm);

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
