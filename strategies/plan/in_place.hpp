#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Marks the layers that overwrite their input (LayerPlan::in_place), and what the layers before them may apply
/// (LayerPlan::next_activation). The input is read by no other layer, and not needed after the forward of its reader.
void mark_in_place(Plan& plan);

}  // namespace partita
