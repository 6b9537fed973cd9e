#include "src/train/measure/layer_times.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/solo.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "src/system/clock.hpp"
#include "src/train/executor/executor.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/measure/draw_images.hpp"
#include "src/train/measure/summaries.hpp"
#include "strategies/cost/local_work.hpp"
#include "strategies/cost/representatives.hpp"

#include <algorithm>
#include <set>

namespace partita {

namespace {

using Kind = Action::Kind;

/// Returns the actions of a group's layers for an action of the group. Backward is one action or two halves (`split`).
/// Empty for actions that are not timed.
std::vector<Kind> kinds_of(Kind kind, bool split) {
  if (kind == Kind::forward) return {Kind::forward};
  if (kind == Kind::backward && split) return {Kind::backward_data, Kind::backward_filter};
  if (kind == Kind::backward || kind == Kind::backward_data) return {split ? Kind::backward_data : Kind::backward};
  if (kind == Kind::backward_filter && split) return {Kind::backward_filter};
  return {};
}

/// The plan's schedule of the timed microbatches, layer by layer. In this order a layer finds in the caches what it
/// finds there in a real step.
Schedule in_layers(const Plan& plan, const std::vector<LayerPlan>& layers, bool split) {
  const auto timed = timed_microbatches(plan);
  std::map<int, std::vector<int>> members;
  for (std::size_t i = 0; i < layers.size(); ++i) members[layers[i].group].push_back(static_cast<int>(i));
  Schedule schedule{"layer by layer", std::vector<std::vector<Action>>(plan.grids.size())};
  for (std::size_t stage = 0; stage < plan.grids.size(); ++stage)
    for (const Action& action : plan.schedule.stages[stage]) {
      const auto microbatch = std::find(timed.begin(), timed.end(), action.microbatch);
      if (action.replica != 0 || microbatch == timed.end()) continue;
      std::vector<int> order = members[action.group];
      if (action.kind != Kind::forward) std::reverse(order.begin(), order.end());
      for (const int layer : order)
        for (const Kind kind : kinds_of(action.kind, split))
          schedule.stages[stage].push_back({kind, layer, static_cast<int>(microbatch - timed.begin())});
    }
  return schedule;
}

/// The same plan with each layer as a group of its own, on the stage where it was, and computed apart from those beside
/// it. `layers` are the plan's layers or its remainder layers.
Plan layer_by_layer(const Plan& plan, const std::vector<LayerPlan>& layers, bool split) {
  const Schedule schedule = in_layers(plan, layers, split);
  Plan apart = plan;
  apart.layers = layers;
  apart.remainder_layers.clear();
  apart.second_replica.reset();
  apart.microbatches = schedule.microbatches();
  apart.workload.batch = layers.front()->shape['N'] * apart.microbatches;
  apart.stage_of_group.clear();
  for (Bucket& bucket : apart.buckets) bucket.other_copy = -1;
  const auto first_reader = [&](std::size_t layer, int group) {
    for (std::size_t i = layer; i < layers.size(); ++i)
      if (layers[i].group == group && std::count(layers[i].inputs.begin(), layers[i].inputs.end(), layer) > 0)
        return static_cast<int>(i);
    broken("a stage boundary has a reader");
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    apart.stage_of_group.push_back(plan.stage_running(layers[i].group));
    apart.layers[i].group = static_cast<int>(i);
    apart.layers[i].recompute = false;
    // In a plan of groups of one layer, a gradient from another stage comes after all readers of this one.
    if (apart.layers[i].adds_gradient) {
      const auto readers = plan.all_readers.of(layers[i].inputs.front());
      apart.layers[i].adds_gradient = std::any_of(readers.begin(), readers.end(), [&](int other) {
        return other > static_cast<int>(i) &&
               plan.stage_running(layers[other].group) == plan.stage_running(layers[i].group);
      });
    }
    if (apart.layers[i].fusible && !apart.layers[i].computed_by_producer) apart.layers[i].fusible = false;
    if (apart.layers[i].activation_fusion() == ActivationFusion::where_fused) apart.layers[i].next_activation.reset();
    for (auto& boundary : apart.layers[i].sends_to_stages) boundary.group = first_reader(i, boundary.group);
  }
  apart.schedule = with_communication(schedule, graph_of(apart), plan.workload.training);
  return apart;
}

std::vector<AxisSet> all_axis_sets(const Plan& plan, int stage) {
  auto sets = plan.axis_sets(stage);
  const auto gradients = plan.gradient_axis_sets(stage);
  sets.insert(sets.end(), gradients.begin(), gradients.end());
  return sets;
}

/// Runs one rank's part of a plan by itself.
class Alone {
 public:
  Alone(Plan plan, int rank, Backend& backend, bool asynchronous)
      : plan_(std::move(plan)),
        stage_(plan_.stage_of_rank(rank)),
        device_(backend.device()),
        allocator_(std::make_shared<Allocator>(device_, 0, device_.make_stream(Priority::normal))),
        grid_(ProcessGrid::alone(plan_.grids[stage_], plan_.rank_in_stage(rank), all_axis_sets(plan_, stage_),
                                 asynchronous, &stand_ins_, device_)),
        world_(make_solo(rank, plan_.ranks(), asynchronous, &stand_ins_, device_)),
        control_(make_solo(rank, plan_.ranks(), asynchronous)),
        parameters_(plan_, rank, 1, allocator_),
        executor_({plan_,
                   grid_,
                   grid_,
                   *world_,
                   *control_,
                   nullptr,
                   {},
                   backend,
                   parameters_,
                   counter_,
                   allocator_,
                   1,
                   true}) {
    const Target target = executor_.target();
    batch_.target = Tensor(target.labels ? DType::i32 : plan_.workload.dtype, target.shape.names(),
                           executor_.target_box(), allocator_, MemoryClass::activations);
    for (int i = 0; i < std::ssize(executor_.inputs()); ++i) {
      const int layer = executor_.inputs()[i];
      const Shape shape = plan_.layers[layer]->shape;
      const DType type = plan_.layers[layer].op->output_type(plan_.workload.dtype);
      const Tensor drawn(type, shape.names(), executor_.images(0, i));
      draw_images(drawn, shape, plan_, layer);
      batch_.images.emplace_back(type, shape.names(), drawn.box(), allocator_, MemoryClass::activations);
      if (drawn.volume() > 0) from_host(drawn, batch_.images.back(), allocator_->stream());
    }
  }

