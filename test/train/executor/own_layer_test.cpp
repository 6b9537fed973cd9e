// A windowed layer of the user's own: its halos travel while it computes, and it trains like one rank.
#include "partita/train/kernels/custom_layer.hpp"
#include "src/comm/delaying.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/diffusion_rule.hpp"
#include "test/support/error_of.hpp"
#include "test/support/master.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <thread>

namespace partita::test::own_layer_test {
namespace {

/// How long the layer computes for all rows of a rank, and how long its passes took, on the slower of the ranks.
struct DiffusionTimes {
  double compute = 0;
  double forward = 0;   ///< from the start of forward to the end of it
  double backward = 0;  ///< from the start of start_backward to the end of backward_data
};

/// The layer, on tensors of N C H W with one column. With `times` it sleeps while it computes, and notes how long its
/// passes took.
class Diffusion final : public DiffusionRule<CustomLayer> {
 public:
  explicit Diffusion(HaloOverlap overlap, bool dy_halo = true, std::array<DiffusionTimes, 2>* times = nullptr)
      : DiffusionRule(overlap, dy_halo), times_(times) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    const double start = now();
    const auto compute = [&](const Tensor& from, const Box& part) {
      spend(call, part, y.box());
      for_each(part, [&](Place at) { set(y, at, value(from, at) + rate(call, at) * curvature(from, at)); });
    };
    save(call, {with_halo(call, windows(call.layer->shape), x[0], y, compute)});
    if (times_ != nullptr) times(call).forward = now() - start;
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    state<double>(call) = now();
    CustomLayer::start_backward(call, dy);
  }

  void backward_filter(const KernelCall& call, const Tensor& dy) const override {
    spend(call, dy.box(), dy.box());
    for_each(dy.box(), [&](Place at) {
      const Tensor& drate = call.dw[0];
      drate.set(at[1] - drate.box()[0].lo,
                drate.get(at[1] - drate.box()[0].lo) + value(dy, at) * curvature(saved(call), at));
    });
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    if (has_dy_halo()) {
      const Tensor& from = dy_with_halo(call);
      for_each(dx[0].box(), [&](Place at) { set(dx[0], at, value(from, at) + rate(call, at) * curvature(from, at)); });
    } else {
      return_halo(call, windows(call.layer->shape), dy, dx[0], [&](const Box& part, const Tensor& to) {
        spend(call, part, dy.box());
        for_each(part, [&](Place at) {
          const double all = value(dy, at), share = rate(call, at) * all;
          add(to, at, all - 2 * share);
          for (const Index step : {-1, 1}) add(to, {at[0], at[1], at[2] + step}, share);
        });
      });
    }
    if (times_ != nullptr) times(call).backward = now() - state<double>(call);
  }

 private:
  using Place = std::array<Index, max_dims>;  // n, c, h and, always 0, w

  template <class F>
  static void for_each(const Box& box, F&& f) {
    for (Index n = box[0].lo; n < box[0].hi; ++n)
      for (Index c = box[1].lo; c < box[1].hi; ++c)
        for (Index h = box[2].lo; h < box[2].hi; ++h) f(Place{n, c, h});
  }
  static bool holds(const Tensor& tensor, Place at) {
    return at[2] >= tensor.box()[2].lo && at[2] < tensor.box()[2].hi;
  }
  static double value(const Tensor& tensor, Place at) { return holds(tensor, at) ? tensor.at(at) : 0; }
  static void set(const Tensor& tensor, Place at, double value) { tensor.set(tensor.offset(at), value); }
  static void add(const Tensor& tensor, Place at, double value) {
    if (holds(tensor, at)) set(tensor, at, tensor.at(at) + value);
  }
  static double curvature(const Tensor& x, Place at) {
    return value(x, {at[0], at[1], at[2] - 1}) - 2 * value(x, at) + value(x, {at[0], at[1], at[2] + 1});
  }
  static double rate(const KernelCall& call, Place at) { return call.w[0].get(at[1] - call.w[0].box()[0].lo); }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  DiffusionTimes& times(const KernelCall& call) const { return (*times_)[call.rank.comm.rank()]; }
  /// Sleeps for the share of the time that `part` of `all` takes.
  void spend(const KernelCall& call, const Box& part, const Box& all) const {
    if (times_ == nullptr) return;
    const double share = static_cast<double>(part.volume()) / static_cast<double>(all.volume());
    std::this_thread::sleep_for(std::chrono::duration<double>(share * times(call).compute));
  }

