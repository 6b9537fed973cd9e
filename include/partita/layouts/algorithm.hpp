#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How a layer or a matrix product runs where its channels are sharded, or attention where its places are.
/// Operator::algorithms() says which of them a kind of layer has. Below, C = A B is one of the matrix products of a
/// linear layer.
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
  all_to_all,        ///< "all-to-all", of attention: places become groups of heads (Jacobs et al. 2023)
  ring,              ///< "ring", of attention: queries stay, keys and values travel (Liu et al. 2023)
  whole,             ///< "whole", of attention: the weights of all pairs of places are kept for backward
};

/// The algorithm's name in strategy files, e.g. "stationary-w".
std::string_view name(Algorithm algorithm);
/// As above, or `otherwise` for a layer that has no choice.
std::string_view name(std::optional<Algorithm> algorithm, std::string_view otherwise = "");
/// Returns the algorithm with this name, or nothing if there is none.
std::optional<Algorithm> algorithm_named(std::string_view name);
/// Returns the names of several algorithms.
std::vector<std::string> names_of(const std::vector<Algorithm>& algorithms);

}  // namespace partita
