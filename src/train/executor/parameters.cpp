#include "src/train/executor/parameters.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

namespace partita {

namespace {

void draw(const WeightSpec& spec, const std::string& layer, std::uint64_t seed, const Tensor& w) {
  if (spec.init == Init::zeros) return;
  const Random random(seed, hash_text(layer + "/" + spec.name));
  const Tensor drawn = w.device().host() ? w : Tensor(w.dtype(), w.names(), w.box());
  fill(drawn, spec.shape, [&](Index i) { return spec.init == Init::ones ? 1.0 : spec.deviation * random.normal(i); });
  from_host(drawn, w, w.stream());
}

Tensor flat_tensor(DType dtype, Index elements, const std::shared_ptr<Allocator>& allocator, MemoryClass memory) {
  return {dtype, "F", Box(Shape{{'F', elements}}), allocator, memory};
}

/// Returns the position of weight j among the trained weights of its layer.
std::size_t trained_position(const LayerPlan& layer, int weight) {
  return static_cast<std::size_t>(std::count_if(layer->weights.begin(), layer->weights.begin() + weight,
                                                [](const WeightSpec& spec) { return spec.trained; }));
}

/// The layer that draws a weight, and stores it in a checkpoint.
const LayerPlan& owner(const Plan& plan, std::size_t layer, std::size_t weight) {
  const int table = plan.layers[layer].table;
  return plan.layers[table >= 0 && weight == 0 ? static_cast<std::size_t>(table) : layer];
}

std::string full_name(const Plan& plan, std::size_t layer, std::size_t weight) {
  const LayerPlan& of = owner(plan, layer, weight);
  return of.name + "/" + of->weights[weight].name;
}

std::string name_of(const Plan& plan, const Bucket::Entry& entry) {
  return full_name(plan, static_cast<std::size_t>(entry.layer), static_cast<std::size_t>(entry.weight));
}

/// Returns a layer of the replica that the stage runs.
const LayerPlan& layer_on(const Plan& plan, std::size_t i, int stage) {
  return plan.replica_on(plan.layers[i].group, stage) == 1 ? plan.second_replica->layers[i] : plan.layers[i];
}

/// Gives a layer the table of its embedding, in its memory.
void share_table(const LayerPlan& tied, Parameters::Layer& layer, const Parameters::Layer& embedding) {
  layer.master[0] = embedding.master[0];
  layer.rounded.push_back(embedding.rounded[0]);
  if (embedding.gradient.empty()) return;  // without training
  layer.gradient.resize(static_cast<std::size_t>(trained_position(tied, static_cast<int>(tied->weights.size()))));
  layer.gradient[0] = embedding.gradient[0];
}

}  // namespace

Parameters::Parameters(const Plan& plan, int world_rank, std::uint64_t seed,
                       const std::shared_ptr<Allocator>& allocator) {
  const DType dtype = plan.workload.dtype, master = master_dtype(dtype);
  layers_.resize(plan.layers.size());
  const int stage = plan.stage_of_rank(world_rank), rank = plan.rank_in_stage(world_rank);
  const auto runs_here = [&](int layer) { return plan.replica_on(plan.layers[layer].group, stage) >= 0; };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!runs_here(static_cast<int>(i))) continue;
    const auto& specs = plan.layers[i]->weights;
    layers_[i].master.resize(specs.size());
    for (std::size_t j = 0; j < specs.size(); ++j)
      if ((!specs[j].trained || !plan.workload.training) && plan.layers[i].holds(j))  // it is in no bucket
        layers_[i].master[j] =
            DistTensor(layer_on(plan, i, stage)->rest[j].w, rank, master, allocator, MemoryClass::weights);
  }
  for (const auto& bucket : plan.buckets) {
    if (!runs_here(bucket.last())) {
      buckets_.emplace_back();
      continue;
    }
    Flat flat{plan.offsets(bucket, rank), plan.share(bucket, rank), {}, {}, {}};
    flat.w = flat_tensor(master, flat.offsets.back(), allocator, MemoryClass::weights);
    flat.dw = flat_tensor(plan.gradient_dtype, flat.offsets.back(), allocator, MemoryClass::gradients);
    for (std::size_t k = 0; k < plan.workload.optimizer.states().size(); ++k)
      flat.state.push_back(flat_tensor(master, flat.share.extent(), allocator, MemoryClass::optimizer));
    for (std::size_t e = 0; e < bucket.entries.size(); ++e) {
      const auto [layer, weight] = bucket.entries[e];
      const auto& bound = layer_on(plan, static_cast<std::size_t>(layer), stage);
      const Layout& layout = bound->rest[weight].w;
      const auto names = layout.shape().names();
      auto& mine = layers_[layer];
      auto& w = mine.master[weight];
      w.layout = layout;
      w.local = Tensor::view(flat.w, flat.offsets[e], names, layout.owned(rank));
      mine.gradient.resize(std::max(mine.gradient.size(), trained_position(bound, weight) + 1));
      mine.gradient[trained_position(bound, weight)] =
          Tensor::view(flat.dw, flat.offsets[e], names, layout.owned(rank));
    }
    buckets_.push_back(std::move(flat));
  }
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t j = 0; j < layers_[i].master.size(); ++j) {
      if (!plan.layers[i].holds(j)) {
        share_table(plan.layers[i], layers_[i], layers_[plan.layers[i].table]);
        continue;
      }
      const LayerPlan& drawn = owner(plan, i, j);
      const auto& spec = drawn->weights[j];
      const Tensor& w = layers_[i].master[j].local;
      draw(spec, drawn.name, seed, w);
      const bool rounded = spec.trained && dtype != master;
      if (is_second_copy(plan, i, j)) copies_.emplace_back(layers_[plan.layers[i].table].master[0].local, w);
      layers_[i].rounded.push_back(rounded ? Tensor(dtype, w.names(), w.box(), allocator, MemoryClass::weights) : w);
    }
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t j = 0; j < layers_[i].rounded.size(); ++j)
      layers_[i].compute.push_back(plan.layers[i]->rest[j].gather.empty() ? layers_[i].rounded[j] : Tensor());
  refresh(allocator->stream());
}

