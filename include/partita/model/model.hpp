#pragma once

#include "partita/base/activation.hpp"
#include "partita/model/layers.hpp"
#include "partita/model/value.hpp"

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <utility>
#include <vector>

namespace partita {

/// One layer: an operator with a name and its inputs.
struct Layer {
  std::string name;
  std::shared_ptr<const Operator> op;
  std::vector<int> inputs;  ///< indices of the input layers, each less than this layer's
  /// index of the model's first layer with an equal operator (equal_operators); may be this layer
  int like = 0;
  int table = -1;  ///< the embedding whose table is its first weight (Operator::tied_to); -1: it has its own weights
};

/// Throws Error for a shape of more than 2^48 elements: the bytes of all layers together must fit in 64 bits.
void check_countable(const Shape& shape);

/// A network as a graph of named layers: names and shapes, no ranks, no devices. Layers must be added in an order in
/// which they can run. Every method that adds a layer throws Error with the layer's name if its inputs do not fit.
class Model {
 public:
  explicit Model(std::string name = "model") : name_(std::move(name)) {}

  // layers.hpp documents the options. N C ... stands for samples, channels and up to three spatial dimensions D H W.

  /// An input: N C ..., as the data set delivers it. A model has one or more, each with the name by which its data set
  /// knows it.
  Value input(const std::string& name, const Input& input);
  /// Convolution: N C ... becomes N F ... with Conv::filters channels.
  Value conv(const std::string& name, const Value& x, const Conv& conv);
  /// The adjoint of a convolution: N C ... becomes N F ... with ConvTranspose::filters channels.
  Value conv_transpose(const std::string& name, const Value& x, const ConvTranspose& conv);
  /// The maximum over a window of each channel. Padding counts as minus infinity.
  Value max_pool(const std::string& name, const Value& x, const Pool& pool);
  /// The mean over a window of each channel.
  Value average_pool(const std::string& name, const Value& x, const Pool& pool);
  /// The mean over all spatial dimensions: N C ... becomes N C.
  Value global_average_pool(const std::string& name, const Value& x);
  /// Normalization per channel, with statistics over the microbatch; in evaluation with running statistics. Same shape.
  Value batch_norm(const std::string& name, const Value& x, const BatchNorm& norm = {});
  /// Normalization per sample and group of channels. Same shape.
  Value group_norm(const std::string& name, const Value& x, const GroupNorm& norm = {});
  /// Group normalization with one group per channel (Ulyanov et al. 2016).
  Value instance_norm(const std::string& name, const Value& x, double epsilon = 1e-5);
  /// Normalization over the whole sample: group normalization with one group. With LayerNorm::per_place, over the
  /// channels of each place. Scale and shift are per channel. Same shape.
  Value layer_norm(const std::string& name, const Value& x, const LayerNorm& norm = {});
  /// Normalization by the mean square over the channels of each place. Same shape.
  Value rms_norm(const std::string& name, const Value& x, const RmsNorm& norm = {});
  /// max(x, 0), element by element, as all activations.
  Value relu(const std::string& name, const Value& x);
  /// x where x > 0, else slope x.
  Value leaky_relu(const std::string& name, const Value& x, double slope = 0.01);
  /// x where x > 0, else alpha (exp x - 1).
  Value elu(const std::string& name, const Value& x, double alpha = 1);
  /// 1 / (1 + exp -x).
  Value sigmoid(const std::string& name, const Value& x);
  /// The hyperbolic tangent.
  Value tanh(const std::string& name, const Value& x);
  /// x P(X <= x) for a standard normal X (Hendrycks and Gimpel 2016).
  Value gelu(const std::string& name, const Value& x);
  /// x sigmoid(x).
  Value silu(const std::string& name, const Value& x);
  /// Adds any of the activations above.
  Value activation(const std::string& name, const Value& x, const Activation& f);
  /// f(x[2c]) x[2c+1] for each pair of channels, e.g. SwiGLU (Shazeer 2020): N 2F ... becomes N F ...
  Value gated(const std::string& name, const Value& x, const Activation& f = {Activation::Kind::silu});
  /// a + b, of equal shapes.
  Value add(const std::string& name, const Value& a, const Value& b);
  /// Concatenates the channels of all inputs, in the order of `inputs`.
  Value concatenate(const std::string& name, const std::vector<Value>& inputs);
  /// Enlarges every spatial dimension by Upsample::scale.
  Value upsample(const std::string& name, const Value& x, const Upsample& upsample = {});
  /// Removes `margins` from both sides of every spatial dimension.
  Value crop(const std::string& name, const Value& x, const Padding& margins);
  /// Moves spatial blocks into channels (the inverse of Shi et al. 2016). `block` must divide the spatial extents.
  Value space_to_depth(const std::string& name, const Value& x, const PerDim& block);
  /// Sets elements to zero at random in training, and scales the others. Same shape.
  Value dropout(const std::string& name, const Value& x, const Dropout& dropout = {});
  /// A fully-connected layer: N C ... becomes N C with Linear::features channels. With Linear::per_place, the other
  /// dimensions stay.
  Value linear(const std::string& name, const Value& x, const Linear& linear);
  /// Tokens N 1 L of an input with Input::tokens become N F L with Embedding::features channels.
  Value embedding(const std::string& name, const Value& tokens, const Embedding& embedding);
  /// The sum or the mean of the rows of a bag, from a table for each place: indices N P L of an input with
  /// Input::tokens become N F L with Tables::features channels.
  Value tables(const std::string& name, const Value& indices, const Tables& tables);
  /// The products of all pairs of vectors (Naumov et al. 2019): vectors N F L and one more, `dense` N F, become N C,
  /// with the F channels of `dense` and a product for each of the (L + 1) L / 2 pairs.
  Value interaction(const std::string& name, const Value& vectors, const Value& dense);
  /// The positions of images as the places of a sequence, in their order: N C D H W becomes N C L.
  Value places(const std::string& name, const Value& x);
  /// Adds a learned vector to each place. Same shape.
  Value positions(const std::string& name, const Value& x, const Positions& positions = {});
  /// Turns queries and keys by their place. Same shape.
  Value rotary(const std::string& name, const Value& x, const Rotary& rotary);
  /// Attention between all places of a sequence: N (heads + 2 groups) dim L becomes N heads dim L.
  Value attention(const std::string& name, const Value& x, const Attention& attention);
  /// The same, where a place sees only places of its own segment: packed documents, or content but no padding.
  /// `segments` N 1 L is an input with Input::tokens, with a whole number for each place: places are of one segment if
  /// their numbers are equal. It has no gradient.
  Value attention(const std::string& name, const Value& x, const Value& segments, const Attention& attention);
  /// The places of a sequence in the slots of the experts that they choose: x[N C L] and scores[N E L] become
  /// N (E C) S, where channels from e C on are those of expert e, and S is the number of its slots. Slots without a
  /// place are 0.
  Value dispatch(const std::string& name, const Value& x, const Value& scores, const Experts& experts);
  /// The places back from their slots: scores[N E L], the same as those of `dispatch`, and slots N (E F) S become
  /// N F L, the sum over the slots of a place of gate * slot.
  Value combine(const std::string& name, const Value& scores, const Value& slots, const Experts& experts);
  /// The loss, and the fraction of correct predictions. x is N C ... with one channel per class; the target has one
  /// label per spatial position.
  Value softmax_cross_entropy(const std::string& name, const Value& x, const CrossEntropy& labels = {});
  /// A loss that measures the overlap of labels and predictions, for rare classes: 1 - the mean over samples and
  /// channels of (2 sum p g + 1)/(sum p + sum g + 1), with p = softmax(x), g = 1 in the label's channel, else 0.
  Value softmax_dice(const std::string& name, const Value& x, const Dice& labels = {});
  /// Regression losses: the target has the shape of x.
  Value mean_squared_error(const std::string& name, const Value& x);
  Value mean_absolute_error(const std::string& name, const Value& x);
  /// Adds a layer with a user-defined operator, e.g. a CustomLayer.
  Value layer(const std::string& name, std::shared_ptr<const Operator> op, const std::vector<Value>& inputs);

