#include "partita/model/model.hpp"

#include "partita/base/error.hpp"
#include "src/model/attention_operators.hpp"
#include "src/model/expert_operators.hpp"
#include "src/model/operators.hpp"

#include <algorithm>

namespace partita {

void check_countable(const Shape& shape) {
  constexpr double most = 0x1p48;
  double elements = 1;
  for (int d = 0; d < shape.dims(); ++d) elements *= static_cast<double>(shape.extent(d));
  if (elements > most) fail("a tensor of {} has more than 2^48 elements", shape.print());
}

namespace {

/// Throws Error unless the name can be the path of a layer's weights in a checkpoint: words separated by single '/'.
void check_parts(const std::string& name) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part.empty())
      fail("layer '{}': a '/' in a layer's name must stand between two words, because it is a path in checkpoints",
           name);
    if (part == "." || part == "..")
      fail("layer '{}': a part of a layer's name must not be '{}', because the name is a path in checkpoints", name,
           part);
    begin = end + 1;
  }
}

}  // namespace

Value Model::input(const std::string& name, const Input& input) {
  return layer(name, std::make_shared<InputOperator>(input), {});
}

Value Model::conv(const std::string& name, const Value& x, const Conv& conv) {
  return layer(name, std::make_shared<ConvOperator>(conv), {x});
}

Value Model::conv_transpose(const std::string& name, const Value& x, const ConvTranspose& conv) {
  return layer(name, std::make_shared<ConvTransposeOperator>(conv), {x});
}

Value Model::max_pool(const std::string& name, const Value& x, const Pool& pool) {
  return layer(name, std::make_shared<PoolOperator>(pool, true), {x});
}

Value Model::average_pool(const std::string& name, const Value& x, const Pool& pool) {
  return layer(name, std::make_shared<PoolOperator>(pool, false), {x});
}

Value Model::global_average_pool(const std::string& name, const Value& x) {
  return layer(name, std::make_shared<GlobalAveragePoolOperator>(), {x});
}

Value Model::batch_norm(const std::string& name, const Value& x, const BatchNorm& norm) {
  return layer(name, std::make_shared<BatchNormOperator>(norm), {x});
}

Value Model::group_norm(const std::string& name, const Value& x, const GroupNorm& norm) {
  return layer(name, std::make_shared<GroupNormOperator>(norm), {x});
}

Value Model::instance_norm(const std::string& name, const Value& x, double epsilon) {
  // `layer` reports an x of another model.
  const int at = position(x);
  return group_norm(name, x, {at >= 0 ? shapes_[at]['C'] : 1, epsilon});
}

Value Model::layer_norm(const std::string& name, const Value& x, const LayerNorm& norm) {
  if (norm.per_place) return layer(name, std::make_shared<PlaceNormOperator>(norm.epsilon, true), {x});
  return group_norm(name, x, {1, norm.epsilon});
}

Value Model::rms_norm(const std::string& name, const Value& x, const RmsNorm& norm) {
  return layer(name, std::make_shared<PlaceNormOperator>(norm.epsilon, false), {x});
}

Value Model::activation(const std::string& name, const Value& x, const Activation& f) {
  return layer(name, std::make_shared<ActivationOperator>(f), {x});
}

Value Model::relu(const std::string& name, const Value& x) { return activation(name, x, {Activation::Kind::relu}); }
Value Model::sigmoid(const std::string& name, const Value& x) {
  return activation(name, x, {Activation::Kind::sigmoid});
}
Value Model::tanh(const std::string& name, const Value& x) { return activation(name, x, {Activation::Kind::tanh}); }
Value Model::gelu(const std::string& name, const Value& x) { return activation(name, x, {Activation::Kind::gelu}); }
Value Model::silu(const std::string& name, const Value& x) { return activation(name, x, {Activation::Kind::silu}); }
Value Model::elu(const std::string& name, const Value& x, double alpha) {
  return activation(name, x, {Activation::Kind::elu, alpha});
}
Value Model::leaky_relu(const std::string& name, const Value& x, double slope) {
  return activation(name, x, {Activation::Kind::leaky_relu, slope});
}

Value Model::gated(const std::string& name, const Value& x, const Activation& f) {
  return layer(name, std::make_shared<GatedOperator>(f), {x});
}

Value Model::add(const std::string& name, const Value& a, const Value& b) {
  return layer(name, std::make_shared<AddOperator>(), {a, b});
}

Value Model::concatenate(const std::string& name, const std::vector<Value>& inputs) {
  return layer(name, std::make_shared<ConcatenateOperator>(static_cast<int>(inputs.size())), inputs);
}