  std::array<DiffusionTimes, 2>* times_;
};

constexpr HaloOverlap all_halos{.x = true, .dy = true, .dx = true};

/// The layer between two others, on rows of H.
Model with_layer(const std::shared_ptr<const Operator>& layer, Index rows) {
  Model m("own layer");
  auto t = m.input("in", {.channels = 3, .spatial = {rows, 1}});
  t = m.conv("a", t, {.filters = 4, .kernel = 1});
  t = m.layer("own", layer, {t});
  m.mean_squared_error("loss", t);
  return m;
}

/// Returns a case with the layer, instead of one that is drawn.
RandomCase case_of(const Model& model, const Strategy& strategy) {
  RandomCase made(1);
  made.model = model;
  made.strategy = strategy;
  made.batch = 5;
  made.optimizer = {};
  return made;
}

void expect_trains_like_one_rank(const std::string& grid, const std::string& output, HaloOverlap overlap, bool dy_halo,
                                 bool recompute = false) {
  SCOPED_TRACE(fmt::format("{} {} dy_halo {} recompute {}", grid, output, dy_halo, recompute));
  Strategy strategy(grid);
  strategy.layer("*", {.output = output}).layer("own", {.recompute = recompute});
  const RandomCase made = case_of(with_layer(std::make_shared<Diffusion>(overlap, dy_halo), 11), strategy);
  const SerialResult serial = run_serially(made);
  const Plan plan = bind(made.model, strategy, workload_of(made));
  Traffic halos;
  for (const Outputs outputs : {Outputs::kept, Outputs::released})
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      const RankResult result = run_rank(made, strategy, comm, true, Weights::drawn, outputs);
      if (outputs == Outputs::released) return expect_predicted_memory(plan, comm.rank(), result);
      EXPECT_FALSE(expect_near_serial(made, result, serial));
      expect_predicted(plan, comm.rank(), result);
    });
  for (const auto& item : layer_traffic(plan, 2, 0))
    if (item.purpose == Purpose::halo_x || item.purpose == Purpose::halo_dy || item.purpose == Purpose::halo_dx)
      halos += item.traffic;
  EXPECT_EQ(halos.messages > 0, output.find("H@") != std::string::npos);
}

TEST(OwnLayer, WithAWindowTrainsLikeOneRank) {
  for (const bool dy_halo : {true, false}) {
    for (const HaloOverlap overlap : {all_halos, HaloOverlap()})
      expect_trains_like_one_rank("y=3", "N H@y", overlap, dy_halo);
    expect_trains_like_one_rank("data=2 y=2", "N@data H@y", all_halos, dy_halo);
    expect_trains_like_one_rank("c=2 y=2", "C@c H@y", all_halos, dy_halo, true);
    expect_trains_like_one_rank("y=16", "H@y", all_halos, dy_halo);  // more ranks than rows
    expect_trains_like_one_rank("data=2", "N@data", all_halos, dy_halo);
  }
}

constexpr double transfer = 0.1;
constexpr int attempts = 3;  // a loaded machine may be late, but never early

/// Runs one step on two ranks with a slow simulated network. The layer computes for `compute` seconds in each of its
/// passes.
DiffusionTimes measure(double compute, HaloOverlap overlap, bool dy_halo, bool enabled = true) {
  std::array<DiffusionTimes, 2> times{DiffusionTimes{compute}, DiffusionTimes{compute}};
  const Model model = with_layer(std::make_shared<Diffusion>(overlap, dy_halo, &times), 40);
  Strategy strategy("y=2");
  strategy.layer("*", {.output = "H@y"});
  run_threads(2, [&](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = transfer});
    DrawnData data(inputs_of(model), model.layers().back().op->target(model.shapes(1)[2]), 1, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 1;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.overlap = enabled;
    Trainer trainer(model, strategy, options, *slow);
    trainer.step(data, std::vector<Index>{0});
  });
  return {compute, std::max(times[0].forward, times[1].forward), std::max(times[0].backward, times[1].backward)};
}

/// Every attempt must take the time of its sleeps, and one must come near it.
void expect_times(double forward, double backward, const std::function<DiffusionTimes()>& run) {
  const auto near = [](double measured, double expected) { return measured <= 1.2 * expected + 0.02; };
  DiffusionTimes last;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    last = run();
    ASSERT_GE(last.forward, forward - 0.001);
    ASSERT_GE(last.backward, backward - 0.001);
    if (near(last.forward, forward) && near(last.backward, backward)) return;
  }
  ADD_FAILURE() << "forward " << last.forward << " s, expected " << forward << "; backward " << last.backward
                << " s, expected " << backward;
}

