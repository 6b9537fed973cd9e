// One step of a trainer, and what may come between its gradients and its update.
#include "partita/base/error.hpp"
#include "partita/train/run/trainer.hpp"
#include "src/train/run/held_data.hpp"
#include "src/train/run/replica_check.hpp"
#include "src/train/run/step_guard.hpp"

#include <cmath>
#include <limits>

namespace partita {

StepResult Trainer::run(Bound& bound, const Executor::Reader& reader, double rate) {
  StepResult result = bound.executor->run(reader, step_, rate);
  if (std::isnan(result.loss)) result.loss = std::numeric_limits<double>::quiet_NaN();  // a sign would be printed
  predicted_ += bound.predicted;
  if (result.skipped) predicted_ -= bound.of_update;
  predict_memory(bound);
  if (!bound.executor->failed()) return result;
  const std::string what =
      std::isfinite(result.loss) ? "a gradient is not finite" : fmt::format("the loss is not finite ({})", result.loss);
  const std::string where = bound.executor->inspect(reader, step_);
  const bool in_data = where.find("in the samples") == 0 || where.find("in the targets") == 0;
  throw RunFailed(
      fmt::format("step {}: {}{}; {}{}", step_ + 1, what,
                  guard_->gave_up() ? fmt::format(", as in the {} steps before", StepGuard::most_in_a_row - 1) : "",
                  where.empty() ? "when the step was repeated, all numbers were finite: suspect the hardware"
                                : fmt::format("the first such number appeared {}", where),
                  in_data ? "; mend the data set, or leave such steps out with --on-nan skip"
                  : options_.dtype == DType::f16
                      ? "; f16 holds numbers up to 65504 only: try --dtype bf16, a lower --rate or a --warm-up"
                      : "; try a lower --rate or a --warm-up"));
}

/// Counts a training step, and checks the replicas if it is time.
void Trainer::end_step() {
  ++step_;
  ++trained_;
  if (options_.check_replicas > 0 && step_ % options_.check_replicas == 0) check_replicas();
}

void Trainer::check_replicas() { partita::check_replicas(plan(), *parameters_, world_, step_); }

Requests Trainer::take_requests() { return guard_->take_requests(); }
Index Trainer::skipped_not_finite() const { return guard_->state().not_finite; }
Index Trainer::skipped_beyond_f16() const { return guard_->state().beyond_f16; }
double Trainer::loss_scale() const { return guard_->scale(); }

/// The step at which the decay of the learning rate ends.
Index Trainer::decay_end() const {
  if (options_.decay_steps > 0) return options_.decay_steps;
  return loaded_decay_ > 0 ? loaded_decay_ : total_steps_;
}

/// Throws RunFailed if the loss of an evaluation is not finite.
void Trainer::check_loss(const StepResult& result) const {
  if (!std::isfinite(result.loss))
    throw RunFailed(
        fmt::format("the loss of an evaluation is not finite ({}) after {}; look for such numbers in the data "
                    "set and in the weights",
                    result.loss, counted(trained_, "training step")));
}

}  // namespace partita
