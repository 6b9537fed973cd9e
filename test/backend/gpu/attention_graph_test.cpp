// The graphs of attention that cuDNN gets, computed here by their definition on the addresses that it would get. So
// tensors, strides, parts, scales and the order of operations are checked on a machine without a card.
#include "src/backend/gpu/cuda/libraries/attention_plan.hpp"

#include "partita/backend/cuda.hpp"
#include "partita/base/dispatch.hpp"
#include "test/support/card.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace partita::cuda::attention_graph_test {
namespace {

using Dims = GraphTensor::Dims;
using Kind = GraphOperation::Kind;

/// Stands in for cuDNN: computes a graph in double, and rounds what is stored.
class Interpreter {
 public:
  Interpreter(const OperationGraph& graph, const AttentionAddresses& at) : graph_(graph), at_(at) {}

  void run() {
    for (const GraphOperation& operation : graph_.operations) {
      std::vector<double> result = compute(operation);
      const GraphTensor& to = tensor(operation.output);
      if (to.kind == GraphTensor::Kind::between) {
        between_[operation.output] = std::move(result);
        continue;
      }
      EXPECT_EQ(to.kind, GraphTensor::Kind::stored);
      each(to.extents, [&](const Dims& place) {
        access(to, operation.output, place, [&](auto& element) {
          element = static_cast<std::remove_reference_t<decltype(element)>>(
              static_cast<float>(result[index(to.extents, place)]));
        });
      });
    }
  }

 private:
  const GraphTensor& tensor(std::int64_t id) const { return graph_.tensors.at(static_cast<std::size_t>(id)); }

  static std::size_t index(const Dims& extents, const Dims& place) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < 4; ++d) at = at * extents[d] + place[d];
    return static_cast<std::size_t>(at);
  }
  template <class F>
  static void each(const Dims& extents, F&& f) {
    Dims at{};
    for (at[0] = 0; at[0] < extents[0]; ++at[0])
      for (at[1] = 0; at[1] < extents[1]; ++at[1])
        for (at[2] = 0; at[2] < extents[2]; ++at[2])
          for (at[3] = 0; at[3] < extents[3]; ++at[3]) f(at);
  }
  /// Calls f(element) with an element of a tensor that is stored.
  template <class F>
  void access(const GraphTensor& of, std::int64_t id, const Dims& place, F&& f) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < 4; ++d) offset += place[d] * of.strides[d];
    void* data = at_.at(static_cast<std::size_t>(id));
    switch (of.type) {
      case CUDNN_DATA_BFLOAT16: return f(static_cast<Eigen::bfloat16*>(data)[offset]);
      case CUDNN_DATA_HALF: return f(static_cast<Eigen::half*>(data)[offset]);
      case CUDNN_DATA_FLOAT: return f(static_cast<float*>(data)[offset]);
      default: FAIL() << "a type that no address has";
    }
  }
  /// An element; a dimension of extent 1 has the same element at all places.
  double get(std::int64_t id, Dims place) const {
    const GraphTensor& of = tensor(id);
    if (of.kind == GraphTensor::Kind::number) return *static_cast<const float*>(at_.at(static_cast<std::size_t>(id)));
    for (std::size_t d = 0; d < 4; ++d)
      if (of.extents[d] == 1) place[d] = 0;
    if (of.kind == GraphTensor::Kind::between) return between_.at(id)[index(of.extents, place)];
    double value = 0;
    access(of, id, place, [&](const auto& element) { value = static_cast<double>(element); });
    return value;
  }

  std::vector<double> compute(const GraphOperation& operation) const {
    const GraphTensor& to = tensor(operation.output);
    std::vector<double> result(static_cast<std::size_t>(to.extents[0] * to.extents[1] * to.extents[2] * to.extents[3]));
    if (operation.kind == Kind::reduction) return reduce(operation, to, std::move(result));
    each(to.extents, [&](const Dims& place) {
      double& value = result[index(to.extents, place)];
      switch (operation.kind) {
        case Kind::product: value = product(operation, place, to.extents[1]); break;
        case Kind::transpose: value = get(operation.inputs.at(0), from_strides(operation, place)); break;
        default: value = apply(operation, place);
      }
    });
    return result;
  }
  std::vector<double> reduce(const GraphOperation& operation, const GraphTensor& to, std::vector<double> result) const {
    const Dims& from = tensor(operation.inputs.at(0)).extents;
    const bool largest = operation.sum == CUDNN_REDUCE_TENSOR_MAX;
    if (largest) std::fill(result.begin(), result.end(), -std::numeric_limits<double>::infinity());
    each(from, [&](const Dims& place) {
      Dims into = place;
      // Heads that share keys follow one another.
      for (std::size_t d = 0; d < 4; ++d) into[d] = place[d] * to.extents[d] / from[d];
      double& sum = result[index(to.extents, into)];
      const double value = get(operation.inputs[0], place);
      sum = largest ? std::max(sum, value) : sum + value;
    });
    return result;
  }
  double product(const GraphOperation& operation, const Dims& place, std::int64_t heads) const {
    const Dims &a = tensor(operation.inputs.at(0)).extents, &b = tensor(operation.inputs.at(1)).extents;
    EXPECT_EQ(a[3], b[2]);
    double sum = 0;
    for (std::int64_t i = 0; i < a[3]; ++i)
      sum += get(operation.inputs[0], {place[0], place[1] * a[1] / heads, place[2], i}) *
             get(operation.inputs[1], {place[0], place[1] * b[1] / heads, i, place[3]});
    return sum;
  }
  /// The place in the input that has the same offset.
  Dims from_strides(const GraphOperation& operation, const Dims& place) const {
    const GraphTensor &to = tensor(operation.output), &from = tensor(operation.inputs.at(0));
    EXPECT_EQ(to.strides[2], from.strides[3]);
    EXPECT_EQ(to.strides[3], from.strides[2]);
    return {place[0], place[1], place[3], place[2]};
  }
  double apply(const GraphOperation& operation, const Dims& place) const {
    const auto x = [&](std::size_t i) { return get(operation.inputs.at(i), place); };
    switch (operation.function) {
      case CUDNN_POINTWISE_ADD: return x(0) + x(1);
      case CUDNN_POINTWISE_SUB: return x(0) - x(1);
      case CUDNN_POINTWISE_MUL: return x(0) * x(1);
      case CUDNN_POINTWISE_DIV: return x(0) / x(1);
      case CUDNN_POINTWISE_EXP: return std::exp(x(0));
      case CUDNN_POINTWISE_LOG: return std::log(x(0));
      case CUDNN_POINTWISE_GEN_INDEX: return static_cast<double>(place[static_cast<std::size_t>(operation.axis)]);
      case CUDNN_POINTWISE_CMP_GE: return x(0) >= x(1) ? 1 : 0;
      case CUDNN_POINTWISE_BINARY_SELECT: return x(2) != 0 ? x(0) : x(1);
      default: ADD_FAILURE() << "a function that no graph of attention has"; return 0;
    }
  }

  const OperationGraph& graph_;
  const AttentionAddresses& at_;
  std::map<std::int64_t, std::vector<double>> between_;
};

