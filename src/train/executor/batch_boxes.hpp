#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Return the box of images of an input layer, or of the target, that a rank of the world reads for a microbatch; N
/// counts from the microbatch's first sample. The box is empty on stages that do not run the layer, or the loss.
Box image_box(const Plan& plan, int layer, int microbatch, int rank);
Box target_box(const Plan& plan, int microbatch, int rank);

}  // namespace partita
