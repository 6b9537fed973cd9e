#include "partita/base/dispatch.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/executor.hpp"

namespace partita {

namespace {

void draw(const WeightSpec& spec, const std::string& layer, std::uint64_t seed, const Tensor& w) {
  const Random random(seed, hash(layer + "/" + spec.name));
  switch (spec.init) {
    case Init::zeros: return;
    case Init::ones: return fill(w, spec.shape, [](Index) { return 1.0; });
    case Init::normal: return fill(w, spec.shape, [&](Index i) { return spec.deviation * random.normal(i); });
  }
}

/// v = momentum * v + g, w -= rate * (nesterov ? g + momentum * v : v), with g = dw + decay * w
template <class T>
void sgd(const Optimizer& optimizer, double rate, double decay, const T* dw, T* v, T* w, Index count) {
  const auto r = static_cast<T>(rate), m = static_cast<T>(optimizer.momentum), d = static_cast<T>(decay);
  for (Index i = 0; i < count; ++i) {
    const T g = dw[i] + d * w[i];
    T direction = g;
    if (v != nullptr) {
      v[i] = m * v[i] + g;
      direction = optimizer.nesterov ? g + m * v[i] : v[i];
    }
    w[i] -= r * direction;
  }
}

}  // namespace

Parameters::Parameters(const Plan& plan, int rank, std::uint64_t seed, const std::shared_ptr<Allocator>& allocator) {
  const DType dtype = plan.workload.dtype, master = master_dtype(dtype);
  for (const auto& bound : plan.layers) {
    Layer layer;
    for (std::size_t i = 0; i < bound.weights.size(); ++i) {
      const auto& spec = bound.weights[i];
      layer.master.emplace_back(bound.at.w[i], rank, master, allocator, MemoryClass::weights);
      const Tensor& w = layer.master.back().local;
      draw(spec, bound.name, seed, w);
      const bool rounded = spec.trained && dtype != master;
      layer.compute.push_back(rounded ? Tensor(dtype, w.names(), w.box(), allocator, MemoryClass::weights) : w);
      if (!spec.trained || !plan.workload.training) continue;
      layer.gradient.emplace_back(dtype, w.names(), w.box(), allocator, MemoryClass::gradients);
      if (plan.workload.optimizer.momentum > 0)
        layer.velocity.emplace_back(bound.at.w[i], rank, master, allocator, MemoryClass::optimizer);
    }
    layers_.push_back(std::move(layer));
  }
  refresh(dtype);
}

std::vector<NamedTensor> Parameters::named(const Plan& plan, bool optimizer) const {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    std::size_t trained = 0;
    for (std::size_t j = 0; j < layer.master.size(); ++j) {
      const auto& spec = plan.layers[i].weights[j];
      const std::string name = plan.layers[i].name + "/" + spec.name;
      tensors.push_back({name, layer.master[j]});
      if (!spec.trained) continue;
      if (optimizer && trained < layer.velocity.size())
        tensors.push_back({name + ".velocity", layer.velocity[trained]});
      ++trained;
    }
  }
  return tensors;
}

void Parameters::refresh(DType dtype) {
  for (auto& layer : layers_)
    for (std::size_t i = 0; i < layer.master.size(); ++i)
      if (const auto& w = layer.master[i].local; layer.compute[i].data() != w.data())
        copy_box(convert(w, dtype), layer.compute[i], w.box());
}

void Parameters::zero_gradients() {
  for (auto& layer : layers_)
    for (const auto& dw : layer.gradient) dw.zero();
}

void Parameters::update(const Plan& plan, double rate) {
  const auto& optimizer = plan.workload.optimizer;
  const DType master = master_dtype(plan.workload.dtype);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = layers_[i];
    std::size_t trained = 0;
    for (std::size_t j = 0; j < layer.master.size(); ++j) {
      const auto& spec = plan.layers[i].weights[j];
      if (!spec.trained) continue;
      const Tensor dw = convert(layer.gradient[trained], master);
      const Tensor v = trained < layer.velocity.size() ? layer.velocity[trained].local : Tensor();
      const double decay = spec.decay ? optimizer.weight_decay : 0;
      const Tensor& w = layer.master[j].local;
      if (master == DType::f64)
        sgd(optimizer, rate, decay, dw.as<double>(), v ? v.as<double>() : nullptr, w.as<double>(), w.volume());
      else
        sgd(optimizer, rate, decay, dw.as<float>(), v ? v.as<float>() : nullptr, w.as<float>(), w.volume());
      ++trained;
    }
  }
  refresh(plan.workload.dtype);
}

}  // namespace partita