/// Runs a call in parts as CudaBackend does.
void run(const AttentionCall& call, const AttentionPart& part) {
  std::vector<float> workspace(static_cast<std::size_t>(part.bytes) / sizeof(float), 1e9F);
  const OperationGraph graph = attention_graph(call.geometry, part);
  const bool backward = call.geometry.backward != 0;
  for (const AttentionRun& each : attention_runs(call, part, reinterpret_cast<std::byte*>(workspace.data()))) {
    for (const std::int64_t id : addressed(graph)) EXPECT_NE(each.at[static_cast<std::size_t>(id)], nullptr) << id;
    if (backward) host_device().move({&each.lse, 1}, {});
    Interpreter(graph, each.at).run();
    if (!backward) host_device().move({&each.lse, 1}, {});
  }
}

/// The tensors of a layer of self-attention: groups of queries, key and value, beside channels that belong to none.
struct Layer {
  HeadShape shape;
  Tensor x, y, lse, dy, dx;
  Index gap;
  Layer(naive::Generator& random, DType dtype, const HeadShape& its_shape, Index samples, Index places)
      : shape(its_shape), gap(8 * random.draw(0, 1)) {
    const auto box = [&](Index channels) { return Box(Shape{{'N', samples}, {'C', channels}, {'L', places}}); };
    const Index of_y = shape.groups * shape.queries * shape.dim;
    x = random.tensor(dtype, "NCL", box(shape.groups * step()));
    dx = random.tensor(dtype, "NCL", x.box());
    y = random.tensor(dtype, "NCL", box(of_y));
    dy = random.tensor(dtype, "NCL", box(of_y));
    lse = random.tensor(DType::f32, "NCL", box(shape.groups * shape.queries));
  }
  Index step() const { return (shape.queries + 2) * shape.dim + gap; }
  Heads heads(const Tensor& of, Index first) const { return {of, first * shape.dim, step()}; }
  Heads q(const Tensor& of) const { return heads(of, 0); }
  Heads k(const Tensor& of) const { return heads(of, shape.queries); }
  Heads v(const Tensor& of) const { return heads(of, shape.queries + 1); }
  Layer copy() const {
    Layer other = *this;
    for (Tensor* each : {&other.y, &other.lse, &other.dx})
      *each = extract(*each, each->box(), MemoryClass::workspace, {});
    return other;
  }
};

