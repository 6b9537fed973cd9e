#include "partita/train/trainer/class_counts.hpp"

#include "partita/base/dispatch.hpp"
#include "partita/base/error.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace partita {

namespace {

enum Block : Index { right, labeled, predicted, matrix_row };

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

ClassCounts::ClassCounts(Index classes, std::optional<Index> ignored) : classes_(classes), ignored_(ignored) {
  if (classes_ == 0) return;
  const Index blocks = matrix_row + (has_matrix() ? classes_ : 0);
  counts_.resize(static_cast<std::size_t>(1 + blocks * classes_));
}

template <class T>
void ClassCounts::add_rows(const T* scores, std::span<const std::int32_t> labels) {
  const T* end = scores;
  for (const Index label : labels) {
    scores = end;
    end = scores + classes_;
    if (label == ignored_) continue;
    const T* best = std::max_element(scores, end);
    const Index prediction = best - scores;
    *at(labeled, label) += 1;
    *at(predicted, prediction) += 1;
    if (label == prediction) *at(right, label) += 1;
    if (has_matrix()) *at(matrix_row + label, prediction) += 1;
    if (has_top5()) {
      const T mine = scores[label];
      const auto before = std::count_if(scores, scores + label, [&](T score) { return !(score < mine); });
      const auto after = std::count_if(scores + label + 1, end, [&](T score) { return score > mine; });
      if (before + after < 5) counts_[0] += 1;
    }
  }
}

void ClassCounts::add(const Tensor& scores, const Tensor& labels) {
  require(scores.extent('C') == classes_, "the scores have a channel per class");
  require(labels.volume() * classes_ == scores.volume(), "there is one label per row of channels");
  const std::span rows(labels.as<std::int32_t>(), static_cast<std::size_t>(labels.volume()));
  dispatch_float(scores.dtype(), [&](auto t) { add_rows(scores.as<decltype(t)>(), rows); });
}

void ClassCounts::sum(Communicator& world) {
  world.all_reduce(counts_.data(), static_cast<Index>(counts_.size()), DType::f64, ReduceOp::sum, {}).wait();
}

double ClassCounts::total(Index block) const {
  return classes_ == 0 ? 0 : std::accumulate(at(block, 0), at(block, 0) + classes_, 0.0);
}

Index ClassCounts::positions() const { return static_cast<Index>(total(labeled)); }

double ClassCounts::accuracy() const { return positions() == 0 ? nan : total(right) / total(labeled); }

double ClassCounts::top5() const { return positions() == 0 ? nan : counts_[0] / total(labeled); }

double ClassCounts::mean_iou() const {
  double sum = 0, present = 0;
  for (Index c = 0; c < classes_; ++c) {
    const double either = *at(labeled, c) + *at(predicted, c) - *at(right, c);
    if (either == 0) continue;
    sum += *at(right, c) / either;
    present += 1;
  }
  return present == 0 ? nan : sum / present;
}

std::vector<std::vector<Index>> ClassCounts::matrix() const {
  require(has_matrix(), "the counts have a confusion matrix");
  std::vector<std::vector<Index>> rows;
  for (Index label = 0; label < classes_; ++label) {
    auto& row = rows.emplace_back();
    for (Index c = 0; c < classes_; ++c) row.push_back(static_cast<Index>(*at(matrix_row + label, c)));
  }
  return rows;
}

}  // namespace partita
