// A large mean changes no normalization, on any number of ranks: BN(x + c) = BN(x). Trains layers between two stubs, of
// which one gives x and the other dy, and compares with two passes in long double.
#include "partita/base/philox.hpp"
#include "partita/partita.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/naive.hpp"
#include "test/support/norm_oracle.hpp"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

namespace partita::test::norm_mean_test {
namespace {

constexpr Index samples = 3, channels = 6, height = 5, width = 4, points = height * width;

using Given = std::function<double(Index step, Index element)>;

/// A layer that changes nothing, except that it gives values of its own to the layer after it (y) or before it (dx), by
/// the step and the element's number in the global tensor. It keeps what it got.
class Stub final : public CustomLayer {
 public:
  Stub(Given y, Given dx) : y_(std::move(y)), dx_(std::move(dx)) {}
  std::string_view kind() const override { return "stub"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.output.with_partial(0);
    return {.x = {x}, .y = x, .dx = {x}};
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    pass(call, x[0], y, y_);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    pass(call, dy, dx[0], dx_);
  }
  /// What this thread's rank got last.
  const Tensor& got() const {
    const std::scoped_lock lock(mutex_);
    return got_.at(std::this_thread::get_id());
  }

 private:
  void pass(const KernelCall& call, const Tensor& from, const Tensor& to, const Given& value) const {
    copy_box(from, to, to.box(), {});
    if (value) return fill(to, call.layer->shape, [&](Index i) { return value(step_of(call), i); });
    const std::scoped_lock lock(mutex_);
    got_[std::this_thread::get_id()] = extract(from, from.box(), MemoryClass::workspace, {});
  }
  static Index step_of(const KernelCall& call) { return static_cast<Index>(call.step.get(0)); }

  Given y_, dx_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, Tensor> got_;
};

/// The four kinds of normalization, and what shares statistics.
struct Kind {
  const char* name;
  std::function<Value(Model&, const Value&)> layer;
  Index parts, groups;
  NormShape shape() const { return {samples, channels, points, parts, groups}; }
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"batch", [](Model& m, const Value& t) { return m.batch_norm("norm", t); }, 1, channels},
      {"group", [](Model& m, const Value& t) { return m.group_norm("norm", t, {.groups = 3}); }, samples, 3},
      {"layer", [](Model& m, const Value& t) { return m.layer_norm("norm", t); }, samples, 1},
      {"instance", [](Model& m, const Value& t) { return m.instance_norm("norm", t); }, samples, channels}};
  return all;
}

/// What x is in each step.
struct Inputs {
  double mean, deviation;
  double operator()(Index i) const { return mean + deviation * Random(1, 1).normal(i); }
};
constexpr std::array inputs{Inputs{0, 1},     Inputs{1e4, 1},    Inputs{-1e6, 1}, Inputs{1e5, 0.1},
                            Inputs{1e9, 1e3}, Inputs{1000.1, 0}, Inputs{1e10, 0}, Inputs{-1e-3, 0}};

double scale_of(Index c) { return 1 + 0.1 * static_cast<double>(c); }
double shift_of(Index c) { return 0.2 * static_cast<double>(c) - 0.3; }
double gradient_of(Index i) { return Random(2, 1).normal(i); }

/// What a dtype makes of numbers.
NormOracle::Values in(DType dtype, Index count, const std::function<double(Index)>& f) {
  NormOracle::Values values;
  for (Index i = 0; i < count; ++i) values.push_back(dtype == DType::f64 ? f(i) : static_cast<float>(f(i)));
  return values;
}

/// Expects a rank's part of a tensor N C H W, or of a vector C, near the right values.
void expect_part(const Tensor& part, const NormOracle::Values& right, const std::function<double(std::size_t)>& bound,
                 const char* what) {
  naive::for_elements(part, [&](const naive::At& at, Index i) {
    const Index element =
        part.box().dims() == 1 ? part.box()[0].lo + i : ((at[0] * channels + at[1]) * height + at[3]) * width + at[4];
    const auto number = static_cast<std::size_t>(element);
    ASSERT_NEAR(part.get(i), static_cast<double>(right[number]), bound(number)) << what << " " << element;
  });
}