  Executor& executor() { return executor_; }
  Stream stream() const { return allocator_->stream(); }
  /// Runs the part once and returns its timed actions, without the time that stand-ins for other ranks took. Learns
  /// nothing.
  std::vector<TimedAction> run() {
    stand_ins_.clear();
    std::vector<TimedAction> timed;
    executor_.record(&timed);
    executor_.run([&](int) { return batch_; }, 0, 0);
    auto other = stand_ins_.begin();
    for (auto& action : timed) {
      const double end = action.end;
      for (; other != stand_ins_.end() && executor_.clock().time(other->start) < end; ++other)
        if (executor_.clock().time(other->start) >= action.start)
          action.end -= device_.seconds(other->start, other->end);
    }
    return timed;
  }

 private:
  Plan plan_;
  int stage_;
  std::vector<StandIn> stand_ins_;
  Device& device_;
  std::shared_ptr<Allocator> allocator_;
  TrafficCounter counter_;
  ProcessGrid grid_;
  std::shared_ptr<Communicator> world_, control_;
  Parameters parameters_;
  Executor executor_;
  Batch batch_;
};

/// Medians per layer of the durations of actions of one kind.
std::vector<double> medians(const std::vector<TimedAction>& actions, Kind kind, std::size_t layers) {
  std::vector<std::vector<double>> all(layers);
  for (const auto& [action, start, end] : actions)
    if (action.kind == kind) all[action.group].push_back(end - start);
  std::vector<double> medians;
  for (auto& each : all) medians.push_back(median(std::move(each)));
  return medians;
}

void barrier(Communicator& world) {
  double nothing = 0;
  world.all_reduce(&nothing, 1, DType::f64, ReduceOp::sum, {}).wait();
}

/// Returns true if `mine` is true on any rank. Collective.
bool any(Communicator& world, bool mine) {
  double found = mine ? 1 : 0;
  world.all_reduce(&found, 1, DType::f64, ReduceOp::max, {}).wait();
  return found > 0;
}

/// A rank's part of a plan: its layers, for microbatches of one size (the plan's layers or its remainder layers).
struct MeasuredPart {
  const Plan& plan;
  const std::vector<LayerPlan>& layers;
  int rank;  ///< rank in the plan's world