// One row in 20 reads the halo. It is computed once the halo is there.
TEST(OwnLayer, ComputesWhileItsHalosTravel) {
  const auto run = [](double compute, HaloOverlap overlap, bool dy_halo, bool enabled = true) {
    return [=] { return measure(compute, overlap, dy_halo, enabled); };
  };
  expect_times(transfer + 0.1 / 20, transfer, run(0.1, all_halos, true));
  expect_times(0.1 + transfer, 0.1 + transfer, run(0.1, {}, true));
  expect_times(0.1 + transfer, 0.1 + transfer, run(0.1, all_halos, true, false));
  // The gradient of x's halo travels between backward_data's border and the end of it; backward_filter comes before.
  expect_times(transfer + 0.1 / 20, 0.1 + 0.1 / 20 + transfer, run(0.1, all_halos, false));
  expect_times(0.1 + transfer, 0.1 + 0.1 + transfer, run(0.1, {}, false));
}

/// A loss of the user's own: the mean over all elements of (x - target)^2, which is built in too.
class Squares final : public CustomLayer {
 public:
  std::string_view kind() const override { return "squares"; }
  bool is_loss() const override { return true; }
  Shape output(std::span<const Shape> inputs) const override { return {{'N', inputs[0]['N']}}; }
  Target target(const Shape& x) const override { return {x, false}; }

  // loss = sum over a, b, c of squares(x[N@a C@b H@c]) / elements
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.arriving[0]).with_partial(0);
    OperatorLayouts layouts{.x = {x}, .y = x.onto(request.output.shape()).with_partial(0), .dx = {x}};
    const Layout number(Shape{{'L', 1}}, x.grid());
    if (x.sharding() != 0) layouts.collectives = {{Collective::When::forward, "loss", x.sharding(), number, 2}};
    return layouts;
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& /*y*/) const override {
    save(call, {x[0]});
    double sum = 0;
    for (Index i = 0; i < x[0].volume(); ++i) sum += std::pow(x[0].get(i) - call.target.get(i), 2);
    call.result.set(0, call.result.get(0) + sum / count(call));
    call.label("loss");
    if (const AxisSet axes = call.layer->at.x[0].sharding(); axes != 0)
      call.grid.along(axes).all_reduce(call.result.data(), 2, DType::f64, ReduceOp::sum, call.rank.stream).wait();
  }
  void backward_data(const KernelCall& call, const Tensor& /*dy*/, std::span<const Tensor> dx) const override {
    const Tensor& x = saved(call);
    for (Index i = 0; i < x.volume(); ++i) dx[0].set(i, call.share / count(call) * 2 * (x.get(i) - call.target.get(i)));
  }

 private:
  static double count(const KernelCall& call) { return static_cast<double>(call.layer->input_shapes[0].volume()); }
};

// The built-in loss on one rank gives the right values.
TEST(OwnLayer, CanBeALoss) {
  const auto with_loss = [](bool own) {
    Model m("own loss");
    auto t = m.input("in", {.channels = 3, .spatial = {7, 5}});
    t = m.conv("a", t, {.filters = 5, .kernel = 3, .padding = 1});
    own ? m.layer("loss", std::make_shared<Squares>(), {t}) : m.mean_squared_error("loss", t);
    return m;
  };
  const SerialResult serial = run_serially(case_of(with_loss(false), Strategy()));
  for (const auto& [grid, output] : {std::pair("", "N"), std::pair("data=2 y=3", "N@data H@y"), std::pair("c=3", "C@c"),
                                     std::pair("data=7", "N@data"), std::pair("y=8", "H@y")})
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} {} in {} microbatches", grid, output, microbatches));
      Strategy strategy(grid);
      strategy.layer("*", {.output = output}).schedule("gpipe", microbatches);
      const RandomCase made = case_of(with_loss(true), strategy);
      const Plan plan = bind(made.model, strategy, workload_of(made));
      run_threads(strategy.ranks(), [&](Communicator& comm) {
        const RankResult result = run_rank(made, strategy, comm, true, Weights::drawn, Outputs::kept);
        EXPECT_FALSE(expect_near_serial(made, result, serial));
        expect_predicted(plan, comm.rank(), result);
      });
    }
}

