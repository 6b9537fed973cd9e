#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/device/tensor.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace partita {

/// Counts right and wrong predictions by class. Each rank adds the predictions of its own positions, and one sum over
/// all ranks gives the counts of the whole pass. All counts are whole numbers below 2^53, so that the sum is exact in
/// any order: the result is the same under every layout.
class ClassCounts {
 public:
  static constexpr Index least_for_top5 = 10;   ///< with fewer classes, the best five say little
  static constexpr Index most_in_matrix = 100;  ///< classes of the largest confusion matrix that is kept

  /// @param classes the number of channels of the scores; 0 if the targets are values, which have no classes
  /// @param ignored the label of rows that count for nothing
  explicit ClassCounts(Index classes = 0, std::optional<Index> ignored = std::nullopt);

  /// Adds the predictions of one rank: for each row of channels of `scores`, the class with the largest score (the
  /// first if several are equal) and the row's label (i32).
  /// @pre There is one label per row, and each label that counts is a class. Both tensors lie in the memory of the CPU.
  void add(const Tensor& scores, const Tensor& labels);
  /// Sums the counts of all ranks. Collective: every rank of `world` calls it, once, with the same number of classes.
  void sum(Communicator& world);

  Index classes() const { return classes_; }
  /// The number of labels that were counted.
  Index positions() const;
  /// The fraction of right predictions; NaN if nothing was counted.
  double accuracy() const;
  bool has_top5() const { return classes_ >= least_for_top5; }
  /// The fraction of labels whose score is among the five largest of its row; of equal scores, the first class counts
  /// as larger. NaN if nothing was counted.
  double top5() const;
  /// The mean over classes of |predicted and labeled| / |predicted or labeled|. Classes that neither a label nor a
  /// prediction names are left out. NaN if nothing was counted.
  double mean_iou() const;
  bool has_matrix() const { return classes_ > 0 && classes_ <= most_in_matrix; }
  /// The confusion matrix: the number of positions of class [label] that were predicted as class [prediction].
  /// @pre has_matrix()
  std::vector<std::vector<Index>> matrix() const;

 private:
  double* at(Index block, Index c) { return counts_.data() + 1 + block * classes_ + c; }
  const double* at(Index block, Index c) const { return counts_.data() + 1 + block * classes_ + c; }
  template <class T>
  void add_rows(const T* scores, std::span<const std::int32_t> labels);
  double total(Index block) const;

  Index classes_ = 0;
  std::optional<Index> ignored_;
  // The labels among the best five, then blocks of one number a class: right predictions, labels, predictions, and the
  // rows of the confusion matrix.
  std::vector<double> counts_;
};

}  // namespace partita
