#pragma once

#include "partita/base/shape.hpp"
#include "partita/device/tensor.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// What one rank holds of a tensor of one microbatch: a box of consecutive samples. Fill it sample by sample with
/// fill(), or element by element with partita::fill(tensor, shape, f).
struct SampleBlock {
  Index first_sample = 0;  ///< of the microbatch, in the batch: N of `tensor` counts from it
  Shape shape;             ///< of the whole microbatch, on all ranks together
  Tensor tensor;           ///< N first; channels vary fastest in memory; an empty box if the rank holds none of it
  std::string input = {};  ///< the name of the input layer whose samples it holds; "" for targets and predictions

  /// `sample` is a position in the batch. `box` is the part of the sample that the block holds, without N (e.g. C H W).
  /// `values` are the box's elements in logical row-major order.
  using Writer = std::function<void(Index sample, const Box& box, std::span<double> values)>;
  using Reader = std::function<void(Index sample, const Box& box, std::span<const double> values)>;

  /// Sets each sample of the block to the values that `write` leaves. They are 0 when it is called.
  void fill(const Writer& write) const;
  /// Shows each sample of the block to `read`.
  void read(const Reader& read) const;
  /// Throws Error that names the loss and the sample if the block holds labels and one is not in [0, classes).
  void check_labels(std::string_view loss, Index classes, std::optional<Index> ignored) const;
};

/// One rank's part of a batch, with blocks for each microbatch. Trainer::make_batch() makes it; its values are 0 until
/// somebody fills them.
struct LocalBatch {
  Index samples = 0;  ///< of the whole batch, on all ranks together
  /// A block for each of the model's inputs, in its order, for each microbatch; empty boxes where another stage runs
  /// the input.
  std::vector<SampleBlock> images;
  std::vector<SampleBlock> targets;  ///< labels (i32), or values; empty boxes on ranks of earlier stages

  /// Fills all images. Throws Error if the model has several inputs.
  void fill_images(const SampleBlock::Writer& write) const;
  /// Fills all images of one input. Throws Error with the nearest name if the model has no such input.
  void fill_images(std::string_view input, const SampleBlock::Writer& write) const;
  /// Fills all targets.
  void fill_targets(const SampleBlock::Writer& write) const;
};

}  // namespace partita
