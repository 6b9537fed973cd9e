#include "src/train/executor/step_guard.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace partita {

namespace {

// A gradient of about 1 stays in the range of f16 (65504), and one of 1e-11 does not vanish.
constexpr double first_scale = 4096, highest_scale = 1 << 24;
constexpr Index good_steps_to_double = 500;

}  // namespace

StepGuard::StepGuard(const TrainerOptions& options, Communicator& world)
    : world_(world),
      on_nan_(options.on_nan),
      scales_(options.dtype == DType::f16),
      clip_norm_(options.optimizer.clip_norm),
      asked_(options.requests) {
  if (scales_) state_.scale = first_scale;
}

StepGuard::Verdict StepGuard::decide(const Found& mine) {
  const Requests asked = asked_ ? asked_() : Requests{};
  const bool finite = std::isfinite(mine.squares);
  std::array<double, 6> any{mine.finite ? 0.0 : 1.0, finite ? 0.0 : 1.0,        asked.save ? 1.0 : 0.0,
                            asked.stop ? 1.0 : 0.0,  finite ? mine.squares : 0, mine.weight.value_or(0)};
  world_.all_reduce(any.data(), any.size(), DType::f64, ReduceOp::sum, {}).wait();
  mean_ = !mine.weight ? 1 : any[5] > 0 ? 1 / any[5] : 0;
  norm_ = any[1] > 0 ? std::numeric_limits<double>::quiet_NaN() : std::sqrt(any[4]) * mean_;
  requests_.save = requests_.save || any[2] > 0;
  requests_.stop = requests_.stop || any[3] > 0;
  if (any[0] == 0 && any[1] == 0) {
    in_a_row_ = 0;
    if (scales_ && ++state_.good_steps == good_steps_to_double) {
      state_.scale = std::min(2 * state_.scale, highest_scale);
      state_.good_steps = 0;
    }
    return Verdict::update;
  }
  if (scales_ && any[0] == 0 && state_.scale > 1) {
    state_.scale /= 2;
    state_.good_steps = 0;
    ++state_.beyond_f16;
    return Verdict::skip;
  }
  if (on_nan_ == OnNan::stop || ++in_a_row_ >= most_in_a_row) return Verdict::fail;
  ++state_.not_finite;
  return Verdict::skip;
}

int StepGuard::least(int mine) {
  double negative = -mine;
  if (world_.size() > 1) world_.all_reduce(&negative, 1, DType::f64, ReduceOp::max, {}).wait();
  return static_cast<int>(-negative);
}

void StepGuard::restore(const State& state) {
  const double scale = scales_ && state.scale >= 1 ? state.scale : state_.scale;
  state_ = state;
  state_.scale = scale;
}

Requests StepGuard::take_requests() { return std::exchange(requests_, {}); }

}  // namespace partita
