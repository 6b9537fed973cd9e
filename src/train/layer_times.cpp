#include "partita/train/layer_times.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/solo.hpp"
#include "partita/train/executor.hpp"
#include "partita/train/kernel_choice.hpp"

#include <algorithm>
#include <chrono>

namespace partita {

namespace {

using Kind = Action::Kind;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The same layers for one microbatch, each a group of its own on the stage that it was on. `layers` are of either size.
Plan layer_by_layer(const Plan& plan, const std::vector<LayerPlan>& layers, bool split) {
  Plan apart = plan;
  apart.layers = layers;
  apart.smaller.clear();
  apart.mirror.reset();
  apart.microbatches = 1;
  apart.workload.batch = layers.front().shape['N'];
  apart.places.clear();
  const auto first_reader = [&](std::size_t layer, int group) {
    for (std::size_t i = layer; i < layers.size(); ++i)
      if (layers[i].group == group && std::count(layers[i].inputs.begin(), layers[i].inputs.end(), layer) > 0)
        return static_cast<int>(i);
    broken("a boundary has a reader");
  };
  Schedule schedule{"layer by layer", std::vector<std::vector<Action>>(plan.grids.size())};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    apart.places.push_back(plan.place(layers[i].group));
    apart.layers[i].group = static_cast<int>(i);
    apart.layers[i].recompute = false;
    for (auto& boundary : apart.layers[i].departs) boundary.group = first_reader(i, boundary.group);
  }
  for (int i = 0; i < static_cast<int>(layers.size()); ++i)
    schedule.stages[static_cast<std::size_t>(apart.places[static_cast<std::size_t>(i)])].push_back({Kind::forward, i});
  for (int i = static_cast<int>(layers.size()); plan.workload.training && i-- > 0;) {
    auto& list = schedule.stages[static_cast<std::size_t>(apart.places[static_cast<std::size_t>(i)])];
    list.push_back({split ? Kind::backward_data : Kind::backward, i});
    if (split) list.push_back({Kind::backward_filter, i});
  }
  apart.schedule = with_communication(schedule, graph_of(apart), plan.workload.training);
  return apart;
}

/// One rank's part of a plan, run by itself.
class Alone {
 public:
  Alone(Plan plan, int rank, Backend& backend, bool asynchronous)
      : plan_(std::move(plan)),
        stage_(plan_.stage_of_rank(rank)),
        grid_(ProcessGrid::alone(plan_.grids[static_cast<std::size_t>(stage_)], plan_.rank_in_stage(rank),
                                 plan_.axis_sets(stage_), asynchronous)),
        world_(make_solo(rank, plan_.ranks(), asynchronous)),
        parameters_(plan_, rank, 1, allocator_),
        executor_(plan_, grid_, *world_, nullptr, backend, parameters_, counter_, allocator_, 1, true) {
    const Shape images = plan_.layers.front().shape;
    const Target target = executor_.target();
    batch_ = {Tensor(plan_.workload.dtype, images.names(), executor_.images(), allocator_, MemoryClass::activations),
              Tensor(target.labels ? DType::i32 : plan_.workload.dtype, target.shape.names(), executor_.target_box(),
                     allocator_, MemoryClass::activations)};
    if (batch_.images.volume() > 0) fill(batch_.images, images, [](Index i) { return Random(1, 1).normal(i); });
  }

  Executor& executor() { return executor_; }
  const Plan& plan() const { return plan_; }
  int stage() const { return stage_; }
  int rank() const { return grid_.rank(); }
  /// Learns nothing: garbage has come for what others would have sent.
  void run(std::vector<TimedAction>* actions) {
    executor_.record(actions);
    executor_.run([&](int) { return batch_; }, 0, 0);
  }

 private:
  Plan plan_;
  int stage_;
  std::shared_ptr<Allocator> allocator_ = std::make_shared<Allocator>();
  TrafficCounter counter_;
  ProcessGrid grid_;
  std::shared_ptr<Communicator> world_;
  Parameters parameters_;
  Executor executor_;
  Batch batch_;
};

/// Medians by layer of the actions of one kind.
std::vector<double> medians(const std::vector<TimedAction>& actions, Kind kind, std::size_t layers) {
  std::vector<std::vector<double>> all(layers);
  for (const auto& [action, start, end] : actions)
    if (action.kind == kind) all[static_cast<std::size_t>(action.group)].push_back(end - start);
  std::vector<double> medians;
  for (auto& each : all) medians.push_back(median(std::move(each)));
  return medians;
}

void barrier(Communicator& world) {
  double nothing = 0;
  world.all_reduce(&nothing, 1, DType::f64, Op::sum, {}).wait();
}

/// True if any rank says so.
bool any(Communicator& world, bool mine) {
  double found = mine ? 1 : 0;
  world.all_reduce(&found, 1, DType::f64, Op::max, {}).wait();
  return found > 0;
}

/// The updates of a stage's groups on one of its ranks.
std::map<int, std::string> updates(const Plan& plan, int stage, int rank) {
  std::map<int, std::string> all;
  for (int group = 0; plan.workload.training && group < static_cast<int>(plan.places.size()); ++group) {
    if (plan.place(group) != stage) continue;
    Index elements = 0;
    for (const auto& bucket : plan.buckets)
      if (plan.layers[static_cast<std::size_t>(bucket.last())].group == group)
        elements += plan.share(bucket, rank).extent();
    all[group] = update_work(elements, plan.workload);
  }
  return all;
}

/// Runs one rank's part in both ways, backward whole and in halves, in turns.
class Measurement {
 public:
  Measurement(const Plan& plan, const std::vector<LayerPlan>& layers, int rank, const MeasureOptions& options,
              Backend& backend, Communicator& world)
      : original_(plan),
        whole_(layer_by_layer(plan, layers, false), rank, backend, world.asynchronous()),
        halves_(layer_by_layer(plan, layers, true), rank, backend, world.asynchronous()),
        options_(options),
        world_(world) {
    KernelReport report;
    KernelChoices choices;
    if (plan.workload.dtype == DType::f32)
      choose_kernels(backend, whole_.executor().problems(),
                     KernelCache(options.kernel_folder, backend.name(), options.threads), world, {}, choices, report);
  }