Value Model::upsample(const std::string& name, const Value& x, const Upsample& upsample) {
  return layer(name, std::make_shared<UpsampleOperator>(upsample), {x});
}

Value Model::crop(const std::string& name, const Value& x, const Padding& margins) {
  return layer(name, std::make_shared<CropOperator>(margins), {x});
}

Value Model::space_to_depth(const std::string& name, const Value& x, const PerDim& block) {
  return layer(name, std::make_shared<SpaceToDepthOperator>(block), {x});
}

Value Model::dropout(const std::string& name, const Value& x, const Dropout& dropout) {
  return layer(name, std::make_shared<DropoutOperator>(dropout), {x});
}

Value Model::linear(const std::string& name, const Value& x, const Linear& linear) {
  if (linear.per_place) return layer(name, std::make_shared<PlaceLinearOperator>(linear), {x});
  return layer(name, std::make_shared<LinearOperator>(linear), {x});
}

Value Model::embedding(const std::string& name, const Value& tokens, const Embedding& embedding) {
  return layer(name, std::make_shared<EmbeddingOperator>(embedding), {tokens});
}

Value Model::tables(const std::string& name, const Value& indices, const Tables& tables) {
  return layer(name, std::make_shared<TablesOperator>(tables), {indices});
}

Value Model::interaction(const std::string& name, const Value& vectors, const Value& dense) {
  return layer(name, std::make_shared<InteractionOperator>(), {vectors, dense});
}

Value Model::places(const std::string& name, const Value& x) {
  return layer(name, std::make_shared<PlacesOperator>(), {x});
}

Value Model::positions(const std::string& name, const Value& x, const Positions& positions) {
  return layer(name, std::make_shared<PositionsOperator>(positions), {x});
}

Value Model::rotary(const std::string& name, const Value& x, const Rotary& rotary) {
  return layer(name, std::make_shared<RotaryOperator>(rotary), {x});
}

Value Model::attention(const std::string& name, const Value& x, const Attention& attention) {
  return layer(name, std::make_shared<AttentionOperator>(attention), {x});
}

Value Model::attention(const std::string& name, const Value& x, const Value& segments, const Attention& attention) {
  return layer(name, std::make_shared<AttentionOperator>(attention, /*segments=*/true), {x, segments});
}

Value Model::dispatch(const std::string& name, const Value& x, const Value& scores, const Experts& experts) {
  return layer(name, std::make_shared<DispatchOperator>(experts), {x, scores});
}

Value Model::combine(const std::string& name, const Value& scores, const Value& slots, const Experts& experts) {
  return layer(name, std::make_shared<CombineOperator>(experts), {scores, slots});
}

Value Model::softmax_cross_entropy(const std::string& name, const Value& x, const CrossEntropy& labels) {
  return layer(name, std::make_shared<CrossEntropyOperator>(labels), {x});
}

Value Model::softmax_dice(const std::string& name, const Value& x, const Dice& labels) {
  return layer(name, std::make_shared<DiceOperator>(labels), {x});
}

Value Model::mean_squared_error(const std::string& name, const Value& x) {
  return layer(name, std::make_shared<DifferenceOperator>(false), {x});
}

Value Model::mean_absolute_error(const std::string& name, const Value& x) {
  return layer(name, std::make_shared<DifferenceOperator>(true), {x});
}

namespace {

/// Throws Error unless the output of an operator, which may be the user's own, can be a tensor of a model: samples
/// first, then known dimensions that are not empty.
void check_output(const Shape& y, std::span<const Shape> inputs) {
  constexpr std::string_view known = "NCDHWLV";
  if (y.find('N') != 0) fail("its output has the shape \"{}\"; it must begin with the samples, N", y.print());
  if (!inputs.empty() && y['N'] != inputs[0]['N'])
    fail("its output has {} samples (N) for an input of {}; it must keep the samples", y['N'], inputs[0]['N']);
  for (int d = 1; d < y.dims(); ++d) {
    if (known.find(y.name(d)) == known.npos)
      fail("its output has a dimension '{}'; the dimensions are N C D H W L V", y.name(d));
    if (y.extent(d) < 1) fail("its output is empty: {}", y.print());
  }
  check_countable(y);
}

}  // namespace