bool Parameters::is_second_copy(const Plan& plan, std::size_t layer, std::size_t weight) const {
  return weight == 0 && plan.layers[layer].copies_table && !layers_[plan.layers[layer].table].master.empty();
}

Tensor Parameters::whole_state(const Bucket& bucket, const Flat& flat, const Tensor& share,
                               const ProcessGrid& grid) const {
  if (share.volume() == flat.w.volume()) return share;
  Tensor whole = flat.w.like(flat.w.box(), MemoryClass::workspace);
  Communicator& group = grid.along(bucket.axes);
  const auto counts = balanced_counts(whole.volume(), group.size());
  group.all_gather(share.data(), whole.data(), counts, whole.dtype(), whole.stream()).wait(whole.stream());
  return whole;
}

std::vector<NamedTensor> Parameters::named(const Plan& plan, const ProcessGrid& grid, bool optimizer) const {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t j = 0; j < layers_[i].master.size(); ++j)
      if (plan.layers[i].holds(j) && !is_second_copy(plan, i, j))
        tensors.push_back({full_name(plan, i, j), layers_[i].master[j]});
  if (!optimizer) return tensors;
  const auto states = plan.workload.optimizer.states();
  const int stage = plan.stage_of_rank(grid.grid().first_rank());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].w || plan.is_second_copy(plan.buckets[b], stage)) continue;  // or it belongs to another stage
    for (std::size_t k = 0; k < states.size(); ++k) {
      const Tensor whole = whole_state(plan.buckets[b], buckets_[b], buckets_[b].state[k], grid);
      for (std::size_t e = 0; e < plan.buckets[b].entries.size(); ++e) {
        const auto& [layer, weight] = plan.buckets[b].entries[e];
        const auto& bound = layer_on(plan, static_cast<std::size_t>(layer), stage);
        DistTensor state;
        state.layout = bound->rest[weight].w;
        state.local =
            Tensor::view(whole, buckets_[b].offsets[e], state.layout.shape().names(), state.layout.owned(grid.rank()));
        tensors.push_back({fmt::format("{}.{}", name_of(plan, plan.buckets[b].entries[e]), states[k]), state});
      }
    }
  }
  return tensors;
}

std::vector<NamedTensor> Parameters::named_everywhere(const Plan& plan, const ProcessGrid& grid, int world_rank) const {
  std::map<std::string, DistTensor> mine;
  for (auto& [name, tensor] : named(plan, grid, true)) mine[name] = tensor;
  const int stage = plan.stage_of_rank(world_rank);
  std::vector<NamedTensor> all;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    for (std::size_t j = layer.table < 0 ? 0 : 1; j < layer->weights.size(); ++j) {
      std::vector<std::string> names{full_name(plan, i, j)};
      if (layer->weights[j].trained)
        for (const auto& state : plan.workload.optimizer.states())
          names.push_back(fmt::format("{}.{}", names.front(), state));
      for (const auto& name : names) {
        const Layout& layout = layer->rest[j].w;
        DistTensor tensor;
        tensor.layout = layout;
        tensor.local =
            plan.stage_running(layer.group) == stage
                ? mine.at(name).local
                : Tensor(master_dtype(plan.workload.dtype), layout.shape().names(), Box(layout.shape().dims()));
        all.push_back({name, tensor});
      }
    }
  }
  return all;
}

void Parameters::keep_state(const Plan& plan, const std::vector<NamedTensor>& named) {
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : named) by_name[name] = &tensor.local;
  const auto states = plan.workload.optimizer.states();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Flat& flat = buckets_[b];
    if (!flat.w) continue;  // it belongs to another stage
    for (std::size_t e = 0; e < plan.buckets[b].entries.size(); ++e) {
      const std::string name = name_of(plan, plan.buckets[b].entries[e]);
      for (std::size_t k = 0; k < states.size(); ++k) {
        const Tensor& whole = *by_name.at(fmt::format("{}.{}", name, states[k]));
        const Interval mine = intersect({flat.offsets[e], flat.offsets[e] + whole.volume()}, flat.share);
        if (mine.empty()) continue;
        const Box box(Shape{{'F', mine.extent()}});
        const Tensor from = Tensor::view(whole, mine.lo - flat.offsets[e], "F", box),
                     to = Tensor::view(flat.state[k], mine.lo - flat.share.lo, "F", box);
        if (from.data() != to.data()) copy_box(from, to, box, to.stream());
      }
    }
  }
}

void Parameters::refresh(Stream stream) {
  for (const auto& [from, to] : copies_) copy_box(from, to, to.box(), stream);
  for (auto& layer : layers_)
    for (std::size_t i = 0; i < layer.master.size(); ++i)
      if (const auto& w = layer.master[i].local; layer.rounded[i].data() != w.data())
        convert(w, layer.rounded[i], stream);
}

}  // namespace partita