void forward(Backend& backend, const Layer& of) {
  backend.attention_forward(of.shape, of.q(of.x), of.k(of.x), of.v(of.x), of.y, of.lse, Write::over, {});
}
/// With the results of `of`.
void backward(Backend& backend, const Layer& of, const Layer& to) {
  backend.attention_backward(of.shape, of.q(of.x), of.k(of.x), of.v(of.x), of.y, of.dy, of.lse, to.q(to.dx),
                             to.k(to.dx), to.v(to.dx), Write::over, {});
}

void expect_near(const Tensor& is, const Tensor& want, double tolerance, const char* what) {
  for (Index i = 0; i < is.volume(); ++i) ASSERT_NEAR(is.get(i), want.get(i), tolerance) << what << " at " << i;
}

class AttentionGraph : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, AttentionGraph, testing::Values(DType::bf16, DType::f16));

// In whole and in every division. Heads have keys of their own, or share them; places are no multiples of anything.
TEST_P(AttentionGraph, IsAttention) {
  const auto reference = make_reference_backend();
  naive::Generator random(11);
  const double error = GetParam() == DType::bf16 ? 0.02 : 0.003;
  for (int i = 0; i < 24; ++i) {
    const HeadShape shape{random.draw(1, 3), i % 2 == 0 ? 1 : random.draw(2, 3), 8 * random.draw(1, 2),
                          0.25 * static_cast<double>(random.draw(1, 4)), i % 4 < 2};
    const Layer layer(random, GetParam(), shape, random.draw(1, 4), random.draw(1, 13)), want = layer.copy();
    SCOPED_TRACE(fmt::format("{} groups, {} queries, {} channels, {}", shape.groups, shape.queries, shape.dim,
                             layer.x.box().print()));
    forward(*reference, want);
    backward(*reference, want, want);
    const auto with = [&](const Layer& of, bool is_backward) {
      return is_backward ? backward_call(shape, of.q(of.x), of.k(of.x), of.v(of.x), want.y, of.dy, want.lse,
                                         of.q(of.dx), of.k(of.dx), of.v(of.dx), Write::over)
                         : forward_call(shape, of.q(of.x), of.k(of.x), of.v(of.x), of.y, of.lse, Write::over);
    };
    for (const bool is_backward : {false, true}) {
      const AttentionCall call = with(layer, is_backward);
      ASSERT_EQ(why_not_fused(call.traits), "");
      const auto parts = attention_parts(call.geometry, Index{1} << 30);
      ASSERT_FALSE(parts.empty());
      for (const AttentionPart& part : parts) {
        SCOPED_TRACE(fmt::format("{} samples and {} groups at a time", part.samples, part.groups));
        const Layer is = layer.copy();
        run(with(is, is_backward), part);
        expect_near(is.y, is_backward ? layer.y : want.y, is_backward ? 0 : error, "y");
        expect_near(is.lse, is_backward ? layer.lse : want.lse, is_backward ? 0 : 1e-4, "lse");
        expect_near(is.dx, is_backward ? want.dx : layer.dx, is_backward ? 4 * error : 0, "dx");
      }
    }
  }
}

