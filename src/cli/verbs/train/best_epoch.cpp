#include "src/cli/verbs/train/best_epoch.hpp"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

namespace partita::cli {

bool BestEpoch::add(Index epoch, double loss) {
  const bool lowest = !std::isnan(loss) && (epoch_ == 0 || loss < loss_);
  waited_ = lowest ? 0 : waited_ + 1;
  if (!lowest) return false;
  epoch_ = epoch;
  loss_ = loss;
  return true;
}

std::string BestEpoch::print() const { return fmt::format("{} {} {}", epoch_, loss_, waited_); }

void BestEpoch::restore(const std::string& text) {
  std::istringstream in(text);
  BestEpoch read(patience_);
  if (in >> read.epoch_ >> read.loss_ >> read.waited_) *this = read;
}

}  // namespace partita::cli