/// A normalization between two stubs on one rank.
struct Trial {
  Trial(const Kind& the_kind, const Strategy& strategy, DType the_dtype, const Model& the_model, Communicator& comm,
        const Stub& the_before, const Stub& the_after)
      : kind(the_kind), dtype(the_dtype), model(the_model), before(the_before), after(the_after) {
    TrainerOptions options;
    options.batch = samples;
    options.dtype = dtype;
    options.backend = "reference";
    trainer = std::make_unique<Trainer>(model, strategy, options, comm);
    set("scale", scale_of);
    set("shift", shift_of);
  }
  static constexpr std::size_t norm = 3;  // in, conv, before, norm, after, ...

  void set(std::string_view name, const std::function<double(Index)>& f) {
    for (std::size_t j = 0; j < trainer->plan().layers[norm]->weights.size(); ++j)
      if (const auto& spec = trainer->plan().layers[norm]->weights[j]; spec.name == name)
        fill(TrainerParts::parameters(*trainer).layer(norm).master[j].local, spec.shape, f);
  }
  void run(Index step, bool training) {
    Executor& executor = TrainerParts::executor(*trainer, samples, training);
    const Target target = executor.target();
    const Batch batch{{Tensor(dtype, executor.plan().layers[0]->shape.names(), executor.images())},
                      Tensor(DType::i32, target.shape.names(), executor.target_box())};
    executor.run(batch, step, 1e-300);
  }
  NormOracle right(Index step) const {
    return {kind.shape(),
            in(dtype, samples * channels * points, inputs[step]),
            in(dtype, samples * channels * points, gradient_of),
            in(dtype, channels, scale_of),
            in(dtype, channels, shift_of),
            1e-5};
  }
  /// Runs a step and compares everything that comes out.
  void expect_step(Index step) {
    run(step, true);
    const NormOracle of = right(step);
    const double deviation = inputs[step].deviation;
    const bool wide = dtype == DType::f64;
    const double of_dx = deviation > 0 && deviation < 1 ? 1e-9 / deviation : 1e-9;  // dx is as large as 1/deviation
    const auto of_y = [&](std::size_t i) { return deviation == 0 ? 0 : wide ? 1e-9 : of.y_bound(i); };
    expect_part(after.got(), of.y, of_y, "y");
    expect_part(
        before.got(), of.dx, [&](std::size_t i) { return wide ? of_dx : of.dx_bound(i); }, "dx");
    const auto& gradients = TrainerParts::parameters(*trainer).layer(norm).gradient;
    const auto sum = [&](std::size_t) { return wide ? 1e-8 : 1e-4; };
    expect_part(gradients[0], of.dscale, sum, "dscale");
    expect_part(gradients[1], of.dshift, sum, "dshift");
  }
  /// Evaluates with given running statistics: y as if the mean were theirs.
  void expect_evaluation(Index step) {
    const Inputs& x = inputs[step];
    set("running_mean", [&](Index) { return x.mean; });
    set("running_variance", [&](Index) { return 0.25; });
    run(step, false);
    const auto of_x = in(dtype, samples * channels * points, x), scale = in(dtype, channels, scale_of),
               shift = in(dtype, channels, shift_of), mean = in(dtype, 1, [&](Index) { return x.mean; });
    NormOracle::Values y(of_x.size());
    const long double r = 1 / std::sqrt(0.25L + static_cast<long double>(1e-5));
    const auto channel = [&](std::size_t i) {
      return static_cast<std::size_t>(kind.shape().channel(static_cast<Index>(i)));
    };
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = scale[channel(i)] * r * (of_x[i] - mean[0]) + shift[channel(i)];
    const double unit = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
    expect_part(
        after.got(), y,
        [&](std::size_t i) { return unit * static_cast<double>(8 * std::abs(y[i]) + 8 * std::abs(shift[channel(i)])); },
        "evaluated y");
  }