  int stage() const { return plan.stage_of_rank(rank); }
  int inside() const { return plan.rank_in_stage(rank); }
  bool has(const LayerPlan& layer) const { return plan.stage_running(layer.group) == stage(); }
  /// The groups whose weights this rank updates, and the number of elements it updates in each. Empty for remainder
  /// layers, so that each update counts once.
  std::map<int, Index> updates() const {
    std::map<int, Index> elements;
    for (int group = 0;
         plan.workload.training && &layers == &plan.layers && group < static_cast<int>(plan.stage_of_group.size());
         ++group)
      if (plan.stage_running(group) == stage()) elements[group] = 0;
    for (const auto& bucket : plan.buckets)
      if (const auto of = elements.find(plan.layers[bucket.last()].group); of != elements.end())
        of->second += plan.share(bucket, inside()).extent();
    return elements;
  }
  Loop loop() const { return timed_loop(plan, stage()); }
  /// The names of all work that this part computes.
  std::vector<std::string> work() const {
    std::vector<std::string> all;
    for (const auto& layer : layers)
      if (has(layer)) all.push_back(local_work(layer, inside(), plan.workload));
    for (const auto& [group, elements] : updates()) all.push_back(update_work(elements, plan.workload));
    return all;
  }
};

/// Runs a part with the backward pass whole and then split. One after the other, because each run holds weights,
/// gradients and optimizer state.
class Measurement {
 public:
  /// `asynchronous`: tensors travel while the ranks compute.
  Measurement(const MeasuredPart& part, const MeasureOptions& options, Backend& backend, bool asynchronous,
              Communicator& world)
      : part_(part), options_(options), backend_(backend), asynchronous_(asynchronous), world_(world) {}

  void run() {
    run(false, of_whole_);
    if (part_.plan.workload.training) run(true, of_halves_);
  }

  void add_to(KernelTimes& times) const {
    const std::size_t count = part_.layers.size();
    const auto forward = medians(of_whole_, Kind::forward, count), backward = medians(of_whole_, Kind::backward, count),
               data = medians(of_halves_, Kind::backward_data, count),
               filter = medians(of_halves_, Kind::backward_filter, count), step = medians(of_whole_, Kind::step, count);
    for (std::size_t i = 0; i < count; ++i)
      if (part_.has(part_.layers[i]))
        times.set(local_work(part_.layers[i], part_.inside(), part_.plan.workload), part_.loop(),
                  {forward[i], backward[i], data[i], filter[i]});
    for (const auto& [group, elements] : part_.updates()) {
      double seconds = 0;
      for (std::size_t i = 0; i < count; ++i) seconds += part_.layers[i].group == group ? step[i] : 0;
      times.set(update_work(elements, part_.plan.workload), part_.loop(), {seconds, 0, 0, 0});
    }
  }

 private:
  void run(bool split, std::vector<TimedAction>& actions) {
    Alone alone(layer_by_layer(part_.plan, part_.layers, split), part_.rank, backend_, asynchronous_);
    KernelReport report;
    KernelChoices choices;
    if (part_.plan.workload.dtype == backend_.chosen_dtype())
      choose_kernels(backend_, alone.stream(), alone.executor().problems(),
                     KernelCache(options_.kernel_folder, backend_, options_.threads), world_, {}, choices, report);
    barrier(world_);
    const double start = now();
    alone.run();  // the first run allocates memory and chooses kernels
    std::vector<std::vector<TimedAction>> runs;
    std::vector<Timing> timings;
    for (int i = 0; i < options_.most; ++i) {
      if (i >= 3 && any(world_, now() - start > options_.budget / 2)) break;
      barrier(world_);
      const Stopwatch watch;
      runs.push_back(alone.run());
      timings.push_back(watch.time());
    }
    for (const std::size_t i : undisturbed(timings)) actions.insert(actions.end(), runs[i].begin(), runs[i].end());
  }

