#include "partita/train/trainer/trainer.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/train/kernels/custom_layer.hpp"
#include "src/system/clock.hpp"
#include "src/train/executor/step_guard.hpp"
#include "src/train/trainer/agreement.hpp"
#include "src/train/trainer/data_feed.hpp"
#include "src/train/trainer/plan_set.hpp"
#include "src/train/trainer/replica_check.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

namespace partita {

namespace {

/// The options on which the course of a training depends.
std::string print(const TrainerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", o.epochs, o.steps, o.decay_steps, o.seed, o.augmentation.shift,
                     o.augmentation.flip, o.optimizer.print(), static_cast<int>(o.on_nan), o.backend, o.graphs);
}

/// Returns the strategy with the layouts that its weights have in a training. An evaluation alone then adds in the same
/// order as one during the training, and so gives the same bits. A strategy that cannot train stays as it is.
Strategy with_weights_of_training(const Model& model, Strategy strategy, const TrainerOptions& options) {
  try {
    return pin_weight_layouts(strategy, bind(model, strategy, {options.batch, options.dtype, true, options.optimizer}));
  } catch (const Error&) {
    return strategy;
  }
}

Index batches(Index samples, Index batch) { return (samples + batch - 1) / batch; }

/// Throws Error if a layer of the user's own cannot compute on a device.
void check_layers(const Model& model, const Device& device) {
  for (const auto& layer : model.layers())
    if (const auto* own = dynamic_cast<const CustomLayer*>(layer.op.get()); own != nullptr && !own->runs_on_devices())
      fail(
          "layer '{}' of kind '{}' computes on the CPU only, and cannot run on device '{}'; use kernels of the device "
          "and override CustomLayer::runs_on_devices(), or run on the CPU",
          layer.name, own->kind(), device.name());
}

bool fits(const SampleBlock& block, const Box& box, DType dtype) {
  return block.tensor.box() == box && block.tensor.dtype() == dtype;
}

/// @pre `batch` outlives the result.
Executor::Reader reader_of(const LocalBatch& batch) {
  return [&batch](int microbatch) {
    const auto j = static_cast<std::size_t>(microbatch);
    const std::size_t inputs = batch.images.size() / batch.targets.size();
    Batch part{{}, batch.targets[j].tensor};
    for (std::size_t i = 0; i < inputs; ++i) part.images.push_back(batch.images[j * inputs + i].tensor);
    return part;
  };
}

/// Lets no batch that has come ahead outlive a pass, which may also end by an exception.
class Forgetting {
 public:
  explicit Forgetting(Arrival& arrival) : arrival_(arrival) {}
  ~Forgetting() {
    try {
      arrival_.forget();
    } catch (const std::exception&) {
      // The device has failed, and its next call says so.
    }
  }
  Forgetting(const Forgetting&) = delete;
  Forgetting& operator=(const Forgetting&) = delete;

 private:
  Arrival& arrival_;
};

}  // namespace

void check_ranks(const Strategy& strategy, int ranks) {
  const int size = strategy.ranks();
  if (size == ranks) return;
  if (!strategy.groups().empty() || strategy.stage_count() > 1)
    fail("the strategy's {} {} {} together, but {} {} started; {}",
         counted(static_cast<Index>(strategy.grids().size()), "stage"), strategy.grids().size() == 1 ? "has" : "have",
         counted(size, "rank"), ranks, ranks == 1 ? "was" : "were", how_to_start(size));
  fail("the grid \"{}\" has {}, but {} {} started; {}, or give a grid of {}", strategy.grid().print(),
       counted(size, "rank"), ranks, ranks == 1 ? "was" : "were", how_to_start(size), ranks);
}

Trainer::Trainer(Model model, Strategy strategy, TrainerOptions options, Communicator& world)
    : Trainer(std::move(model), std::move(strategy), options, world,
              cpu_processor(world, make_backend(options.backend, options.dtype, options.threads))) {}

