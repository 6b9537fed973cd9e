#pragma once

#include "partita/train/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// Random changes of training images, drawn by seed, epoch and sample: the same under every layout.
struct Augmentation {
  Index shift = 0;    ///< up to so many pixels in each spatial direction; zeros move in
  bool flip = false;  ///< mirrors half of the images left to right
};

/// Reads `box` (C H W of a sample) of the augmented sample, in the box's row-major order.
/// T is float or double: Dataset::read_input_f32 or Dataset::read_input, of the input of that number.
/// @pre `data` holds source_box() of the sample.
template <class T>
void read_augmented(const Dataset& data, Index sample, const Box& box, const Augmentation& augmentation,
                    std::uint64_t seed, Index epoch, std::span<T> out, int input = 0);
/// Returns the box of the original sample that can contribute to `box` of the augmented one.
Box source_box(const Shape& sample, const Box& box, const Augmentation& augmentation);

/// A permutation of 0 .. n-1 drawn by seed and epoch (Fisher and Yates).
std::vector<Index> shuffled(Index n, std::uint64_t seed, Index epoch);
/// Writes the same permutation of 0 .. order.size()-1 to `order`.
void shuffle(std::span<Index> order, std::uint64_t seed, Index epoch);
void shuffle(std::span<std::uint32_t> order, std::uint64_t seed, Index epoch);

}  // namespace partita