  void run() {
    const double start = now();
    std::vector<TimedAction> unused;
    for (auto* way : {&whole_, &halves_}) {  // the first run allocates, and finds kernels
      barrier(world_);
      way->run(&unused);
    }
    for (int i = 0; i < options_.most; ++i) {
      if (i >= 3 && any(world_, now() - start > options_.budget)) break;
      barrier(world_);
      whole_.run(&of_whole_);
      barrier(world_);
      halves_.run(&of_halves_);
    }
  }

  void add_to(KernelTimes& times) const {
    const Plan& plan = whole_.plan();
    const std::size_t count = plan.layers.size();
    const auto forward = medians(of_whole_, Kind::forward, count), backward = medians(of_whole_, Kind::backward, count),
               data = medians(of_halves_, Kind::backward_data, count),
               filter = medians(of_halves_, Kind::backward_filter, count), step = medians(of_whole_, Kind::step, count);
    for (std::size_t i = 0; i < count; ++i)
      if (plan.places[i] == whole_.stage())
        times.set(local_work(plan.layers[i], whole_.rank(), original_.workload),
                  {forward[i], backward[i], data[i], filter[i]});
    for (const auto& [group, work] : updates(original_, whole_.stage(), whole_.rank())) {
      double seconds = 0;
      for (std::size_t i = 0; i < count; ++i) seconds += original_.layers[i].group == group ? step[i] : 0;
      times.set(work, {seconds, 0, 0, 0});
    }
  }

 private:
  const Plan& original_;
  Alone whole_, halves_;
  const MeasureOptions& options_;
  Communicator& world_;
  std::vector<TimedAction> of_whole_, of_halves_;
};

bool lacks(const KernelTimes& known, const Plan& plan, const std::vector<LayerPlan>& layers, int rank) {
  const int stage = plan.stage_of_rank(rank), inside = plan.rank_in_stage(rank);
  for (const auto& [group, work] : updates(plan, stage, inside))
    if (!known.find(work)) return true;
  return std::any_of(layers.begin(), layers.end(), [&](const LayerPlan& layer) {
    return plan.place(layer.group) == stage && !known.find(local_work(layer, inside, plan.workload));
  });
}

}  // namespace

KernelTimes united(const KernelTimes& mine, Communicator& world) {
  const std::string text = mine.print();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<double> sizes(ranks);
  const auto size = static_cast<double>(text.size());
  const std::vector<Index> one(ranks, 1);
  world.all_gather(&size, sizes.data(), one, DType::f64, {}).wait();
  std::vector<Index> counts;
  Index total = 0;
  for (const double each : sizes) total += counts.emplace_back(static_cast<Index>(each));
  std::vector<std::int32_t> letters(text.begin(), text.end()), all(static_cast<std::size_t>(total));
  world.all_gather(letters.data(), all.data(), counts, DType::i32, {}).wait();
  KernelTimes together(mine.where());
  std::map<std::string, std::pair<LayerTimes, int>> sums;
  auto at = all.begin();
  for (const Index count : counts) {
    const auto found = KernelTimes::parse(std::string(at, at + count), "a rank's times");
    at += count;
    for (const auto& [work, t] : found.all()) {
      auto& [sum, times] = sums[work];
      sum = {sum.forward + t.forward, sum.backward + t.backward, sum.backward_data + t.backward_data,
             sum.backward_filter + t.backward_filter};
      ++times;
    }
  }
  for (const auto& [work, entry] : sums) {
    const auto& [sum, count] = entry;
    together.set(work,
                 {sum.forward / count, sum.backward / count, sum.backward_data / count, sum.backward_filter / count});
  }
  return together;
}

std::string place_of_times(const MeasureOptions& options, DType dtype) {
  return fmt::format("{} with {} {} on {}", make_backend(options.backend, dtype, options.threads)->name(),
                     options.threads, options.threads == 1 ? "thread" : "threads", KernelCache::processor());
}

KernelTimes measure_layers(const Plan& plan, int rank, const MeasureOptions& options, const KernelTimes& known,
                           Communicator& world) {
  const std::string where = place_of_times(options, plan.workload.dtype);
  KernelTimes all = known.empty() ? KernelTimes(where) : known;
  const auto backend = make_backend(options.backend, plan.workload.dtype, options.threads);
  for (const auto* layers : {&plan.layers, &plan.smaller}) {
    if (layers->empty() || !any(world, lacks(all, plan, *layers, rank))) continue;
    Measurement measurement(plan, *layers, rank, options, *backend, world);
    measurement.run();
    KernelTimes mine(where);
    measurement.add_to(mine);
    all.merge(united(mine, world));
  }
  return all;
}

}  // namespace partita
