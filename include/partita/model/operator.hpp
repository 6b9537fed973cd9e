#pragma once

#include "partita/base/activation.hpp"
#include "partita/base/window.hpp"
#include "partita/layouts/algorithm.hpp"
#include "partita/layouts/halo.hpp"
#include "partita/layouts/layout.hpp"
#include "partita/layouts/product/product.hpp"
#include "partita/layouts/ring.hpp"
#include "partita/model/kernel_kind.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// The initial values of a weight.
enum class Init : std::uint8_t { normal, zeros, ones };

/// One weight of a layer, with its global shape, as in a serial program.
struct WeightSpec {
  std::string name;  ///< "weight", "bias", "scale", ...
  Shape shape;       ///< e.g. F C D H W (convolution), F (bias), C (scale)
  Init init = Init::zeros;
  double deviation = 0;  ///< standard deviation for Init::normal: sqrt(2 / fan-in), He et al. 2015
  bool decay = true;     ///< weight decay applies
  bool trained = true;   ///< false for running statistics, which the forward pass updates
  bool operator==(const WeightSpec&) const = default;
};

/// What a strategy asks of one layer, and the layouts of the layer's inputs.
struct LayoutRequest {
  std::vector<Layout> arriving;  ///< one per input: the layout in which its producer leaves it
  /// one per input: the layout that the strategy wants instead, if it names one
  std::vector<std::optional<Layout>> input;
  Layout output;                           ///< the requested layout of the layer's output
  std::optional<Layout> weights;           ///< layout of the first weight, if the strategy names one
  std::vector<Algorithm> algorithms = {};  ///< one per product, of Operator::algorithms; a missing one is automatic
  DType dtype = DType::f32;                ///< the compute type
  bool training = true;
  bool needs_dx = true;  ///< whether any input's gradient is needed, because an earlier layer has trained weights
  bool operator==(const LayoutRequest&) const = default;
  /// Returns the algorithm that is asked for the product of that number.
  Algorithm algorithm(std::size_t product = 0) const {
    return product < algorithms.size() ? algorithms[product] : Algorithm::automatic;
  }
  /// Returns the same request on another grid with the same axes.
  LayoutRequest on(const Grid& grid) const;
};

/// An all-reduce of doubles inside an operator's forward or backward pass.
struct Collective {
  enum class When : std::uint8_t { forward, backward };
  When when = When::forward;
  std::string role;  ///< purpose: "statistics forward", "loss", ...; the kernel labels its traffic with it
  AxisSet axes = 0;  ///< the axes over which it reduces
  Layout layout;     ///< a rank reduces `factor` doubles per element that it owns in this layout
  Index factor = 1;
  bool operator==(const Collective&) const = default;
};

/// The layouts in which an operator runs. Gradient layouts follow from which ranks computed what (`Layout::dual`): a
/// gradient is partial over an axis along which the ranks computed different contributions, and replicated over an axis
/// along which they computed the same.
struct OperatorLayouts {
  std::vector<Layout> x = {};  ///< required layout of each input
  /// layout of the output as computed, possibly partial; the gradient dy must arrive in y.dual()
  Layout y = {};
  std::vector<Layout> dx = {};                ///< layout of each input's gradient as computed
  std::vector<Layout> w = {};                 ///< one per weight
  std::vector<Layout> dw = {};                ///< layout of each weight's gradient as computed
  std::optional<Halo> x_halo = std::nullopt;  ///< halo of x that the outputs read
  /// halo of dy that the inputs' gradients read. Empty if the backward pass instead sends the gradient of x's halo back
  /// and sums it.
  std::optional<Halo> dy_halo = std::nullopt;
  std::optional<Ring> ring = std::nullopt;  ///< blocks that travel while the layer computes with them
  std::vector<Collective> collectives = {};
  std::optional<Algorithm> algorithm = std::nullopt;  ///< the chosen algorithm, where there are several
  std::vector<Alternative> alternatives = {};         ///< all considered alternatives, the chosen one first
  /// for a layer made of matrix products: of y, and in training of dx and dw
  std::vector<ProductPlan> products = {};
  /// Returns the same layouts on another grid with the same axes.
  OperatorLayouts on(const Grid& grid) const;
  bool operator==(const OperatorLayouts&) const = default;
};

/// The target that a loss compares its input with.
struct Target {
  Shape shape;                                  ///< N, then those dimensions of the input that the target has
  bool labels = true;                           ///< true: channel numbers (class labels); false: values
  std::optional<Index> ignored = std::nullopt;  ///< the label of elements that count for nothing
  /// true: some elements count for less than others. Then the loss is a weighted mean, and its kernel adds the weights
  /// (KernelCall::result)
  bool weighted = false;
  /// The numbers that the loss adds to KernelCall::result.
  Index results() const { return weighted ? 4 : 2; }
};

/// The tensors that a layer keeps from its forward to its backward pass.
struct Kept {
  bool x = false;  ///< its inputs in the layout it needed, including the halo if it has one
  bool y = false;  ///< its output
  bool z = false;  ///< the input of its fused activation, as large as its output
  Index more = 0;  ///< further bytes per element of its output
};