Trainer::Trainer(Model model, Strategy strategy, TrainerOptions options, Communicator& world, Processor processor)
    : model_(std::move(model)),
      strategy_(std::move(strategy)),
      options_(std::move(options)),
      world_(world),
      allocator_(std::make_shared<Allocator>(processor.device, options_.memory_limit,
                                             processor.device.make_stream(Priority::normal))),
      host_allocator_(on_cpu() ? allocator_ : std::make_shared<Allocator>(processor.device.staging())),
      backend_(std::move(processor.backend)),
      memory_(std::make_unique<MemoryAccount>(
          options_, world_.rank(), allocator_, host_allocator_, message_memory(*processor.between, options_.overlap),
          [this](Index batch, bool training) -> const Plan& { return plans_->of(batch, training).plan; })) {
  check_ranks(strategy_, world_.size());
  if (!on_cpu()) check_layers(model_, device());
  if (!options_.training) strategy_ = with_weights_of_training(model_, std::move(strategy_), options_);
  Plan plan = bind(model_, strategy_, {options_.batch, options_.dtype, options_.training, options_.optimizer});
  memory_->check_step(plan, backend_->workspace());
  check_agreement(world_, "plans or options", plan.hash() ^ hash_text(print(options_)));
  strategy_ = pin_weight_layouts(std::move(strategy_), plan);
  ranks_ = std::make_unique<StageRanks>(plan, world_, processor);
  memory_->hold_state(plan, backend_->workspace());
  memory_->hold_shared(ranks_->shared_bytes());
  parameters_ = std::make_unique<Parameters>(plan, world_.rank(), options_.seed, allocator_);
  guard_ = std::make_unique<StepGuard>(options_, world_);
  plans_ = std::make_unique<PlanSet>(PlanSet::Shared{model_, strategy_, options_, world_, *ranks_, *backend_,
                                                     *parameters_, *guard_, *memory_, allocator_},
                                     std::move(plan));
  arrival_ = std::make_unique<Arrival>(allocator_);
  feed_ = std::make_unique<DataFeed>(options_, world_, *memory_, *plans_, host_allocator_);
  ranks_->counter->reset();
}

Trainer::~Trainer() = default;

const Plan& Trainer::plan() const { return plans_->of(options_.batch, options_.training).plan; }
const ProcessGrid& Trainer::grid() const { return *ranks_->grid; }
TrafficCounter& Trainer::counter() const { return *ranks_->counter; }
const std::string& Trainer::kernel_problem() const { return plans_->kernel_report().problem; }
void Trainer::record(std::vector<TimedAction>* actions) { plans_->of(options_.batch, true).executor->record(actions); }
const MemoryPeak& Trainer::predicted_memory() const { return memory_->peak(); }
std::vector<NamedTensor> Trainer::weights() const { return parameters_->named(plan(), *ranks_->gradient_grid, false); }

