#include "src/train/executor/stage_exchange.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/redistribute.hpp"

#include <array>

namespace partita {

StageExchange::StageExchange(const RunContext& context, Stream stream) : context_(context), stream_(stream) {}

const TransferPlan& StageExchange::transfer(const StageBoundary& boundary, bool back) {
  const auto [found, fresh] = transfers_.try_emplace({&boundary, back});
  if (fresh) found->second = boundary.transfer(context_.world.rank(), back);
  return found->second;
}

Tensor StageExchange::allocate(const LayerPlan& layer, const Layout& layout) const {
  return {layer.op->output_type(context_.plan.workload.dtype),
          layout.shape().names(),
          layout.owned(context_.grid.rank()),
          context_.allocator,
          MemoryClass::activations,
          Fill::none};
}

Crossing StageExchange::start(const StageBoundary& boundary, bool back, int layer, Tensor tensor) {
  const auto& name = context_.plan.layers[layer].name;
  context_.counter.set_label(name, fmt::format("{} stage {}", back ? "dy from" : "y to",
                                               context_.plan.stage_of_rank(boundary.to.grid().first_rank())));
  return {layer, tensor, Exchange(transfer(boundary, back), tensor, tensor, context_.world, stream_)};
}

void StageExchange::run(const StepOp& op, int replica, const std::vector<LayerPlan>& layers, Microbatch& m) {
  using enum StepOp::Kind;
  const auto i = static_cast<std::size_t>(op.layer);
  const StageBoundary& boundary = layers[i].sends_to_stages[op.part];
  switch (op.kind) {
    case send_output: {
      context_.counter.set_label(layers[i].name,
                                 fmt::format("y to stage {}", context_.plan.stage_running(boundary.group, replica)));
      DistTensor y;
      y.layout = layers[i]->y;
      y.local = m.outputs[i];
      y = redistribute(y, boundary.complete_sums, context_.grid, stream_);
      m.sent.push_back(start(boundary, false, op.layer, y.local));
      return;
    }
    case receive_input:
      m.outputs[i] = allocate(layers[i], boundary.to);
      m.arriving.push_back(start(boundary, false, op.layer, m.outputs[i]));
      return;
    case send_gradient:
      gradients_.push_back(start(boundary, true, op.layer, std::move(m.gradients[i])));
      m.gradients[i] = {};
      return;
    case receive_gradient:
      m.arriving_gradients.push_back(start(boundary, true, op.layer, allocate(layers[i], boundary.from)));
      return;
    default: broken(fmt::format("the operation {} is not a transfer between stages", name(op.kind)));
  }
}

void StageExchange::finish_inputs(Microbatch& m) {
  for (auto& crossing : m.arriving) crossing.exchange.finish();
  m.arriving.clear();
}

void StageExchange::finish_gradients(Microbatch& m) {
  finish_outputs(m);
  finish();
  for (auto& [layer, tensor, exchange] : m.arriving_gradients) {
    exchange.finish();
    Tensor& sum = m.gradients[layer];
    if (sum) add(sum, tensor, stream_);  // somebody else may hold `sum` (LayerRunner::forwards_gradient)
    sum = tensor;
  }
  m.arriving_gradients.clear();
}

void StageExchange::finish_outputs(Microbatch& m) {
  for (auto& crossing : m.sent) crossing.exchange.finish();
  m.sent.clear();
}

void StageExchange::progress(std::vector<Microbatch>& microbatches) {
  for (auto& crossing : gradients_) crossing.exchange.progress();
  for (auto& m : microbatches)
    for (auto* crossings : {&m.arriving, &m.sent, &m.arriving_gradients})
      for (auto& crossing : *crossings) crossing.exchange.progress();
}

void StageExchange::finish() {
  for (auto& crossing : gradients_) crossing.exchange.finish();
  gradients_.clear();
}

LossSums StageExchange::share(const LossSums& sums) {
  LossSums all = context_.tells_loss() ? sums : LossSums{};
  context_.counter.set_label(context_.plan.layers.back().name, "loss to all stages");
  context_.control.all_reduce(all.data(), context_.plan.target().results(), DType::f64, ReduceOp::sum, {}).wait();
  return all;
}

}  // namespace partita
