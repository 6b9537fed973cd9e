#include "src/cli/verbs/train/best_epoch.hpp"

#include "src/base/plain_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

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
  const auto first = text.find(' '), last = text.rfind(' ');
  if (first == last) return;
  const std::string_view words = text;
  const auto epoch = parse_number<Index>(words.substr(0, first)), waited = parse_number<Index>(words.substr(last + 1));
  const auto loss = parse_number<double>(words.substr(first + 1, last - first - 1));
  if (!epoch || !loss || !waited) return;
  epoch_ = *epoch;
  loss_ = *loss;
  waited_ = *waited;
}

}  // namespace partita::cli