/// Uses parts of CustomLayer in a wrong way.
class Misused final : public DiffusionRule<CustomLayer> {
 public:
  explicit Misused(int how) : DiffusionRule({}, false), how_(how) {}
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (how_ == 0) static_cast<void>(dy_with_halo(call));
    if (how_ == 1) state<int>(call) = 1, state<double>(call) = 1;
    if (how_ == 2) static_cast<void>(saved(call, 0));
    if (how_ == 3) call.saved = std::make_unique<Saved>(), save(call, {x[0]});
    if (how_ == 4) with_halo(call, std::vector<Window>(1), x[0], y, [](const Tensor&, const Box&) {});
    copy_box(x[0], y, y.box(), {});
  }
  void backward_data(const KernelCall&, const Tensor&, std::span<const Tensor>) const override {}
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    OperatorLayouts at = DiffusionRule::layouts(request);
    Shape longer = at.y.shape();
    if (how_ == 5) longer = {{'N', longer['N']}, {'C', longer['C']}, {'H', longer['H'] + 1}, {'W', 1}};
    at.x_halo = halo_of_inputs(at.y.onto(longer), at.y, windows(longer));
    return at;
  }

 private:
  int how_;
};

std::string error_of_misuse(int how) {
  const Model model = with_layer(std::make_shared<Misused>(how), 4);
  return error_of([&] {
    run_threads(1, [&](Communicator& comm) {
      DrawnData data(inputs_of(model), model.layers().back().op->target(model.shapes(1)[2]), 1, 0);
      TrainerOptions options;
      options.check_replicas = 1;
      options.batch = 1;
      Trainer trainer(model, Strategy(), options, comm);
      trainer.step(data, std::vector<Index>{0});
    });
  });
}

TEST(OwnLayer, SaysWhatIsWrong) {
  EXPECT_EQ(error_of_misuse(0), "layer 'own': its layouts() named no dy_halo, so there is no halo to exchange");
  EXPECT_EQ(error_of_misuse(1), "layer 'own': it asks for its state with two types");
  EXPECT_EQ(error_of_misuse(2), "layer 'own': its forward saved no tensor 0");
  EXPECT_EQ(error_of_misuse(3),
            "layer 'own': it sets call.saved itself, so save(), state() and halos have no place; keep its data with "
            "state()");
}

// What such a layer computes is checked before it runs, since messages that do not fit would end the process.
TEST(OwnLayer, AHaloOfAnotherTensorIsRefused) {
  EXPECT_EQ(error_of_misuse(4),
            "layer 'own': it gives 1 window for a tensor with the dimensions NCHW; give one for each dimension after N "
            "and C");
  EXPECT_EQ(
      error_of_misuse(5),
      "layer 'own' (diffusion): its layouts() gives x a halo of a tensor of which rank 0 owns "
      "[0,1)x[0,4)x[0,5)x[0,1), but of x it owns [0,1)x[0,4)x[0,4)x[0,1); make the halo with the layouts of x and "
      "y");
  const Layout x = Layout::parse("H@y", {{'N', 1}, {'C', 1}, {'H', 4}}, Grid::parse("y=2"));
  const Layout other = Layout::parse("H@a", x.shape(), Grid::parse("a=2"));
  EXPECT_EQ(
      error_of([&] { halo_of_inputs(x, other, std::vector<Window>(1)); }),
      "a halo is between \"N C H@y\" on the grid \"y=2\" and \"N C H@a\" on the grid \"a=2\"; give both the same grid "
      "and the same axes for N");
}

/// An operator that is no CustomLayer, but takes the name of a built-in kind.
class Namesake final : public DiffusionRule<Operator> {
 public:
  Namesake() : DiffusionRule({}, false) {}
  std::string_view kind() const override { return "conv"; }
};

TEST(OwnLayer, IsNotMistakenForABuiltInOneOfItsName) {
  const Model model = with_layer(std::make_shared<Namesake>(), 4);
  const Plan plan = bind(model, Strategy(), {.batch = 1, .optimizer = {}});
  EXPECT_EQ(error_of([&] { make_kernel(plan.layer("own"), 0); }),
            "layer 'own': there is no kernel for its kind 'conv'; derive its class from CustomLayer");
}

}  // namespace
}  // namespace partita::test::own_layer_test