namespace {

/// Throws Error unless an input of a layer holds what it reads: whole numbers or values.
void check_type(const Operator& op, int number, const Layer& input) {
  if (op.reads_integers(number) && !input.op->integers())
    fail("its input '{}' holds values; give an input with Input::tokens", input.name);
  if (!op.reads_integers(number) && input.op->integers())
    fail("its input '{}' holds tokens, which only an embedding, tables or, as segments, attention read", input.name);
}

}  // namespace

int Model::table_of(const Operator& op, std::span<const Shape> inputs) const {
  const std::string_view name = op.tied_to();
  if (name.empty()) return -1;
  const int table = find(name);
  const auto tied =
      std::find_if(layers_.begin(), layers_.end(), [&](const Layer& each) { return each.table == table; });
  if (table < 0 || dynamic_cast<const EmbeddingOperator*>(layers_[table].op.get()) == nullptr) {
    std::vector<std::string> names;
    for (const auto& each : layers_)
      if (each.op->kind() == "embedding") names.push_back(each.name);
    fail("tied_to is '{}', which is no embedding before it{}; it has {}", name, did_you_mean(name, names),
         names.empty() ? "none" : quoted_list(names));
  }
  if (tied != layers_.end())
    fail("the table of '{}' is tied to '{}' already, and a table is tied once", name, tied->name);
  const Shape mine = op.weights(inputs)[0].shape, its = layers_[table].op->weights({})[0].shape;
  if (!(mine == its))
    fail(
        "its weights \"{}\" are not of the shape of the table \"{}\" of '{}'; it needs as many features as that has "
        "tokens, and an input of as many channels as that has features",
        mine.print(), its.print(), name);
  return table;
}

Value Model::layer(const std::string& name, std::shared_ptr<const Operator> op, const std::vector<Value>& inputs) {
  if (name.empty() || name.find_first_of(" \t\n*?[]\"") != std::string::npos)
    fail("layer '{}': a layer's name must be a word without blanks, quotes and the characters * ? [ ]", name);
  check_parts(name);
  if (find(name) >= 0) fail("layer '{}': another layer has this name", name);
  if (op == nullptr) fail("layer '{}': its operator is a null pointer; give it std::make_shared<...>()", name);
  Layer added{.name = name, .op = std::move(op), .inputs = {}, .like = static_cast<int>(layers_.size()), .table = -1};
  std::vector<Shape> shapes;
  for (const auto& value : inputs) {
    if (position(value) < 0) fail("layer '{}': its input is not a layer of this model", name);
    added.inputs.push_back(value.layer);
    shapes.push_back(shapes_[value.layer]);
  }
  try {
    if (static_cast<int>(inputs.size()) != added.op->inputs())
      fail("it takes {} inputs, not {}", added.op->inputs(), inputs.size());
    for (int i = 0; i < std::ssize(added.inputs); ++i) check_type(*added.op, i, layers_[added.inputs[i]]);
    Shape output = added.op->output(shapes);
    check_output(output, shapes);
    for (const WeightSpec& weight : added.op->weights(shapes)) check_countable(weight.shape);
    added.table = table_of(*added.op, shapes);
    shapes_.push_back(output);
  } catch (const Error& error) {
    fail("layer '{}' ({}): {}", name, added.op->kind(), error.what());
  }
  const Operator& own = *added.op;
  const auto [first, fresh] =
      likes_.try_emplace({typeid(own), fmt::format("{} {}", own.kind(), own.describe())}, added.like);
  added.like = first->second;
  layers_.push_back(std::move(added));
  return {static_cast<int>(layers_.size()) - 1, name, name_};
}

