// Runs random layers in f64, each under a random layout on 1 to 6 thread ranks, and prints parameters, inputs, outputs,
// loss and gradients as one JSON object per line. bench/peers/oracle.py compares them with PyTorch. Each seed draws a
// layer of images, behind a 1x1 convolution, and a layer of sequences, behind a linear layer, an embedding or tables.
// The gradient of the layer before it checks the layer's dx. Behind it stands a loss.
//   build/bench/oracle [SEEDS [FIRST]]
#include "bench/support/oracle_case.hpp"
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/rows.hpp"
#include "src/train/trainer/trainer_parts.hpp"

#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <random>

using namespace partita;

namespace {

using Json = nlohmann::ordered_json;

using Case = bench::OracleCase;

/// True if the parameters are invalid or PyTorch does not support them, so that others are drawn. Any other error is a
/// fault.
bool may_be_drawn_again(const std::string& message) {
  for (const char* reason : {"does not fit dimension", "leave nothing", "contains only padding", "do not divide",
                             "output_padding is", "splits a group", "PyTorch"})
    if (message.find(reason) != std::string::npos) return true;
  return false;
}

/// Draws layers of images.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  Case operator()() {
    for (;;) try {
        return once();
      } catch (const Error& error) {
        if (!may_be_drawn_again(error.what())) throw;
      }
  }

 private:
  Index between(Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random_); }
  std::vector<Index> each(Index lo, Index hi) {
    std::vector<Index> values(static_cast<std::size_t>(dims_));
    for (auto& value : values) value = between(lo, hi);
    return values;
  }
  PerDim per_dim(const std::vector<Index>& v) const {
    return dims_ == 1 ? PerDim{v[0]} : dims_ == 2 ? PerDim{v[0], v[1]} : PerDim{v[0], v[1], v[2]};
  }
  Padding same_sides(const std::vector<Index>& v) const {
    return dims_ == 1 ? Padding{Sides(v[0])} : dims_ == 2 ? Padding{v[0], v[1]} : Padding{v[0], v[1], v[2]};
  }

  Case once() {
    dims_ = static_cast<int>(between(1, 3));
    Case c;
    c.batch = between(1, 3);
    const Index channels = between(1, 6);
    const auto spatial = each(1, dims_ == 3 ? 6 : 9);
    Value t = c.model.input("image", {.channels = 2, .spatial = spatial});
    t = c.model.conv("first", t, {.filters = channels});
    t = layer(c, t, channels);
    c.model.mean_squared_error("loss", t);
    static const std::vector<std::string> grids{"", "a=2", "a=3", "a=2 b=2", "a=3 b=2"};
    c.strategy = Strategy(grids[between(0, 4)]);
    c.layout = layout(c);
    c.strategy.layer("layer", {.output = c.layout});
    static_cast<void>(bind(c.model, c.strategy, {.batch = c.batch, .dtype = DType::f64, .optimizer = {}}));
    return c;
  }

  Value layer(Case& c, Value t, Index channels) {
    auto& d = c.described;
    switch (between(0, 4)) {
      case 0:
      case 1: {
        const auto kernel = each(1, 4), stride = each(1, 3), padding = each(0, 3), dilation = each(1, 2);
        const Index groups = between(0, 2) == 0 ? channels : 1;
        const Index filters = groups * between(1, groups > 1 ? 2 : 5);
        const bool bias = between(0, 1) == 0;
        d = {{"kind", "conv"},     {"channels", channels}, {"filters", filters}, {"kernel", kernel}, {"stride", stride},
             {"padding", padding}, {"dilation", dilation}, {"groups", groups},   {"bias", bias}};
        return c.model.conv(
            "layer", t,
            {filters, per_dim(kernel), per_dim(stride), same_sides(padding), per_dim(dilation), groups, bias});
      }
      case 2: {
        const auto kernel = each(1, 4), stride = each(1, 3), padding = each(0, 2), dilation = each(1, 2);
        const auto more = each(0, 2);
        const Index groups = between(0, 2) == 0 ? channels : 1;
        const Index filters = groups * between(1, groups > 1 ? 2 : 5);
        const bool bias = between(0, 1) == 0;
        d = {{"kind", "conv_transpose"}, {"channels", channels}, {"filters", filters},     {"kernel", kernel},
             {"stride", stride},         {"padding", padding},   {"output_padding", more}, {"dilation", dilation},
             {"groups", groups},         {"bias", bias}};
        return c.model.conv_transpose("layer", t,
                                      {filters, per_dim(kernel), per_dim(stride), same_sides(padding), per_dim(more),
                                       per_dim(dilation), groups, bias});
      }
      case 3: {
        auto window = each(1, 4);  // not larger than the input, which PyTorch refuses for averages
        const Shape x = c.model.shapes(1)[1];
        for (std::size_t i = 0; i < window.size(); ++i)
          window[i] = std::min(window[i], x.extent(static_cast<int>(i) + 2));
        const auto stride = each(1, 3), dilation = each(1, 2);
        auto padding = each(0, 2);
        for (std::size_t i = 0; i < padding.size(); ++i)
          padding[i] = std::min(padding[i], window[i] / 2);  // PyTorch's limit
        const bool maximum = between(0, 1) == 0, counts = between(0, 1) == 0;
        d = {{"kind", maximum ? "max_pool" : "average_pool"},
             {"window", window},
             {"stride", stride},
             {"padding", padding},
             {"dilation", dilation},
             {"count_padding", counts}};
        const Pool pool{per_dim(window), per_dim(stride), same_sides(padding), maximum ? per_dim(dilation) : PerDim{1},
                        counts};
        return maximum ? c.model.max_pool("layer", t, pool) : c.model.average_pool("layer", t, pool);
      }
      default: return norm(c, t, channels);
    }
  }

  Value norm(Case& c, Value t, Index channels) {
    const Index places = c.model.shapes(1)[1].volume() / channels;
    if (places == 1) fail("PyTorch refuses statistics of one value");
    if (between(0, 1) == 0) {
      c.described = {{"kind", "batch_norm"}, {"channels", channels}, {"epsilon", 1e-3}};
      return c.model.batch_norm("layer", t, {.epsilon = 1e-3});
    }
    const Index groups = between(1, channels);
    c.described = {{"kind", "group_norm"}, {"channels", channels}, {"groups", groups}, {"epsilon", 1e-3}};
    return c.model.group_norm("layer", t, {.groups = groups, .epsilon = 1e-3});
  }

  std::string layout(const Case& c) {
    const Shape y = c.model.shapes(c.batch)[2];
    std::string text;
    std::vector<std::string> axes = c.strategy.grid().names();
    std::vector<int> dims(static_cast<std::size_t>(y.dims()));
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int>(d);
    std::shuffle(dims.begin(), dims.end(), random_);
    for (std::size_t a = 0; a < axes.size() && a < dims.size(); ++a)
      text += fmt::format("{}{}@{}", text.empty() ? "" : " ", y.name(dims[a]), axes[a]);
    return text;
  }

  std::mt19937_64 random_;
  int dims_ = 2;
};

