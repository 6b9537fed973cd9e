#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/train/trainer_options.hpp"

#include <optional>

namespace partita {

/// Decides, alike on every rank, whether a step may update the weights. Between the sums of the gradients and the
/// update, the ranks share in one small reduction what each has found, and what each was asked to do. This reduction is
/// not counted as traffic.
///
/// For f16 it also chooses the loss scale, a power of two that the gradients of the loss are multiplied with. So
/// gradients below the range of f16 survive. A step in which they exceed the range is skipped, and the scale is halved.
/// After many good steps it is doubled (Micikevicius et al.: Mixed Precision Training, ICLR 2018).
class StepGuard {
 public:
  enum class Verdict : std::uint8_t { update, skip, fail };

  /// @pre `world` outlives the guard.
  StepGuard(const TrainerOptions& options, Communicator& world);

  /// What one rank knows after its part of a step.
  struct Found {
    bool finite = true;  ///< its part of the loss
    double squares = 0;  ///< the sum of the squares of its part of the gradients
    /// its part of the mean of the weights of the target's elements; none if all of them count alike. The gradients are
    /// still those of the mean over all elements
    std::optional<double> weight = {};
  };
  /// Returns what to do after a step. Collective: every rank of the world calls it.
  Verdict decide(const Found& mine);
  /// The norm of the gradients of the last step over all weights.
  double norm() const { return norm_; }
  /// What the gradients of the last step are multiplied with, so that they belong to the mean over what counts, and
  /// their norm is at most Optimizer::clip_norm.
  double factor() const { return mean_ * (clip_norm_ > 0 && norm_ > clip_norm_ ? clip_norm_ / norm_ : 1); }
  /// Returns the smallest number of all ranks. Collective. Not counted as traffic.
  int least(int mine);
  /// True if decide() may return `skip`. Then a step must be able to undo what its forward changed.
  bool may_skip() const { return scales_ || on_nan_ == OnNan::skip; }
  /// The factor of the loss's gradients in the next step; 1 for other types than f16.
  double scale() const { return state_.scale; }

  /// What a checkpoint keeps.
  struct State {
    double scale = 1;
    Index good_steps = 0;  ///< since the scale changed
    Index not_finite = 0;  ///< steps that were skipped because a number was not finite
    Index beyond_f16 = 0;  ///< steps that were skipped because gradients exceeded the range of f16
    Index skipped() const { return not_finite + beyond_f16; }
  };
  const State& state() const { return state_; }
  void restore(const State& state);
  /// What any rank was asked since the last call (TrainerOptions::requests), alike on every rank.
  Requests take_requests();
  /// True if the run ended because too many steps in a row were skipped.
  bool gave_up() const { return in_a_row_ >= most_in_a_row; }

  static constexpr Index most_in_a_row = 100;

 private:
  Communicator& world_;
  OnNan on_nan_;
  bool scales_;
  double clip_norm_, norm_ = 0, mean_ = 1;
  std::function<Requests()> asked_;
  State state_;
  Requests requests_;
  Index in_a_row_ = 0;
};

}  // namespace partita
