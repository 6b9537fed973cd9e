#include "partita/train/kernels/kernel.hpp"

#include "partita/base/error.hpp"
#include "src/train/kernels/kernels.hpp"

#include <map>

namespace partita {

namespace {

std::map<std::string, KernelFactory>& factories() {
  static std::map<std::string, KernelFactory> table{
      {"input", make_input_kernel},
      {"conv", make_conv_kernel},
      {"conv_transpose", make_conv_transpose_kernel},
      {"max_pool", make_pool_kernel},
      {"average_pool", make_pool_kernel},
      {"global_average_pool", make_global_average_pool_kernel},
      {"upsample", make_resample_kernel},
      {"crop", make_resample_kernel},
      {"space_to_depth", make_space_to_depth_kernel},
      {"batch_norm", make_norm_kernel},
      {"group_norm", make_group_norm_kernel},
      {"relu", make_activation_kernel},
      {"leaky_relu", make_activation_kernel},
      {"elu", make_activation_kernel},
      {"sigmoid", make_activation_kernel},
      {"tanh", make_activation_kernel},
      {"gelu", make_activation_kernel},
      {"silu", make_activation_kernel},
      {"add", make_add_kernel},
      {"concatenate", make_concatenate_kernel},
      {"dropout", make_dropout_kernel},
      {"linear", make_linear_kernel},
      {"softmax_cross_entropy", make_cross_entropy_kernel},
      {"softmax_dice", make_dice_kernel},
      {"mean_squared_error", make_difference_kernel},
      {"mean_absolute_error", make_difference_kernel},
  };
  return table;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const LayerPlan& layer, int rank) {
  const auto found = factories().find(std::string(layer.op->kind()));
  if (found == factories().end())
    fail("layer '{}': no kernel is registered for its kind '{}'; call register_kernel before running", layer.name,
         layer.op->kind());
  return found->second(layer, rank);
}

void register_kernel(const std::string& kind, KernelFactory factory) {
  if (!factories().emplace(kind, std::move(factory)).second)
    fail("a kernel for the kind '{}' is registered already", kind);
}

}  // namespace partita