EpochReport Trainer::pass(Dataset& data, const SampleOrder& order, bool training, const Progress& progress) {
  const Index samples = order.size();
  const Index steps = batches(samples, options_.batch);
  const Index first = training ? step_ % steps : 0;  // a resumed epoch goes on where it was left
  const Augmentation augmentation = training ? options_.augmentation : Augmentation{};
  if (prepared_ != &data) feed_->announce(data, order.from(first * options_.batch), training, augmentation);
  prepared_ = nullptr;  // what was announced will have been asked for
  const double start = now();
  EpochReport report{.epoch = epoch_, .first = first, .all = steps};
  stopping_ = false;
  double weights = 0, counted = 0;  // of the samples of steps that were not skipped
  const auto size_of_step = [&](Index step) { return std::min(options_.batch, samples - step * options_.batch); };
  std::deque<std::unique_ptr<DataFeed::Step>> ahead;  // the next steps, whose samples were read ahead
  const Forgetting forgetting(*arrival_);
  const Index last_step = training ? std::min(steps - 1, first + total_steps_ - step_ - 1) : steps - 1;
  for (Index i = first; i < steps; ++i) {
    const Index size = size_of_step(i);
    auto& bound = plans_->of(size, training);
    if (training) last_rate_ = options_.optimizer.rate_at(step_, decay_end());
    const auto samples_of = [&](Index step) {
      const Index count = size_of_step(step);
      return std::make_unique<DataFeed::Step>(*feed_, *plans_->of(count, training).executor, data,
                                              order.part(step * options_.batch, count), augmentation, epoch_);
    };
    if (ahead.empty()) ahead.push_back(samples_of(i));
    const auto mine = std::move(ahead.front());
    ahead.pop_front();
    // One of these steps travels to the device while the present one computes, and one is read.
    const auto read_ahead = [&] {
      for (Index later = i + 1 + std::ssize(ahead); later <= std::min(i + 2, last_step); ++later) {
        ahead.push_back(samples_of(later));
        ahead.back()->read_ahead();
      }
    };
    Ahead later{*arrival_, {}, read_ahead};
    if (!ahead.empty() && &ahead.front()->executor() == bound.executor.get()) later.next = ahead.front()->take_first();
    const StepResult result = run(
        bound, [&](int microbatch) { return mine->read(microbatch); }, training ? last_rate_ : 0,
        on_cpu() ? nullptr : &later);
    if (!training) check_loss(result);
    if (!result.skipped || std::isfinite(result.loss)) {
      const double weight = result.weight * static_cast<double>(size),
                   rows = result.counted * static_cast<double>(size);
      report.loss += result.loss * weight;
      if (rows > 0) report.accuracy += result.accuracy * rows;
      weights += weight;
      counted += rows;
    }
    report.samples += size;
    report.skipped += result.skipped ? 1 : 0;
    ++report.steps;
    if (training) end_step();
    if (progress) progress(epoch_, i + 1, steps, result);
    if (training && (stopping_ || step_ >= total_steps_)) break;
  }
  const auto mean = [](double sum, double of) { return of > 0 ? sum / of : std::numeric_limits<double>::quiet_NaN(); };
  report.loss = mean(report.loss, weights);
  report.accuracy = mean(report.accuracy, counted);
  report.seconds = now() - start;
  return report;
}

Index Trainer::all_steps(const Dataset& data) const {
  const Index all = options_.epochs * batches(data.size(), options_.batch);
  return options_.steps > 0 ? std::min(options_.steps, all) : all;
}

bool Trainer::finished(const Dataset& data) const { return step_ >= all_steps(data); }

EpochReport Trainer::train_epoch(Dataset& data, const Progress& progress) {
  if (samples_ != 0 && samples_ != data.size())
    throw AgreedError(fmt::format(
        "training began on {} samples and cannot go on with {}: an epoch would be another one; give the same data, "
        "--samples and --validate as then, or --new-run to start a new training from the weights of the checkpoint",
        samples_, data.size()));
  if (data.size() < 1) throw AgreedError("the data set for training has no samples; give one with at least one");
  const Index end = all_steps(data);
  if (options_.optimizer.decay != Decay::none && options_.decay_steps == 0 && loaded_decay_ > 0 && end > loaded_decay_)
    throw AgreedError(fmt::format(
        "the learning rate falls to 0 at step {}, where its decay ends in the checkpoint, but {} steps are asked for; "
        "give --decay-steps {} to stretch the decay over all steps, or --decay none",
        loaded_decay_, end, end));
  samples_ = data.size();
  total_steps_ = end;
  epoch_ = step_ / batches(data.size(), options_.batch) + 1;
  const Adding order = memory_->hold_order(data.size());
  return pass(data, SampleOrder::shuffled(data.size(), options_.seed, epoch_, host_allocator_), true, progress);
}

void Trainer::prepare(Dataset& data) {
  feed_->announce(data, SampleOrder::ascending(data.size()), false, {});
  prepared_ = &data;
}

