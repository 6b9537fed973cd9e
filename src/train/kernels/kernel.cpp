#include "partita/train/kernels/kernel.hpp"

#include "partita/base/error.hpp"
#include "src/model/attention_operators.hpp"
#include "src/model/expert_operators.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <typeindex>
#include <unordered_map>

namespace partita {

namespace {

using Factory = std::unique_ptr<Kernel> (*)(const LayerPlan& layer, int rank);

/// The kernels of the built-in operators, by the operator's class: a factory relies on it. An operator of another class
/// finds none, whatever its kind() says.
const std::unordered_map<std::type_index, Factory>& kernel_factories() {
  static const std::unordered_map<std::type_index, Factory> table{
      {typeid(InputOperator), make_input_kernel},
      {typeid(ConvOperator), make_conv_kernel},
      {typeid(ConvTransposeOperator), make_conv_transpose_kernel},
      {typeid(PoolOperator), make_pool_kernel},
      {typeid(GlobalAveragePoolOperator), make_global_average_pool_kernel},
      {typeid(UpsampleOperator), make_resample_kernel},
      {typeid(CropOperator), make_resample_kernel},
      {typeid(SpaceToDepthOperator), make_space_to_depth_kernel},
      {typeid(BatchNormOperator), make_batch_norm_kernel},
      {typeid(GroupNormOperator), make_group_norm_kernel},
      {typeid(ActivationOperator), make_activation_kernel},
      {typeid(AddOperator), make_add_kernel},
      {typeid(ConcatenateOperator), make_concatenate_kernel},
      {typeid(DropoutOperator), make_dropout_kernel},
      {typeid(LinearOperator), make_linear_kernel},
      {typeid(PlaceLinearOperator), make_place_linear_kernel},
      {typeid(PlaceNormOperator), make_place_norm_kernel},
      {typeid(EmbeddingOperator), make_embedding_kernel},
      {typeid(TablesOperator), make_tables_kernel},
      {typeid(InteractionOperator), make_interaction_kernel},
      {typeid(PlacesOperator), make_places_kernel},
      {typeid(PositionsOperator), make_positions_kernel},
      {typeid(GatedOperator), make_gated_kernel},
      {typeid(RotaryOperator), make_rotary_kernel},
      {typeid(AttentionOperator), make_attention_kernel},
      {typeid(DispatchOperator), make_dispatch_kernel},
      {typeid(CombineOperator), make_combine_kernel},
      {typeid(CrossEntropyOperator), make_cross_entropy_kernel},
      {typeid(DiceOperator), make_dice_kernel},
      {typeid(DifferenceOperator), make_difference_kernel},
  };
  return table;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const LayerPlan& layer, int rank) {
  if (auto custom = make_custom_kernel(layer, rank)) return custom;
  const Operator& op = *layer.op;
  const auto found = kernel_factories().find(typeid(op));
  if (found == kernel_factories().end())
    fail("layer '{}': there is no kernel for its kind '{}'; derive its class from CustomLayer", layer.name, op.kind());
  return found->second(layer, rank);
}

}  // namespace partita