  const MeasuredPart& part_;
  const MeasureOptions& options_;
  Backend& backend_;
  bool asynchronous_;
  Communicator& world_;
  std::vector<TimedAction> of_whole_, of_halves_;
};

bool lacks(const KernelTimes& known, const MeasuredPart& part) {
  const auto work = part.work();
  return std::any_of(work.begin(), work.end(), [&](const std::string& each) { return !known.has(each, part.loop()); });
}

/// Returns every rank's text on rank 0, and an empty vector on the others.
std::vector<std::string> gather_texts(const std::string& mine, Communicator& world) {
  const std::vector<double> sizes = gather_numbers(world, static_cast<double>(mine.size()));
  if (world.rank() > 0) {
    const Send send{0, std::as_bytes(std::span(mine))};
    world.exchange({&send, 1}, {}, {}).wait();
    return {};
  }
  std::vector<std::string> all{mine};
  for (std::size_t rank = 1; rank < sizes.size(); ++rank) all.emplace_back(static_cast<std::size_t>(sizes[rank]), ' ');
  std::vector<Recv> recvs;
  for (std::size_t rank = 1; rank < sizes.size(); ++rank)
    recvs.push_back({static_cast<int>(rank), std::as_writable_bytes(std::span(all[rank]))});
  world.exchange({}, recvs, {}).wait();
  return all;
}

}  // namespace

KernelTimes united(const KernelTimes& mine, Communicator& world) {
  KernelTimes together(mine.where());  // its keys are full names, which begin with the backend's name
  for (const auto& text : gather_texts(mine.print(), world)) {
    const auto found = KernelTimes::parse(text, "a rank's times");
    for (const auto& [of, each] : found.all()) {
      const auto known = together.all().find(of);
      const LayerTimes most = known == together.all().end() ? LayerTimes() : known->second;
      together.set(
          of.first, of.second,
          {std::max(most.forward, each.forward), std::max(most.backward, each.backward),
           std::max(most.backward_data, each.backward_data), std::max(most.backward_filter, each.backward_filter)});
    }
  }
  KernelTimes all = broadcast_times(together, world);
  all.use(mine.backend());
  return all;
}

std::string backend_of_times(const MeasureOptions& options, DType dtype) {
  if (options.device) return std::string(options.device->processor(dtype).backend->name());
  return std::string(make_backend(options.backend, dtype, options.threads)->name());
}

std::string place_of_times(const MeasureOptions& options) {
  if (options.device) return options.device->name();
  return fmt::format("{} {} on {}", options.threads, options.threads == 1 ? "thread" : "threads",
                     KernelCache::processor());
}

KernelTimes broadcast_times(const KernelTimes& times, Communicator& world) {
  const bool first = world.rank() == 0;
  KernelTimes all = KernelTimes::parse(agree(world, first ? times.print() : ""), "rank 0's times");
  all.use(times.backend());
  return all;
}

KernelTimes measure_layers(const Plan& plan, int rank, const MeasureOptions& options, const KernelTimes& known,
                           Communicator& world) {
  const DType dtype = plan.workload.dtype;
  const auto on_cpu = options.device ? nullptr : make_backend(options.backend, dtype, options.threads);
  Backend& backend = options.device ? *options.device->processor(dtype).backend : *on_cpu;
  const bool asynchronous = (options.device ? *options.device->processor(dtype).between : world).asynchronous();
  const std::string where = place_of_times(options), name(backend.name());
  KernelTimes all = known.empty() ? KernelTimes(where) : known;
  all.use(name);
  for (const auto* layers : {&plan.layers, &plan.remainder_layers}) {
    const MeasuredPart part{plan, *layers, rank};
    if (layers->empty() || !any(world, lacks(all, part))) continue;
    Measurement measurement(part, options, backend, asynchronous, world);
    measurement.run();
    KernelTimes mine(where, name);
    measurement.add_to(mine);
    all.merge(united(mine, world));
  }
  return all;
}

std::vector<int> ranks_to_measure(const Plan& plan, const KernelTimes& known) {
  std::set<std::pair<std::string, Loop>> seen;
  std::vector<int> ranks;
  for (const Grid& grid : plan.grids)
    for (const int inside : representatives(grid)) {
      bool lacking = false;
      for (const auto* layers : {&plan.layers, &plan.remainder_layers}) {
        const MeasuredPart part{plan, *layers, grid.first_rank() + inside};
        for (const auto& work : part.work())
          lacking = (!known.has(work, part.loop()) && seen.emplace(work, part.loop()).second) || lacking;
      }
      if (lacking) ranks.push_back(grid.first_rank() + inside);
    }
  return ranks;
}

KernelTimes measure_plan(const Plan& plan, const MeasureOptions& options, const KernelTimes& known,
                         Communicator& world) {
  KernelTimes times = known;
  times.use(backend_of_times(options, plan.workload.dtype));
  const auto ranks = ranks_to_measure(plan, times);
  const auto here = static_cast<std::size_t>(world.size()), mine = static_cast<std::size_t>(world.rank());
  // no rank idles: an idle rank would leave its share of the caches to the others
  for (std::size_t first = 0; first < ranks.size(); first += here)
    times = measure_layers(plan, ranks[(first + mine) % ranks.size()], options, times, world);
  return times;
}

}  // namespace partita