EpochReport Trainer::evaluate(Dataset& data, const Progress& progress) {
  if (data.size() < 1) throw AgreedError("the data set for evaluation has no samples; give one with at least one");
  const LayerPlan& loss = plan().layers.back();
  const Target target = loss.op->target(loss->input_shapes[0]);
  plans_->start_counts(target.labels ? loss->input_shapes[0]['C'] : 0, target.ignored);
  EpochReport report = pass(data, SampleOrder::ascending(data.size()), false, progress);
  report.counts = plans_->take_counts();
  report.counts.sum(world_);
  return report;
}

StepResult Trainer::step(Dataset& data, std::span<const Index> samples) {
  for (const Index sample : samples)
    if (sample < 0 || sample >= data.size())
      throw AgreedError(fmt::format("a step cannot read sample {} of a data set of {}; give samples 0 to {}", sample,
                                    counted(data.size(), "sample"), data.size() - 1));
  total_steps_ = all_steps(data);
  const SampleOrder order = SampleOrder::given(samples);
  feed_->announce(data, order, true, {});
  auto& bound = plans_->of(order.size(), true);
  const Augmentation no_augmentation;
  DataFeed::Step mine(*feed_, *bound.executor, data, order, no_augmentation, epoch_);
  const StepResult result = run(
      bound, [&](int microbatch) { return mine.read(microbatch); }, options_.optimizer.rate_at(step_, decay_end()));
  end_step();
  return result;
}

LocalBatch Trainer::make_batch(Index samples, bool training) {
  check_agreement(world_, "sizes of the batch", static_cast<std::uint64_t>(samples));
  if (samples < 1) throw AgreedError(fmt::format("a batch of {} samples; it must have 1 or more", samples));
  const Executor& executor = *plans_->of(samples, training).executor;
  LocalBatch batch{.samples = samples, .images = {}, .targets = {}};
  for (int j = 0; j < executor.plan().microbatches; ++j) {
    const Index first = executor.plan().samples(j).lo;
    const Batch part = feed_->empty_batch(executor, j, Fill::zeros);
    for (std::size_t i = 0; i < part.images.size(); ++i) {
      const LayerPlan& input = executor.plan().layers_of(j)[executor.inputs()[i]];
      batch.images.push_back({first, input->shape, part.images[i], input.name});
    }
    batch.targets.push_back({first, executor.target(j).shape, part.target});
  }
  return batch;
}

/// Throws Error unless make_batch() could have made the batch.
void Trainer::check(const LocalBatch& batch, bool training) const {
  if (batch.samples < 1) fail("the batch has no samples; Trainer::make_batch makes one");
  const Executor& executor = *plans_->of(batch.samples, training).executor;
  const auto count = static_cast<std::size_t>(executor.plan().microbatches);
  const std::size_t inputs = executor.inputs().size();
  bool good = batch.images.size() == inputs * count && batch.targets.size() == count;
  for (std::size_t j = 0; good && j < count; ++j) {
    const auto m = static_cast<int>(j);
    for (std::size_t i = 0; good && i < inputs; ++i) {
      const LayerPlan& input = executor.plan().layers[executor.inputs()[i]];
      good = fits(batch.images[j * inputs + i], executor.images(m, static_cast<int>(i)),
                  input.op->output_type(options_.dtype));
    }
    good =
        good && fits(batch.targets[j], executor.target_box(m), executor.target(m).labels ? DType::i32 : options_.dtype);
  }
  if (!good)
    fail("the batch of {} samples is not cut as this rank's {} plan cuts it; make it with make_batch({}, {})",
         batch.samples, training ? "training" : "evaluation", batch.samples, training);
  const LayerPlan& loss = executor.plan().layers.back();
  for (const auto& block : batch.targets)
    block.check_labels(loss.name, loss->input_shapes[0].has('C') ? loss->input_shapes[0]['C'] : 0,
                       executor.plan().target().ignored);
}