// Segments are left out: the places of a text that is continued are one document.
Model Model::at_places(Index places) const {
  std::vector<bool> read(layers_.size(), false);
  const auto read_by = [](const Layer& layer) {
    const bool attends = dynamic_cast<const AttentionOperator*>(layer.op.get()) != nullptr;
    return std::span(layer.inputs).first(attends ? 1 : layer.inputs.size());
  };
  for (const Layer& layer : layers_)
    for (const int i : read_by(layer)) read[i] = true;
  std::vector<int> sequences = inputs();
  std::erase_if(sequences, [&](int i) { return !read[i]; });
  if (sequences.size() > 1)
    fail("the model '{}' has {} inputs, and a sequence has one; use a model of text, as gpt", name_, sequences.size());
  const auto* input = sequences.empty() ? nullptr : dynamic_cast<const InputOperator*>(layers_[sequences[0]].op.get());
  if (input == nullptr || !input->integers() || input->input().length == 0)
    fail("the model '{}' reads no sequences of tokens, so it cannot continue one; use a model of text, as gpt", name_);
  const Index length = input->input().length;
  if (places < 1 || places > length)
    fail("a pass over {} places of the model '{}'; it has 1 to {}", places, name_, length);
  Model model(name_);
  for (const Layer& layer : layers_) {
    if (layer.inputs.empty() && layer.op.get() != input) {
      model.left_out_.emplace(static_cast<int>(&layer - layers_.data()), layer.name);
      continue;
    }
    if (layer.op->place_use() == PlaceUse::any && !layer.op->is_loss())
      fail(
          "layer '{}' ({}) computes a place of its output from other places of its input, so nothing that is kept "
          "continues a sequence; use layers that compute each place by itself, and causal attention",
          layer.name, layer.op->kind());
    std::vector<Value> inputs;
    for (const int i : read_by(layer)) inputs.push_back(model.value(layers_[i].name));
    auto op = layer.op;
    if (layer.inputs.empty()) {
      Input shorter = input->input();
      shorter.length = places;
      op = std::make_shared<InputOperator>(shorter);
    }
    if (const auto* table = dynamic_cast<const PositionsOperator*>(op.get())) {
      Positions whole = table->positions();
      if (whole.places == 0) whole.places = length;
      op = std::make_shared<PositionsOperator>(whole);
    }
    if (const auto* attention = dynamic_cast<const AttentionOperator*>(op.get()))
      op = std::make_shared<AttentionOperator>(attention->continued());
    model.layer(layer.name, op, inputs);
  }
  return model;
}

std::vector<int> Model::inputs() const {
  std::vector<int> inputs;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i].inputs.empty()) inputs.push_back(static_cast<int>(i));
  return inputs;
}

int Model::position(const Value& value) const {
  const auto is_at = [&](int at) {
    return value.model == name_ && at >= 0 && at < static_cast<int>(layers_.size()) && layers_[at].name == value.name;
  };
  if (is_at(value.layer)) return value.layer;
  const auto missing = std::distance(left_out_.begin(), left_out_.lower_bound(value.layer));
  const int in_pass = value.layer - static_cast<int>(missing);
  return is_at(in_pass) ? in_pass : -1;
}

Value Model::value(std::string_view name) const {
  if (const int at = find(name); at >= 0) return {at, std::string(name), name_};
  std::vector<std::string> names;
  for (const auto& each : layers_) names.push_back(each.name);
  fail("the model '{}' has no layer '{}'{}; it has {}", name_, name, did_you_mean(name, names), quoted_list(names));
}

int Model::find(const Value& value) const {
  const int at = position(value);
  if (at < 0)
    fail("the value '{}' is of another model, '{}'; give a value of '{}', or the layer's name", value.name, value.model,
         name_);
  return at;
}

int Model::find(std::string_view name) const {
  const auto at = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& layer) { return layer.name == name; });
  return at == layers_.end() ? -1 : static_cast<int>(at - layers_.begin());
}

std::vector<Shape> Model::inputs_of(int layer, const std::vector<Shape>& outputs) const {
  std::vector<Shape> shapes;
  for (const int input : layers_[layer].inputs) shapes.push_back(outputs[input]);
  return shapes;
}

Shape Model::shape(int layer, std::span<const Shape> inputs, Index batch) const {
  const Shape one = layers_[layer].op->output(inputs);
  if (!inputs.empty()) {
    check_output(one, inputs);
    return one;
  }
  Shape shape{{'N', batch}};  // only input layers set the batch
  for (int d = 1; d < one.dims(); ++d) shape.push_back({one.name(d), one.extent(d)});
  return shape;
}

std::vector<Shape> Model::shapes(Index batch) const {
  std::vector<Shape> outputs;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    outputs.push_back(shape(static_cast<int>(i), inputs_of(static_cast<int>(i), outputs), batch));
  return outputs;
}

Index Model::weights() const {
  Index count = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto weights = layers_[i].op->weights(inputs_of(static_cast<int>(i), shapes_));
    for (std::size_t w = layers_[i].table < 0 ? 0 : 1; w < weights.size(); ++w)
      count += weights[w].trained ? weights[w].shape.volume() : 0;
  }
  return count;
}

std::string Model::describe() const {
  std::string text = name_ + "\n";
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    text += fmt::format("{} = {}(", layer.name, layer.op->kind());
    for (std::size_t j = 0; j < layer.inputs.size(); ++j)
      text += fmt::format("{}{}", j == 0 ? "" : ", ", layers_[layer.inputs[j]].name);
    text += fmt::format(") {} -> {}\n", layer.op->describe(), shapes_[i].print());
  }
  return text;
}

}  // namespace partita
