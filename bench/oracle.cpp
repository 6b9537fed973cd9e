// Runs random layers in f64, each under a random layout on 1 to 6 thread ranks, and prints parameters, inputs, outputs,
// loss and gradients as one JSON object per line. bench/peers/oracle.py compares them with PyTorch. The layer stands
// between a 1x1 convolution, whose gradient checks the layer's dx, and a mean squared error.
//   build/bench/oracle [CASES [SEED]]
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/rows.hpp"
#include "src/train/trainer/trainer_parts.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <mutex>
#include <random>

using namespace partita;

namespace {

using Json = nlohmann::ordered_json;

/// A layer and its parameters, with PyTorch's names.
struct Case {
  Model model{"oracle"};
  Json described;
  std::string layout, grid;
  Index batch = 1;
};

/// True if the parameters are invalid or PyTorch does not support them, so that others are drawn. Any other error is a
/// fault.
bool may_be_drawn_again(const std::string& message) {
  for (const char* reason : {"does not fit dimension", "leave nothing", "contains only padding", "do not divide",
                             "output_padding is", "splits a group", "PyTorch"})
    if (message.find(reason) != std::string::npos) return true;
  return false;
}

/// Draws random cases.
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
    c.grid = grids[between(0, 4)];
    c.layout = layout(c);
    static_cast<void>(bind(c.model, strategy(c), {.batch = c.batch, .dtype = DType::f64, .optimizer = {}}));
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
    const Grid grid = Grid::parse(c.grid);
    const Shape y = c.model.shapes(c.batch)[2];
    std::string text;
    std::vector<std::string> axes = grid.names();
    std::vector<int> dims(static_cast<std::size_t>(y.dims()));
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int>(d);
    std::shuffle(dims.begin(), dims.end(), random_);
    for (std::size_t a = 0; a < axes.size() && a < dims.size(); ++a)
      text += fmt::format("{}{}@{}", text.empty() ? "" : " ", y.name(dims[a]), axes[a]);
    return text;
  }

 public:
  static Strategy strategy(const Case& c) {
    Strategy strategy(c.grid);
    strategy.layer("layer", {.output = c.layout});
    return strategy;
  }

 private:
  std::mt19937_64 random_;
  int dims_ = 2;
};

/// A whole tensor, assembled from the parts of all ranks in logical order.
class Whole {
 public:
  void add(const Shape& shape, const Tensor& part) {
    values_.resize(static_cast<std::size_t>(shape.volume()));
    for_rows(part, shape, [&](const Row& row) {
      for (Index i = 0; i < row.length; ++i) values_[row.first + i] = part.get(row.offset + i * row.stride);
    });
  }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

Json run(const Case& c, std::uint64_t seed) {
  std::map<std::string, Whole> found;
  double loss = 0;
  std::mutex mutex;
  run_threads(Grid::parse(c.grid).size(), [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = c.batch;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.seed = seed;
    Trainer trainer(c.model, Draw::strategy(c), options, comm);
    Executor& executor = TrainerParts::executor(trainer, c.batch, true);
    executor.keep_outputs(true);
    const Plan& plan = executor.plan();
    const Shape image = plan.layers[0]->shape, target = executor.target().shape;
    const Batch batch{Tensor(DType::f64, image.names(), executor.images()),
                      Tensor(DType::f64, target.names(), executor.target_box())};
    fill(batch.images, image, [&](Index i) { return Random(seed, 1).normal(i); });
    fill(batch.target, target, [&](Index i) { return Random(seed, 2).normal(i); });
    for (std::size_t l = 0; l < plan.layers.size(); ++l)
      for (std::size_t w = 0; w < plan.layers[l]->weights.size(); ++w) {
        const auto& spec = plan.layers[l]->weights[w];
        if (!spec.trained) continue;
        const Tensor& mine = TrainerParts::parameters(trainer).layer(l).master[w].local;
        fill(mine, spec.shape, [&](Index i) { return Random(seed, 10 * l + w + 3).normal(i); });
        const std::lock_guard lock(mutex);
        found[plan.layers[l].name + "/" + spec.name].add(spec.shape, mine);
      }
    const StepResult result = executor.run(batch, 0, 1e-300);
    const std::lock_guard lock(mutex);
    loss = result.loss;
    found["image"].add(image, batch.images);
    found["target"].add(target, batch.target);
    found["y"].add(plan.layers[2]->shape, executor.output(2));
    for (std::size_t l = 0; l < plan.layers.size(); ++l)
      for (std::size_t w = 0; w < TrainerParts::parameters(trainer).layer(l).gradient.size(); ++w)
        found["d " + plan.layers[l].name + "/" + plan.layers[l]->weights[w].name].add(
            plan.layers[l]->weights[w].shape, TrainerParts::parameters(trainer).layer(l).gradient[w]);
  });
  Json json = c.described;
  json["grid"] = c.grid;
  json["layout"] = c.layout;
  const auto shapes = c.model.shapes(c.batch);
  const auto extents = [](const Shape& shape) {
    std::vector<Index> all;
    for (int d = 0; d < shape.dims(); ++d) all.push_back(shape.extent(d));
    return all;
  };
  json["image shape"] = extents(shapes[0]);
  json["y shape"] = extents(shapes[2]);
  json["loss"] = loss;
  for (const auto& [name, whole] : found) json[name] = whole.values();
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? parse_number<std::uint64_t>(argv[i]).value_or(otherwise) : otherwise;
  };
  const std::uint64_t cases = number(1, 500), first = number(2, 1);
  for (std::uint64_t seed = first; seed < first + cases; ++seed) fmt::print("{}\n", run(Draw(seed)(), seed).dump());
  return 0;
}