/// A whole tensor, assembled from the parts of all ranks in logical order.
class Whole {
 public:
  void add(const Shape& shape, const Tensor& part) {
    values_.resize(static_cast<std::size_t>(shape.volume()));
    known_.resize(values_.size());
    for_rows(part, shape, [&](const Row& row) {
      for (Index i = 0; i < row.length; ++i) set(row.first + i, part.get(row.offset + i * row.stride));
    });
  }
  const std::vector<double>& values() const { return values_; }
  /// True if ranks that hold the same element hold the same value, and every element is held.
  bool agrees() const { return agrees_ && std::find(known_.begin(), known_.end(), false) == known_.end(); }

 private:
  void set(Index i, double value) {
    agrees_ = agrees_ && (!known_[i] || values_[i] == value);
    known_[i] = true;
    values_[i] = value;
  }

  std::vector<double> values_;
  std::vector<bool> known_;
  bool agrees_ = true;
};

/// What all ranks found, by name.
struct Found {
  std::mutex mutex;
  std::map<std::string, Whole> tensors;
  double loss = 0;

  void add(const std::string& name, const Shape& shape, const Tensor& part) {
    const std::lock_guard lock(mutex);
    tensors[name].add(shape, part);
  }
};

/// Draws all trained weights.
void draw_weights(Trainer& trainer, const Plan& plan, std::uint64_t seed, Found& found) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l)
    for (std::size_t w = 0; w < plan.layers[l]->weights.size(); ++w) {
      const auto& spec = plan.layers[l]->weights[w];
      if (!spec.trained) continue;
      const Tensor& mine = TrainerParts::parameters(trainer).layer(l).master[w].local;
      fill(mine, spec.shape, [&](Index i) { return Random(seed, 10 * l + w + 3).normal(i); });
      found.add(plan.layers[l].name + "/" + spec.name, spec.shape, mine);
    }
}

