#include "src/backend/gpu/cuda/libraries/attention_plan.hpp"

#include "partita/base/error.hpp"

#include <utility>

namespace partita::cuda {

namespace {

using Dims = GraphTensor::Dims;
using Kind = GraphTensor::Kind;
using Id = std::int64_t;

Dims dense(const Dims& extents) {
  return {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
}
Dims transposed(Dims dims) {
  std::swap(dims[2], dims[3]);
  return dims;
}
Dims strides(const HeadSteps& steps) { return {steps.batch, steps.head, steps.place, 1}; }

/// Writes a graph down, one operation after the other. cuDNN knows it by its pattern: the operations and their order
/// are those that its documentation and front end have.
class Writer {
 public:
  Writer(const AttentionGeometry& call, const AttentionPart& part)
      : call_(call),
        part_(part),
        queries_{part.batch, part.heads, call.places, call.dim},
        keys_{part.batch, part.key_heads, call.keys, call.dim},
        rows_{part.batch, part.heads, call.places, 1},
        pairs_{part.batch, part.heads, call.places, call.keys} {
    graph_.tensors.resize(attention_tensors);
    store(at_q, queries_, strides(part.q));
    store(at_k, transposed(keys_), transposed(strides(part.k)));
    store(at_v, keys_, strides(part.v));
    store(at_y, queries_, strides(part.y));
    at(at_lse) = {rows_, dense(rows_), CUDNN_DATA_FLOAT, Kind::stored};
    at(at_scale).kind = at(at_masked).kind = at(at_one).kind = Kind::number;
  }

  OperationGraph forward() && {
    const Id scores = masked(scaled(product(at_q, at_k)));
    const Id largest = sum(CUDNN_REDUCE_TENSOR_MAX, scores);
    const Id weights = apply(CUDNN_POINTWISE_EXP, {apply(CUDNN_POINTWISE_SUB, {scores, largest})});
    const Id total = sum(CUDNN_REDUCE_TENSOR_ADD, weights);
    apply_to(at_lse, CUDNN_POINTWISE_ADD, {largest, apply(CUDNN_POINTWISE_LOG, {total})});
    product_to(at_y, apply(CUDNN_POINTWISE_DIV, {weights, total}, type()), at_v);
    return std::move(graph_);
  }

  OperationGraph backward() && {
    at(at_v) = {transposed(keys_), transposed(strides(part_.v)), type(), Kind::stored};
    store(at_dy, queries_, strides(part_.y));
    store(at_dq, queries_, strides(part_.dq));
    store(at_dk, keys_, strides(part_.dk));
    store(at_dv, keys_, strides(part_.dv));
    at(at_mean) = {rows_, dense(rows_), CUDNN_DATA_FLOAT, Kind::stored};

    const Id mean = sum(CUDNN_REDUCE_TENSOR_ADD, apply(CUDNN_POINTWISE_MUL, {at_dy, at_y}));
    apply_to(at_mean, CUDNN_POINTWISE_MUL, {mean, at_one});
    const Id scores = scaled(product(at_q, at_k));
    const Id weights = apply(CUDNN_POINTWISE_EXP, {masked(apply(CUDNN_POINTWISE_SUB, {scores, at_lse}))});
    sum_over_queries(at_dv, weights, at_dy);
    const Id slopes = apply(CUDNN_POINTWISE_SUB, {product(at_dy, at_v), at_mean});
    const Id of_scores = scaled(apply(CUDNN_POINTWISE_MUL, {slopes, weights}));
    sum_over_queries(at_dk, of_scores, at_q);
    const Id keys = add(keys_, strides(part_.k), type());
    transpose_to(keys, at_k);
    product_to(at_dq, of_scores, keys);
    return std::move(graph_);
  }

 private:
  cudnnDataType_t type() const {
    switch (static_cast<DType>(call_.dtype)) {
      case DType::bf16: return CUDNN_DATA_BFLOAT16;
      case DType::f16: return CUDNN_DATA_HALF;
      default: broken("cuDNN computes attention in bf16 and f16");
    }
  }
  GraphTensor& at(Id id) { return graph_.tensors[static_cast<std::size_t>(id)]; }
  void store(Id id, const Dims& extents, const Dims& steps) { at(id) = {extents, steps, type(), Kind::stored}; }
  Id add(const Dims& extents, const Dims& steps, cudnnDataType_t of_type = CUDNN_DATA_FLOAT) {
    graph_.tensors.push_back({extents, steps, of_type, Kind::between});
    return static_cast<Id>(graph_.tensors.size()) - 1;
  }

  void product_to(Id to, Id a, Id b) {
    graph_.operations.push_back({.kind = GraphOperation::Kind::product, .inputs = {a, b}, .output = to});
  }
  Id product(Id a, Id b) {
    const Id made = add(pairs_, dense(pairs_));
    product_to(made, a, b);
    return made;
  }
  void transpose_to(Id to, Id from) {
    graph_.operations.push_back({.kind = GraphOperation::Kind::transpose, .inputs = {from}, .output = to});
  }
  void sum_to(Id to, cudnnReduceTensorOp_t by, Id from) {
    graph_.operations.push_back({.kind = GraphOperation::Kind::reduction, .sum = by, .inputs = {from}, .output = to});
  }
  Id sum(cudnnReduceTensorOp_t by, Id from) {
    const Id made = add(rows_, dense(rows_));
    sum_to(made, by, from);
    return made;
  }
  void apply_to(Id to, cudnnPointwiseMode_t function, std::vector<Id> inputs, std::int64_t axis = 0) {
    graph_.operations.push_back({.function = function, .axis = axis, .inputs = std::move(inputs), .output = to});
  }
  Id apply(cudnnPointwiseMode_t function, std::vector<Id> inputs, cudnnDataType_t of_type = CUDNN_DATA_FLOAT,
           std::int64_t axis = 0) {
    const Dims extents = at(inputs.front()).extents;
    const Id made = add(extents, dense(extents), of_type);
    apply_to(made, function, std::move(inputs), axis);
    return made;
  }
  Id scaled(Id of_pairs) { return apply(CUDNN_POINTWISE_MUL, {of_pairs, at_scale}); }
  Id masked(Id scores) {
    if (call_.causal == 0) return scores;
    const Id place = apply(CUDNN_POINTWISE_GEN_INDEX, {scores}, CUDNN_DATA_INT32, 2),
             key = apply(CUDNN_POINTWISE_GEN_INDEX, {scores}, CUDNN_DATA_INT32, 3),
             seen = apply(CUDNN_POINTWISE_CMP_GE, {place, key}, CUDNN_DATA_BOOLEAN);
    return apply(CUDNN_POINTWISE_BINARY_SELECT, {scores, at_masked, seen});
  }
  /// The gradient of keys or values: transposed numbers of pairs times rows of queries, summed over the heads that
  /// share keys.
  void sum_over_queries(Id to, Id of_pairs, Id rows) {
    const Id by_key = add(transposed(pairs_), transposed(dense(pairs_)), type());
    transpose_to(by_key, of_pairs);
    if (part_.heads == part_.key_heads) return product_to(to, by_key, rows);
    const Dims extents{part_.batch, part_.heads, call_.keys, call_.dim};
    const Id of_heads = add(extents, dense(extents), type());
    product_to(of_heads, by_key, rows);
    sum_to(to, CUDNN_REDUCE_TENSOR_ADD, of_heads);
  }

  const AttentionGeometry& call_;
  const AttentionPart& part_;
  Dims queries_, keys_, rows_, pairs_;
  OperationGraph graph_;
};

}  // namespace

OperationGraph attention_graph(const AttentionGeometry& call, const AttentionPart& part) {
  return call.backward != 0 ? Writer(call, part).backward() : Writer(call, part).forward();
}

void AttentionPath::run(cudnnHandle_t handle, const AttentionRun& run, std::byte* workspace) const {
  std::vector<void*> data;
  for (const std::int64_t id : tensors) data.push_back(run.at[static_cast<std::size_t>(id)]);
  plan.execute(handle, tensors, data, workspace + part.bytes, "compute attention");
}

std::optional<AttentionPath> attention_path(const AttentionGeometry& call, const CudnnDescriptor& device,
                                            Index workspace) {
  constexpr Index alignment = 16;
  for (const AttentionPart& part : attention_parts(call, workspace)) {
    const OperationGraph graph = attention_graph(call, part);
    const auto described = cudnn_graph(graph, alignment);
    if (!described) continue;
    for (const CudnnDescriptor& config : proposed(*described, device)) {
      if (!keeps_to(engine_of(config), static_cast<DType>(call.dtype), {})) continue;
      auto plan = engine_plan(name_of(config), config, device);
      if (!plan) continue;
      if (part.bytes + plan->workspace() <= workspace) return AttentionPath{part, std::move(*plan), addressed(graph)};
      break;  // a smaller part may fit
    }
  }
  return std::nullopt;
}

}  // namespace partita::cuda