/// How many f64 numbers (sums and statistics) the kernels of a layer hold on one rank, beside the tensors. Elements are
/// numbers of the compute type.
struct HeldNumbers {
  Index forward = 0;   ///< kept from forward until backward ends
  Index sums = 0;      ///< as `forward`, but in the type of sums: f32 where the compute type is not f64
  Index backward = 0;  ///< kept from the start of backward until it ends
  Index work = 0;      ///< during forward
  Index elements = 0;  ///< elements kept from forward until backward ends
  Index slopes = 0;    ///< elements held while backward_data runs
};

/// How often the kernels of a layer move its tensors through memory. A forward reads its inputs x times and passes over
/// its output y times. A backward likewise passes dx times over tensors as large as the inputs, and dy times over
/// tensors as large as the output. Weights pass w times in forward, and once in backward.
struct MemoryPasses {
  double x = 1, y = 1;    ///< of the forward pass
  double dx = 1, dy = 1;  ///< of the backward pass
  double w = 1;           ///< 0 for a table of which forward reads some rows alone
  double elements = 0;    ///< over HeldNumbers::elements, in forward, and as often again for each backward_work()
  /// passes over HeldNumbers::elements that are kernels of their own, in forward and in backward
  double apart = 0, backward_apart = 0;
  /// for tables: how often forward, and backward, move the row of the first weight that an element of the input names
  double row = 0, drow = 0;
};

/// The halos that travel while the kernel computes. The cost model hides them behind that work as far as the machine
/// allows.
struct HaloOverlap {
  bool x = false;   ///< forward computes the outputs that need no halo while x's halo arrives
  bool dy = false;  ///< dy's halo arrives while backward_filter computes: start_backward starts it
  bool dx = false;  ///< backward_data sends its neighbors' parts of dx first and computes the rest meanwhile
};

/// How much of the activation behind it a layer computes itself, if that has the same layout and runs in the memory of
/// the layer's output (LayerPlan::next_activation).
enum class ActivationFusion : std::uint8_t {
  no,
  where_fused,  ///< forward applies it on the backends that fuse it with the layer's kernels (Backend::fuses)
  forward,      ///< forward applies it
  both,         ///< forward applies it, and backward takes its gradient: the activation has nothing to compute
};

/// Which places of its input (dimension L) a place of a layer's output is computed from.
enum class PlaceUse : std::uint8_t {
  any,    ///< others too, perhaps later ones
  same,   ///< the same place alone
  before  ///< the same one and those before it: the kernel can keep these (Operator::kept_channels)
};

