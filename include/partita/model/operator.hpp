#pragma once

#include "partita/base/window.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/product/product.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How a weight is drawn before training.
enum class Init : std::uint8_t { normal, zeros, ones };

/// One weight of a layer: global, as a serial program would hold it.
struct WeightSpec {
  std::string name;  ///< "weight", "bias", "scale", ...
  Shape shape;       ///< F C D H W; F; C
  Init init = Init::zeros;
  double deviation = 0;  ///< of Init::normal: sqrt(2 / fan-in), He et al. 2015
  bool decay = true;     ///< weight decay applies
  bool trained = true;   ///< false for running statistics, which the forward pass updates
};

/// What a strategy asks of one layer, and what its inputs bring.
struct LayoutRequest {
  std::vector<Layout> arriving;              ///< one an input: the layout in which its producer leaves it
  std::vector<std::optional<Layout>> input;  ///< one an input: what the strategy wants instead, if it says so
  Layout output;                             ///< what the layer's output is to look like
  std::optional<Layout> weights;             ///< of the first weight, if the strategy says so
  std::string algorithm = "auto";            ///< "auto", or one of Operator::algorithms; or several, "a/b/c"
  DType dtype = DType::f32;                  ///< in which it computes
  bool training = true;
  bool needs_dx = true;  ///< of any input: something behind it has weights to train
  bool operator==(const LayoutRequest&) const = default;
  /// The same on another grid of the same axes.
  LayoutRequest on(const Grid& grid) const;
};

/// An all-reduce of doubles that an operator needs in the middle of its work.
struct Collective {
  enum class When : std::uint8_t { forward, backward };
  When when = When::forward;
  std::string role;  ///< what it is for: "statistics forward", "loss", ...; the kernel labels it so
  AxisSet axes = 0;  ///< the ranks that take part
  Layout layout;     ///< a rank reduces `factor` doubles for each element that it owns of this
  Index factor = 1;
};

/// The layouts in which an operator runs. Layouts of gradients follow from who computed what (`Layout::dual`): over an
/// axis where the ranks computed different contributions a gradient is partial, where they computed the same it is
/// replicated.
struct OperatorLayouts {
  std::vector<Layout> x = {};   ///< what it needs of each input
  Layout y = {};                ///< what it computes, maybe partial; the gradient that it needs is laid out as y.dual()
  std::vector<Layout> dx = {};  ///< what it computes of each input's gradient
  std::vector<Layout> w = {};   ///< one a weight
  std::vector<Layout> dw = {};  ///< what it computes of each weight's gradient
  std::optional<Halo> x_halo = std::nullopt;  ///< inputs that its outputs read
  std::optional<Halo> dy_halo =
      std::nullopt;  ///< outputs that its inputs touch; none where the input's halo goes back and is summed
  std::vector<Collective> collectives = {};
  std::string algorithm = "";                  ///< which one it is, where there are several
  std::vector<Alternative> alternatives = {};  ///< all that were weighed, the one that was taken first
  std::vector<ProductPlan> products = {};      ///< of a layer that is matrix products: of y, and in training dx and dw
  /// The same on another grid of the same axes.
  OperatorLayouts on(const Grid& grid) const;
};

/// What a loss compares its input with.
struct Target {
  Shape shape;         ///< N, and those of the input's dimensions that it has
  bool labels = true;  ///< numbers of channels, of which the largest is right; else values
};

/// What a layer holds from its forward to its backward.
struct Kept {
  bool x = false;  ///< its inputs, as it needed them: with their halo if it has one
  bool y = false;  ///< its output
  bool z = false;  ///< what its fused activation was applied to, as large as its output
  Index more = 0;  ///< bytes an element of its output
};

/// One kind of layer, without its name and place: shapes, weights and layout rule. Pure: it knows neither ranks nor
/// devices; a kernel runs it. A layer of the user's own derives from CustomLayer (train/kernels/custom_layer.hpp).
class Operator {
 public:
  virtual ~Operator() = default;
  /// Names the kernel that runs it, and the layer's kind in `explain`: "conv", "relu", ...
  virtual std::string_view kind() const = 0;
  /// All of its parameters, e.g. "32 filters 3/1 pad 1": operators of one kind with equal words are taken to be equal, by the
  /// model's hash and by binding.
  virtual std::string describe() const { return ""; }
  /// How many tensors it takes.
  virtual int inputs() const { return 1; }
  /// Shape of the output for these inputs; throws Error (without the layer's name) if they do not fit.
  virtual Shape output(std::span<const Shape> inputs) const = 0;
  /// Shapes and initial values of its weights for these inputs, in the order in which kernels get them.
  virtual std::vector<WeightSpec> weights(std::span<const Shape> /*inputs*/) const { return {}; }
  /// Names that `algorithm` can have in a strategy, beside "auto"; none where there is one way only.
  virtual std::vector<std::string> algorithms() const { return {}; }
  /// How many of them it runs: `algorithm` can name one each, "a/b/c"; those that it leaves out are "auto".
  virtual int products() const { return 1; }
  /// The layout rule: how the operator runs as near to the request as it can. Throws Error (without the layer's name)
  /// that names dimension and axis if it cannot. The plan redistributes the inputs to x, and y to the request's output.
  virtual OperatorLayouts layouts(const LayoutRequest& request) const = 0;
  /// The output's layout where the strategy gives none: the first input's, as far as its cuts mean the same.
  virtual Layout follow(const Layout& x, const Shape& output) const { return x.with_partial(0).onto(output); }
  /// Floating-point operations of forward for these shapes.
  virtual double flops(std::span<const Shape> /*inputs*/, const Shape& output) const {
    return static_cast<double>(output.volume());
  }
  /// What the kernel's forward keeps for its backward; a layer that keeps less should say so, since memory is predicted by it.
  virtual Kept keeps() const { return {.x = true}; }
  /// True for the layer that ends a training step: its kernel leaves a number, the loss; its output stays zero.
  virtual bool is_loss() const { return false; }
  /// Of a loss with input x; the loss is a mean over all of it.
  virtual Target target(const Shape& /*x*/) const { return {}; }
};

/// The names in "a/b/c".
std::vector<std::string> named_algorithms(const std::string& text);

}  // namespace partita
