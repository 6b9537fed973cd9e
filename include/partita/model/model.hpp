#pragma once

#include "partita/base/activation.hpp"
#include "partita/model/layers.hpp"
#include "partita/model/value.hpp"

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A layer: an operator with a name and its inputs.
struct Layer {
  std::string name;
  std::shared_ptr<const Operator> op;
  std::vector<int> inputs;  ///< layers, each before this one
  int like = 0;             ///< the first layer of the model with an equal operator (Operator::describe), maybe itself
};

/// A network as a graph of named layers: names and shapes, no ranks, no devices. Layers are added in an order in which
/// they can run. Every method throws Error with the layer's name if its inputs do not fit.
class Model {
 public:
  explicit Model(std::string name = "model") : name_(std::move(name)) {}

  Value input(const std::string& name, const Input& input);
  Value conv(const std::string& name, const Value& x, const Conv& conv);
  Value conv_transpose(const std::string& name, const Value& x, const ConvTranspose& conv);
  Value max_pool(const std::string& name, const Value& x, const Pool& pool);
  Value average_pool(const std::string& name, const Value& x, const Pool& pool);
  /// The mean over all of space: N C ... becomes N C.
  Value global_average_pool(const std::string& name, const Value& x);
  Value batch_norm(const std::string& name, const Value& x, const BatchNorm& norm = {});
  Value group_norm(const std::string& name, const Value& x, const GroupNorm& norm = {});
  /// A group a channel (Ulyanov et al. 2016).
  Value instance_norm(const std::string& name, const Value& x, double epsilon = 1e-5);
  /// One group, over all of a sample (Ba et al. 2016); scale and shift are a channel's.
  Value layer_norm(const std::string& name, const Value& x, double epsilon = 1e-5);
  Value relu(const std::string& name, const Value& x);
  Value leaky_relu(const std::string& name, const Value& x, double slope = 0.01);
  Value elu(const std::string& name, const Value& x, double alpha = 1);
  Value sigmoid(const std::string& name, const Value& x);
  Value tanh(const std::string& name, const Value& x);
  Value gelu(const std::string& name, const Value& x);
  Value silu(const std::string& name, const Value& x);
  /// Any of these.
  Value activation(const std::string& name, const Value& x, const Activation& f);
  Value add(const std::string& name, const Value& a, const Value& b);
  /// The channels of all inputs, one input after the other.
  Value concatenate(const std::string& name, const std::vector<Value>& inputs);
  Value upsample(const std::string& name, const Value& x, const Upsample& upsample = {});
  /// Takes margins off every side of space.
  Value crop(const std::string& name, const Value& x, const Padding& margins);
  /// Blocks of places become channels (Shi et al. 2016's inverse); they divide the extents.
  Value space_to_depth(const std::string& name, const Value& x, const PerDim& block);
  Value dropout(const std::string& name, const Value& x, const Dropout& dropout = {});
  Value linear(const std::string& name, const Value& x, const Linear& linear);
  /// The loss, and with it the number of correct predictions; x is N C ... with a channel a class, a label a place.
  Value softmax_cross_entropy(const std::string& name, const Value& x);
  /// The same for the overlap of labels and predictions, for classes that are rare.
  Value softmax_dice(const std::string& name, const Value& x);
  /// Losses of values: the target is shaped as x.
  Value mean_squared_error(const std::string& name, const Value& x);
  Value mean_absolute_error(const std::string& name, const Value& x);
  /// A layer of the user's own kind.
  Value layer(const std::string& name, std::shared_ptr<const Operator> op, const std::vector<Value>& inputs);

  const std::string& name() const { return name_; }
  const std::vector<Layer>& layers() const { return layers_; }
  /// Position of the layer called `name`, or -1.
  int find(std::string_view name) const;
  /// The output of the layer called `name`. Throws Error with the nearest name if there is none.
  Value value(std::string_view name) const;
  /// Position of the value's layer. Throws Error if the value is of another model.
  int find(const Value& value) const;
  /// Shapes of all layers' outputs for one sample.
  const std::vector<Shape>& shapes() const { return shapes_; }
  /// Shape of one layer's output, given those of its inputs, if it has any, and the batch if it has none.
  Shape shape(int layer, std::span<const Shape> inputs, Index batch) const;
  /// Shapes of all layers' outputs for a batch.
  std::vector<Shape> shapes(Index batch) const;
  /// Shapes of one layer's inputs, given those of all outputs.
  std::vector<Shape> inputs_of(int layer, const std::vector<Shape>& outputs) const;
  /// Number of trained weights.
  Index weights() const;
  /// One line a layer: what a checkpoint must agree with.
  std::string describe() const;

 private:
  bool holds(const Value& value) const;

  std::string name_;
  std::vector<Layer> layers_;
  std::vector<Shape> shapes_;         // for one sample
  std::map<std::string, int> likes_;  // kind and words of operators -> the first layer with one
};

}  // namespace partita