  const Kind& kind;
  DType dtype;
  const Model& model;
  const Stub &before, &after;
  std::unique_ptr<Trainer> trainer;
};

/// Runs f(trial) on all ranks, for a kind of normalization.
template <class F>
void try_on(const Kind& kind, const Strategy& strategy, DType dtype, F&& f) {
  const auto before = std::make_shared<Stub>([](Index step, Index i) { return inputs[step](i); }, Given());
  const auto after = std::make_shared<Stub>(Given(), [](Index, Index i) { return gradient_of(i); });
  Model m("norm");
  Value t = m.input("in", {.channels = 1, .spatial = {height, width}});
  t = m.conv("conv", t, {.filters = channels, .kernel = 1});
  t = m.layer("after", after, {kind.layer(m, m.layer("before", before, {t}))});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 2}));
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    Trial trial(kind, strategy, dtype, m, comm, *before, *after);
    f(trial);
  });
}

// Uneven parts, an empty one (5 rows over 6 ranks), channels apart, replicas.
const std::vector<std::pair<const char*, const char*>>& layouts() {
  static const std::vector<std::pair<const char*, const char*>> all{
      {"", ""},       {"y=2", "H@y"},         {"a=2", "N@a"},         {"y=4", "H@y"},    {"a=2 x=2", "N@a W@x"},
      {"y=6", "H@y"}, {"a=2 y=3", "N@a H@y"}, {"c=3 y=2", "C@c H@y"}, {"r=2 a=3", "N@a"}};
  return all;
}

template <class F>
void on_all(F&& f) {
  for (const Kind& kind : kinds())
    for (const auto& [grid, layout] : layouts())
      for (const DType dtype : {DType::f64, DType::f32}) {
        SCOPED_TRACE(fmt::format("{} normalization in {}, [{}] on \"{}\"", kind.name, name(dtype), layout, grid));
        Strategy strategy(grid);
        if (*layout != '\0') strategy.layer("*", {.output = layout});
        try_on(kind, strategy, dtype, f);
      }
}

TEST(NormMean, ALargeOneChangesNothingOnAnyRanks) {
  on_all([](Trial& trial) {
    for (Index step = 0; step < static_cast<Index>(inputs.size()); ++step) {
      SCOPED_TRACE(fmt::format("mean {:g}", inputs[step].mean));
      trial.expect_step(step);
    }
    if (std::string_view(trial.kind.name) == "batch") trial.expect_evaluation(2), trial.expect_evaluation(5);
  });
}

/// The loss of the first step if the images have a mean.
double loss_of(const Kind& kind, const char* grid, double mean, int microbatches) {
  Model m("loss");
  Value t = m.input("image", {.channels = 3, .spatial = {16, 16}});
  m.mean_squared_error("loss", m.linear("fc", kind.layer(m, t), {.features = 1}));
  Strategy strategy(grid);
  if (*grid != '\0') strategy.layer("*", {.output = "H@y"});
  strategy.schedule(ScheduleKind::gpipe, microbatches);
  double loss = 0;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = 4;
    options.dtype = DType::f64;
    Trainer trainer(m, strategy, options, comm);
    const LocalBatch batch = trainer.make_batch(4);
    fill(batch.images[0].tensor, batch.images[0].shape, [&](Index i) { return mean + Random(1, 1).normal(i); });
    const double found = trainer.step(batch).loss;
    if (comm.rank() == 0) loss = found;
  });
  return loss;
}

TEST(NormMean, TheLossIsThatOfImagesWithoutMean) {
  for (const Kind& kind : kinds())
    for (const int microbatches : {1, 3}) {
      const double right = loss_of(kind, "", 0, microbatches);
      for (const char* grid : {"", "y=3", "y=4"})
        for (const double mean : {1e4, 1e5, 1e6})
          EXPECT_NEAR(loss_of(kind, grid, mean, microbatches), right, 1e-9)
              << kind.name << " of mean " << mean << " on " << grid << " in " << microbatches;
    }
}

}  // namespace
}  // namespace partita::test::norm_mean_test
