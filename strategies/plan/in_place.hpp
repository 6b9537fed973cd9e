#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Marks the layers that overwrite their input (LayerPlan::in_place). The input is read by no other layer, and not
/// needed after the forward of its reader. Marks also what is fused: what the layers before them may apply
/// (LayerPlan::next_activation), what their readers compute (LayerPlan::drops), and which layers add their gradient to
/// that of other readers (LayerPlan::adds_gradient).
void mark_in_place(Plan& plan);

}  // namespace partita
