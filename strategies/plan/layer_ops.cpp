#include "strategies/plan/layer_ops.hpp"

#include <algorithm>
#include <array>

namespace partita {

bool splits_backward(const Schedule& schedule) {
  const auto filters = [](const Action& action) { return action.kind == Action::Kind::backward_filter; };
  return std::any_of(schedule.stages.begin(), schedule.stages.end(), [&](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), filters);
  });
}

std::span<const Action::Kind> microbatch_actions(bool training, bool split) {
  using enum Action::Kind;
  static constexpr std::array whole{forward, backward};
  static constexpr std::array halves{forward, backward_data, backward_filter};
  if (!training) return std::span(whole).first(1);
  return split ? std::span<const Action::Kind>(halves) : std::span<const Action::Kind>(whole);
}

}  // namespace partita