  const std::string& name() const { return name_; }
  const std::vector<Layer>& layers() const { return layers_; }
  /// Position of the layer called `name`, or -1.
  int find(std::string_view name) const;
  /// Returns the output of the layer called `name`. Throws Error with the nearest name if there is none.
  Value value(std::string_view name) const;
  /// Returns the position of the value's layer. Throws Error if the value is of another model.
  int find(const Value& value) const;
  /// Returns the same model, with the same weights, for passes over `places` places of its sequences of tokens, which
  /// know what was kept of the places before them (Generator). Throws Error if the model reads no tokens, or if a layer
  /// computes a place from later ones (Operator::place_use).
  Model at_places(Index places) const;
  /// The layers of the whole model that at_places() has left out, by their positions there. Rules may name them.
  const std::map<int, std::string>& left_out() const { return left_out_; }
  /// Returns the layers that receive samples, in their order.
  std::vector<int> inputs() const;
  /// Returns the shapes of all layers' outputs for one sample.
  const std::vector<Shape>& shapes() const { return shapes_; }
  /// Returns the shape of one layer's output. `inputs` are the shapes of its inputs; `batch` is used only if it has
  /// none.
  Shape shape(int layer, std::span<const Shape> inputs, Index batch) const;
  /// Returns the shapes of all layers' outputs for a batch.
  std::vector<Shape> shapes(Index batch) const;
  /// Returns the shapes of one layer's inputs. `outputs` are the output shapes of all layers.
  std::vector<Shape> inputs_of(int layer, const std::vector<Shape>& outputs) const;
  /// Number of trained weight elements. A tied table counts once.
  Index weights() const;
  /// One line per layer. A checkpoint stores this text and must agree with it.
  std::string describe() const;

 private:
  /// Returns the position of a value's layer, or -1 if the value is of another model, or of a layer that is left out.
  int position(const Value& value) const;
  /// Returns Layer::table of a layer with that operator. Throws Error if it cannot share the table.
  int table_of(const Operator& op, std::span<const Shape> inputs) const;

  std::string name_;
  std::vector<Layer> layers_;
  std::vector<Shape> shapes_;  // for one sample
  // class, and kind with description, of an operator -> the first layer that has an equal one (equal_operators)
  std::map<std::pair<std::type_index, std::string>, int> likes_;
  std::map<int, std::string> left_out_;
};

}  // namespace partita