// In a run on a card: cuDNN itself, twice with the same bits.
TEST_P(AttentionGraph, RunsOnACard) {
  if (test::card() == nullptr) GTEST_SKIP() << "this run has no card";
  const auto backend = make_cuda_backend(*test::card(), {.dtype = GetParam()}), reference = make_reference_backend();
  naive::Generator random(15);
  const double error = GetParam() == DType::bf16 ? 0.03 : 0.005;
  for (const Index dim : {8, 64, 128})
    for (const Index places : {13, 130})
      for (const Index queries : {1, 3}) {
        const HeadShape shape{2, queries, dim, 1 / std::sqrt(static_cast<double>(dim)), random.one_in(2)};
        const Layer want(random, GetParam(), shape, 3, places);
        SCOPED_TRACE(fmt::format("{} queries, {} channels, {} places", queries, dim, places));
        const Layer is = want.copy(), again = want.copy();
        forward(*reference, want);
        backward(*reference, want, want);
        for (const Layer& each : {is, again}) {
          forward(*backend, each);
          backward(*backend, want, each);
        }
        expect_near(is.y, want.y, error, "y");
        expect_near(is.lse, want.lse, 1e-3, "lse");
        expect_near(is.dx, want.dx, 4 * error, "dx");
        expect_near(again.y, is.y, 0, "y again");
        expect_near(again.dx, is.dx, 0, "dx again");
      }
}

// The mask of a graph counts queries and keys from the same place.
TEST(AttentionCall, QueriesAndKeysAreOfTheSamePlaces) {
  naive::Generator random(12);
  const HeadShape shape{2, 1, 8, 1, true};
  const Layer layer(random, DType::bf16, shape, 1, 10);
  const auto why = [&](Interval places, Interval keys) {
    const auto part = [](const Tensor& of, Interval at) {
      Box box = of.box();
      box[2] = at;
      return extract(of, box, MemoryClass::workspace, {});
    };
    const Tensor of_q = part(layer.x, places), of_k = part(layer.x, keys);
    const auto call = forward_call(shape, layer.q(of_q), layer.k(of_k), layer.v(of_k), part(layer.y, places),
                                   part(layer.lse, places), Write::over);
    return why_not_fused(call.traits);
  };
  EXPECT_EQ(why({0, 10}, {0, 10}), "");
  EXPECT_EQ(why({4, 10}, {4, 10}), "");
  EXPECT_NE(why({9, 10}, {0, 10}), "");
  EXPECT_NE(why({0, 5}, {0, 10}), "");
  EXPECT_NE(why({0, 5}, {5, 10}), "");
}

// Heads that begin at any channel, or at any element of memory, stay with our own kernels.
TEST(AttentionCall, HeadsAreAligned) {
  naive::Generator random(14);
  const HeadShape shape{2, 1, 8, 1, false};
  const Layer layer(random, DType::bf16, shape, 1, 10);
  Box box = layer.x.box();
  box[1] = {0, 2 * 32};
  const Tensor wide = random.tensor(DType::bf16, "NCL", box);
  const auto why = [&](Index first, Index step, const Tensor& of) {
    const Heads q{of, first, step}, k{of, first + 8, step}, v{of, first + 16, step};
    return why_not_fused(forward_call(shape, q, k, v, layer.y, layer.lse, Write::over).traits);
  };
  EXPECT_EQ(why(0, 32, wide), "");
  EXPECT_EQ(why(8, 32, wide), "");
  EXPECT_NE(why(4, 32, wide), "");
  box[1] = {0, 2 * 28};
  EXPECT_NE(why(0, 28, random.tensor(DType::bf16, "NCL", box)), "");
  box[1] = {0, 2 * 24};
  const Tensor later = Tensor::view(wide, 4, "NCL", box);
  EXPECT_NE(why(0, 24, later), "");
  EXPECT_EQ(why(0, 24, Tensor::view(wide, 8, "NCL", box)), "");
}

// Some of the tensors of a graph are not part of the other pass, or of a call without a mask.
TEST(AttentionGraphTensors, HaveAddressesOnlyIfUsed) {
  AttentionGeometry call{.samples = 1, .groups = 1, .queries = 1, .dim = 8, .places = 4, .keys = 4};
  call.q = call.k = call.v = call.y = call.dq = call.dk = call.dv = {4, 24, 0, 24, 8};
  using Ids = std::vector<std::int64_t>;
  const auto ids = [&] { return addressed(attention_graph(call, attention_parts(call, 1 << 20).at(0))); };
  EXPECT_EQ(ids(), (Ids{at_q, at_k, at_v, at_y, at_lse, at_scale}));
  call.causal = 1;
  EXPECT_EQ(ids(), (Ids{at_q, at_k, at_v, at_y, at_lse, at_scale, at_masked}));
  call.backward = 1;
  EXPECT_EQ(ids(),
            (Ids{at_q, at_k, at_v, at_y, at_lse, at_scale, at_masked, at_one, at_dy, at_dq, at_dk, at_dv, at_mean}));
}

}  // namespace
}  // namespace partita::cuda::attention_graph_test
