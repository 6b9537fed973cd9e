#include "src/train/run/stage_exchange.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/redistribute.hpp"

#include <array>

namespace partita {

StageExchange::StageExchange(const Plan& plan, Communicator& world, const ProcessGrid& grid, TrafficCounter& counter,
                             const std::shared_ptr<Allocator>& allocator, Stream stream)
    : plan_(plan), world_(world), grid_(grid), counter_(counter), allocator_(allocator), stream_(stream) {}

const TransferPlan& StageExchange::transfer(const StageBoundary& boundary, bool back) {
  const auto [found, fresh] = transfers_.try_emplace({&boundary, back});
  if (fresh) found->second = boundary.transfer(world_.rank(), back);
  return found->second;
}

Tensor StageExchange::allocate(const Layout& layout) const {
  return {plan_.workload.dtype, layout.shape().names(),   layout.owned(grid_.rank()),
          allocator_,           MemoryClass::activations, Fill::none};
}

Crossing StageExchange::start(const StageBoundary& boundary, bool back, int layer, Tensor tensor) {
  const auto& name = plan_.layers[static_cast<std::size_t>(layer)].name;
  counter_.set_label(name, fmt::format("{} stage {}", back ? "dy from" : "y to",
                                       plan_.stage_of_rank(boundary.to.grid().first_rank())));
  return {layer, tensor, Exchange(transfer(boundary, back), tensor, tensor, world_, stream_)};
}

void StageExchange::perform(const Action& action, const std::vector<LayerPlan>& layers, Microbatch& m) {
  using enum Action::Kind;
  const bool back = action.kind == send_gradient || action.kind == receive_gradient;
  const bool mine = action.kind == send_output || action.kind == receive_gradient;  // the layers are of this stage
  const int producer = mine ? action.group : action.peer, consumer = mine ? action.peer : action.group;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].group != producer || (back && !layers[i].has_backward())) continue;
    for (const auto& boundary : layers[i].sends_to_stages) {
      if (boundary.group != consumer) continue;
      const int layer = static_cast<int>(i);
      if (action.kind == send_output) {
        counter_.set_label(layers[i].name,
                           fmt::format("y to stage {}", plan_.stage_running(boundary.group, action.replica)));
        DistTensor y;
        y.layout = layers[i]->y;
        y.local = m.outputs[i];
        m.sent.push_back(start(boundary, back, layer, redistribute(y, boundary.complete_sums, grid_, stream_).local));
      } else if (action.kind == receive_input) {
        m.outputs[i] = allocate(boundary.to);
        m.arriving.push_back(start(boundary, back, layer, m.outputs[i]));
      } else if (action.kind == send_gradient) {
        gradients_.push_back(start(boundary, back, layer, std::move(m.gradients[i])));
        m.gradients[i] = {};
      } else {
        m.arriving_gradients.push_back(start(boundary, back, layer, allocate(boundary.from)));
      }
    }
  }
}

void StageExchange::finish_inputs(Microbatch& m) {
  for (auto& crossing : m.arriving) crossing.exchange.finish();
  m.arriving.clear();
}

void StageExchange::finish_gradients(Microbatch& m) {
  finish();
  for (auto& [layer, tensor, exchange] : m.arriving_gradients) {
    exchange.finish();
    Tensor& sum = m.gradients[static_cast<std::size_t>(layer)];
    if (sum)
      add(tensor, sum);
    else
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

StepResult StageExchange::share(const StepResult& result) {
  const int loss = plan_.layers.back().group;
  const bool tells = plan_.replica_on(loss, plan_.stage_of_rank(world_.rank())) >= 0 && grid_.rank() == 0;
  std::array sums{tells ? result.loss : 0, tells ? result.accuracy : 0};
  counter_.set_label(plan_.layers.back().name, "loss to all stages");
  world_.all_reduce(sums.data(), 2, DType::f64, ReduceOp::sum, stream_).wait();
  return {sums[0], sums[1]};
}

}  // namespace partita