/// Draws this rank's part of the input and the target. Tokens and labels are whole numbers.
Batch draw_batch(const Case& c, const Executor& executor, std::uint64_t seed, Found& found) {
  const Plan& plan = executor.plan();
  const Target target = executor.target();
  const Index classes = plan.layers.back()->input_shapes[0]['C'];
  Batch batch;
  batch.target = Tensor(target.labels ? DType::i32 : DType::f64, target.shape.names(), executor.target_box());
  const auto draw = [&](std::uint64_t purpose, Index i, bool whole, Index numbers) {
    const Random random(seed, purpose);
    return whole ? static_cast<double>(random.bits(i) % static_cast<std::uint32_t>(numbers)) : random.normal(i);
  };
  for (int i = 0; i < std::ssize(executor.inputs()); ++i) {
    const LayerPlan& input = plan.layers[executor.inputs()[i]];
    const bool tokens = input.op->integers();
    const char* numbers = input.name == "segments" ? "numbers of segments" : "vocabulary";
    const Index vocabulary = tokens ? c.described[numbers].get<Index>() : 0;
    const Tensor& images =
        batch.images.emplace_back(tokens ? DType::i32 : DType::f64, input->shape.names(), executor.images(0, i));
    fill(images, input->shape,
         [&](Index at) { return draw(1 + 100 * static_cast<std::uint64_t>(i), at, tokens, vocabulary); });
    found.add(input.name, input->shape, images);
  }
  fill(batch.target, target.shape, [&](Index i) { return draw(2, i, target.labels, classes); });
  found.add("target", target.shape, batch.target);
  return batch;
}

void run_rank(const Case& c, std::uint64_t seed, Communicator& comm, Found& found) {
  TrainerOptions options;
  options.batch = c.batch;
  options.dtype = DType::f64;
  options.backend = "reference";
  options.seed = seed;
  Trainer trainer(c.model, c.strategy, options, comm);
  Executor& executor = TrainerParts::executor(trainer, c.batch, true);
  executor.keep_outputs(true);
  const Plan& plan = executor.plan();
  draw_weights(trainer, plan, seed, found);
  const StepResult result = executor.run(draw_batch(c, executor, seed, found), 0, 1e-300);
  const std::size_t last = plan.layers.size() - 2;
  found.add("y", plan.layers[last]->shape, executor.output(last));
  for (std::size_t l = 0; l < plan.layers.size(); ++l)
    for (std::size_t w = 0; w < TrainerParts::parameters(trainer).layer(l).gradient.size(); ++w) {
      const auto& spec = plan.layers[l]->weights[w];
      found.add("d " + plan.layers[l].name + "/" + spec.name, spec.shape,
                TrainerParts::parameters(trainer).layer(l).gradient[w]);
    }
  const std::lock_guard lock(found.mutex);
  found.loss = result.loss;
}

Json run(const Case& c, std::uint64_t seed) {
  Found found;
  run_threads(c.strategy.grid().size(), [&](Communicator& comm) { run_rank(c, seed, comm, found); });
  Json json = c.described;
  json["seed"] = seed;
  json["grid"] = c.strategy.grid().print();
  json["layout"] = c.layout;
  const auto shapes = c.model.shapes(c.batch);
  const auto extents = [](const Shape& shape) {
    std::vector<Index> all;
    for (int d = 0; d < shape.dims(); ++d) all.push_back(shape.extent(d));
    return all;
  };
  json["image shape"] = extents(shapes[0]);
  json["y shape"] = extents(shapes[shapes.size() - 2]);
  json["loss"] = found.loss;
  for (const auto& [name, whole] : found.tensors) {
    if (!whole.agrees()) fail("seed {}: the ranks' parts of {} do not agree, on \"{}\"", seed, name, c.layout);
    json[name] = whole.values();
  }
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? parse_number<std::uint64_t>(argv[i]).value_or(otherwise) : otherwise;
  };
  const std::uint64_t seeds = number(1, 500), first = number(2, 1);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed)
    for (const Case& c : {Draw(seed)(), bench::draw_sequence(seed)}) fmt::print("{}\n", run(c, seed).dump());
  return 0;
}