StepResult Trainer::step(const LocalBatch& batch) {
  if (!options_.training) throw AgreedError("this trainer evaluates only; set TrainerOptions::training");
  if (total_steps_ == 0) total_steps_ = options_.steps;
  if (decay_end() < 1 && options_.optimizer.decay != Decay::none)
    throw AgreedError("the learning rate decays over all steps; set TrainerOptions::steps to their number");
  check(batch, true);
  auto& bound = plans_->of(batch.samples, true);
  const StepResult result = run(bound, reader_of(batch), options_.optimizer.rate_at(step_, decay_end()));
  end_step();
  return result;
}

std::vector<SampleBlock> Trainer::predict(const LocalBatch& batch) {
  check(batch, false);
  auto& bound = plans_->of(batch.samples, false);
  const std::vector<Tensor> values = bound.executor->predict(reader_of(batch), step_);
  predicted_ += bound.predicted;
  memory_->add_step(bound.plan, bound.memory, false);
  std::vector<SampleBlock> blocks;
  for (int j = 0; j < bound.plan.microbatches; ++j)
    if (const Tensor& mine = values[j]; mine.box().dims() > 0)
      blocks.push_back(
          {bound.plan.samples(j).lo, bound.plan.layers_of(j).back()->input_shapes[0], on_host(mine, stream())});
  return blocks;
}

StepResult Trainer::run(BoundPlan& bound, const Executor::Reader& reader, double rate, Ahead* ahead) {
  StepResult result = bound.executor->run(reader, step_, rate, ahead);
  if (std::isnan(result.loss)) result.loss = std::numeric_limits<double>::quiet_NaN();  // a sign would be printed
  predicted_ += bound.predicted;
  if (result.skipped) predicted_ -= bound.of_update;
  memory_->add_step(bound.plan, bound.memory, ahead != nullptr);
  if (!bound.executor->failed()) return result;
  const std::string what =
      std::isfinite(result.loss) ? "a gradient is not finite" : fmt::format("the loss is not finite ({})", result.loss);
  const std::string where = bound.executor->inspect(reader, step_);
  const bool in_data = where.find("in the samples") == 0 || where.find("in the targets") == 0;
  throw RunFailed(
      fmt::format("step {}: {}{}; {}{}", step_ + 1, what,
                  guard_->gave_up() ? fmt::format(", as in the {} steps before", StepGuard::most_in_a_row - 1) : "",
                  where.empty() ? "when the step was repeated, all numbers were finite: suspect the hardware"
                                : fmt::format("the first such number appeared {}", where),
                  in_data ? "; mend the data set, or leave such steps out with --on-nan skip"
                  : options_.dtype == DType::f16
                      ? "; f16 holds numbers up to 65504 only: try --dtype bf16, a lower --rate or a --warm-up"
                      : "; try a lower --rate or a --warm-up"));
}

/// Counts a training step, and checks the replicas if it is time.
void Trainer::end_step() {
  ++step_;
  ++trained_;
  if (options_.check_replicas > 0 && step_ % options_.check_replicas == 0) check_replicas();
}

void Trainer::check_replicas() { partita::check_replicas(plan(), *parameters_, world_, step_); }

Requests Trainer::take_requests() { return guard_->take_requests(); }
Index Trainer::skipped_not_finite() const { return guard_->state().not_finite; }
Index Trainer::skipped_beyond_f16() const { return guard_->state().beyond_f16; }
double Trainer::loss_scale() const { return guard_->scale(); }

/// The step at which the decay of the learning rate ends.
Index Trainer::decay_end() const {
  if (options_.decay_steps > 0) return options_.decay_steps;
  return loaded_decay_ > 0 ? loaded_decay_ : total_steps_;
}

/// Throws RunFailed if the loss of an evaluation is not finite.
void Trainer::check_loss(const StepResult& result) const {
  if (!std::isfinite(result.loss))
    throw RunFailed(
        fmt::format("the loss of an evaluation is not finite ({}) after {}; look for such numbers in the data "
                    "set and in the weights",
                    result.loss, counted(trained_, "training step")));
}

Traffic Trainer::measured() const {
  Traffic total;
  for (const auto& [key, traffic] : counter().by_label())
    if (key.first != "checkpoint") total += traffic;
  return total;
}

}  // namespace partita
