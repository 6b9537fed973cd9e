#pragma once

#include "partita/train/kernels/kernel.hpp"

namespace partita {

std::unique_ptr<Kernel> make_input_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_conv_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_conv_transpose_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_pool_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_resample_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_space_to_depth_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_global_average_pool_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_group_norm_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_batch_norm_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_activation_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_add_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_concatenate_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_dropout_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_linear_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_place_linear_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_place_norm_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_embedding_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_tables_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_interaction_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_places_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_positions_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_gated_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_rotary_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_attention_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_whole_attention_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_dispatch_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_combine_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_cross_entropy_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_dice_kernel(const LayerPlan& layer, int rank);
std::unique_ptr<Kernel> make_difference_kernel(const LayerPlan& layer, int rank);
/// The kernel of a CustomLayer; null for any other operator.
std::unique_ptr<Kernel> make_custom_kernel(const LayerPlan& layer, int rank);

/// Returns true on the first of the ranks that hold parts of one sum. It adds what must be in the sum once.
inline bool is_first(const Layout& sum, int rank) { return sum.grid().group(rank, sum.partial()).front() == rank; }

/// Returns the state of type S that a kernel keeps, created on first use.
template <class S>
S& state(const KernelCall& call) {
  if (!call.saved) call.saved = std::make_unique<S>();
  return static_cast<S&>(*call.saved);
}

}  // namespace partita