/// One kind of layer, without name and position: shapes, weights and layout rule. It is pure: it knows neither ranks
/// nor devices. A kernel runs it. To write your own layer, derive from CustomLayer (train/kernels/custom_layer.hpp).
class Operator {
 public:
  virtual ~Operator() = default;
  /// The layer's kind, as in `explain`: "conv", "relu", ...
  virtual std::string_view kind() const = 0;
  /// All parameters, e.g. "32 filters 3/1 pad 1". It must name everything on which shapes, layouts, windows, halos and
  /// costs depend: operators with equal descriptions are taken to be equal (equal_operators), so their layers share
  /// bindings and prices, and only the first of them is asked.
  virtual std::string describe() const { return ""; }
  /// Number of input tensors.
  virtual int inputs() const { return 1; }
  /// Returns the shape of the output for these inputs. Throws Error (without the layer's name) if they do not fit.
  virtual Shape output(std::span<const Shape> inputs) const = 0;
  /// Returns the shapes and initial values of its weights for these inputs, in the order in which kernels receive them.
  virtual std::vector<WeightSpec> weights(std::span<const Shape> /*inputs*/) const { return {}; }
  /// The name of the embedding whose table is its first weight, of the same shape; empty if that is its own.
  virtual std::string_view tied_to() const { return ""; }
  /// The algorithms that a strategy may ask for, besides Algorithm::automatic. Empty if there is only one way.
  virtual std::vector<Algorithm> algorithms() const { return {}; }
  /// The number of products that the layer computes. `algorithm` can name an algorithm for each, as in "a/b/c"; omitted
  /// ones are "auto".
  virtual int products() const { return 1; }
  /// The layout rule: returns the layouts closest to the request in which the operator can run. Throws Error (without
  /// the layer's name) that names dimension and axis if there are none. The plan redistributes the inputs to x, and y
  /// to the requested output.
  virtual OperatorLayouts layouts(const LayoutRequest& request) const = 0;
  /// Returns the operator that a plan runs in place of this one where `layouts` chose that algorithm, if work or memory
  /// of its kernels depend on it; null if they do not.
  virtual std::shared_ptr<const Operator> running(Algorithm /*chosen*/) const { return nullptr; }
  /// The output's layout if the strategy names none: the first input's layout, as far as it applies to the output.
  virtual Layout follow(const Layout& x, const Shape& output) const { return x.with_partial(0).onto(output); }
  /// Floating-point operations of the forward pass for these shapes.
  virtual double flops(std::span<const Shape> /*inputs*/, const Shape& output) const {
    return static_cast<double>(output.volume());
  }
  /// What the kernel's forward pass keeps for its backward pass. Override it if the layer keeps less: the memory
  /// prediction uses it.
  virtual Kept keeps() const { return {.x = true}; }
  /// True if its kernel may write the output into the memory of its first input. It does so if nobody else needs that
  /// (LayerPlan::in_place).
  virtual bool overwrites_input() const { return false; }
  /// True if its reader may overwrite the output.
  virtual bool output_may_be_overwritten() const { return !keeps().y; }
  /// True for inputs that hold whole numbers (Operator::integers of their layer): tokens, or segments of attention.
  virtual bool reads_integers(int /*input*/) const { return false; }
  /// True if the output holds whole numbers (i32), such as tokens. They have no gradient.
  virtual bool integers() const { return false; }
  /// The type of the output where the compute type is `compute`.
  DType output_type(DType compute) const { return integers() ? DType::i32 : compute; }
  /// Returns its function, if it is an activation.
  virtual std::optional<Activation> activation() const { return std::nullopt; }
  /// Returns how much of an activation behind it it computes.
  virtual ActivationFusion activation_fusion(const Activation& /*f*/) const { return ActivationFusion::no; }
  /// In training, the probability with which it leaves out an element of its input, if that is all that it computes.
  virtual double dropout_rate() const { return 0; }
  /// True if its kernel can leave out elements of an input itself, in place of a dropout before it (LayerPlan::drops).
  virtual bool drops_input() const { return false; }
  /// True if its backward_data can add the gradient of its one input to a given one (LayerPlan::adds_gradient).
  virtual bool adds_gradient() const { return false; }
  /// True if the gradient of each input is dy itself. Then nothing is computed, nor copied, in backward_data.
  virtual bool forwards_gradient() const { return false; }
  /// The f64 numbers that its kernel holds on `rank` for inputs in layout x; none by default.
  virtual HeldNumbers numbers(const Layout& /*x*/, int /*rank*/, bool /*training*/) const { return {}; }
  /// The elements that its forward holds on `rank` beside its tensors once x's halo has come, if it computed while the
  /// halo traveled (RankContext::ahead): e.g. copies of a border. The most at a time; none by default.
  virtual Index held_ahead(const OperatorLayouts& /*at*/, int /*rank*/) const { return 0; }
  /// Which halos travel while its kernel computes; none by default.
  virtual HaloOverlap halo_overlap() const { return {}; }
  /// True if the gradients of its weights take a computation of their own, as those of a convolution do, and not the
  /// one that also yields dx. The cost model then counts a kernel for backward_filter, behind which dy's halo can hide.
  virtual bool computes_dw_separately() const { return halo_overlap().dy; }
  /// False if its kernels compute the gradients of its weights without these.
  virtual bool dw_reads_weights() const { return !computes_dw_separately(); }
  /// How often its kernels move its tensors through memory, in training or in evaluation.
  virtual MemoryPasses memory_passes(bool /*training*/) const { return {}; }
  /// How many times the work of its forward its backward_data takes.
  virtual double backward_work() const { return 1; }
  /// The kind of its kernels where they are no products of a ProductPlan.
  virtual KernelKind kernel_kind() const { return KernelKind::others; }
  /// The smallest extent of the products of its kernels, for a kernel_kind() of products between inputs. That of
  /// products with weights follows from these. `inputs` are whole shapes.
  virtual Index narrowest(std::span<const Shape> /*inputs*/) const { return 1; }
  /// Which places an output is computed from. A model can continue a sequence if none of its layers uses `any`.
  virtual PlaceUse place_use() const { return PlaceUse::any; }
  /// The number of channels that its kernel keeps of each place on `rank`, for inputs in layout x, if later places are
  /// computed in passes of their own (PlaceUse::before).
  virtual Index kept_channels(const Layout& /*x*/, int /*rank*/) const { return 0; }
  /// True if the result depends on how a batch is split into microbatches, as batch statistics do.
  virtual bool depends_on_microbatches() const { return false; }
  /// True for the layer that ends a training step. Its kernel computes a number, the loss; its output stays zero.
  virtual bool is_loss() const { return false; }
  /// The target of a loss with input x. The loss is a mean over all of it, or over what counts.
  virtual Target target(const Shape& /*x*/) const { return {}; }
  /// True if its backward begins the gradient of a loss, and does not only pass on that of its output. Then
  /// KernelCall::share includes the loss scale.
  virtual bool adds_loss() const { return is_loss(); }
};

/// True if both operators are of one class and have the same kind and description, so that one can stand for the other.
bool equal_operators(const Operator& a, const Operator& b);

/// Splits "a/b/c" into its names.
std::vector<std::string> named_algorithms(const std::string& text);

}  // namespace partita
