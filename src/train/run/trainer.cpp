#include "partita/train/run/trainer.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/profile.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/train/kernels/custom_layer.hpp"
#include "src/train/run/agreement.hpp"
#include "src/train/run/announced.hpp"
#include "src/train/run/held_data.hpp"
#include "src/train/run/sample_order.hpp"
#include "src/train/run/sample_values.hpp"
#include "src/train/run/step_guard.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace partita {

namespace {

/// The options on which the course of a training depends.
std::string print(const TrainerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", o.epochs, o.steps, o.decay_steps, o.seed, o.augmentation.shift,
                     o.augmentation.flip, o.optimizer.print(), static_cast<int>(o.on_nan), o.backend, o.graphs);
}

/// Adds to a number until the end of a scope, also by an exception.
class Adding {
 public:
  Adding(Index& to, Index amount) : to_(to), amount_(amount) { to_ += amount_; }
  ~Adding() { to_ -= amount_; }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;

 private:
  Index &to_, amount_;
};

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
      counter_(std::make_shared<TrafficCounter>()),
      world_(world),
      allocator_(std::make_shared<Allocator>(processor.device, options_.memory_limit,
                                             processor.device.make_stream(Priority::normal))),
      host_allocator_(on_cpu() ? allocator_ : std::make_shared<Allocator>(processor.device.staging())),
      backend_(std::move(processor.backend)),
      memory_(
          options_.batch, options_.training, options_.may_skip(),
          [this](Index batch, bool training) -> const Plan& { return bound(batch, training).plan; },
          message_memory(*processor.between, options_.overlap)),
      held_data_(std::make_unique<HeldData>(host_allocator_)) {
  check_ranks(strategy_, world_.size());
  if (!on_cpu()) check_layers(model_, device());
  if (!options_.training) strategy_ = with_weights_of_training(model_, std::move(strategy_), options_);
  Plan plan = bind(model_, strategy_, {options_.batch, options_.dtype, options_.training, options_.optimizer});
  check_memory(plan, options_.memory_limit, [&](int rank) {
    MemoryUse held = state_memory(plan, rank);
    held[MemoryClass::workspace] += backend_->workspace();
    return memory_.step_peak(plan, held, rank);
  });
  check_agreement(world_, "plans or options", plan.hash() ^ hash_text(print(options_)));
  strategy_ = pin_weight_layouts(std::move(strategy_), plan);
  control_ = counting(world_, counter_);
  const bool one_stream = processor.gradients == processor.between;
  between_ = counting(std::move(processor.between), counter_);
  gradients_ = one_stream ? between_ : counting(std::move(processor.gradients), counter_);
  stage_ = plan.stage_of_rank(world_.rank());
  const auto grid_of = [&](const std::shared_ptr<Communicator>& ranks) {
    return std::make_shared<ProcessGrid>(plan.grids[static_cast<std::size_t>(stage_)],
                                         plan.grids.size() == 1 ? ranks : ranks->split(stage_, world_.rank()),
                                         std::vector<AxisSet>());
  };
  grid_ = grid_of(between_);
  gradient_grid_ = one_stream ? grid_ : grid_of(gradients_);
  add_communicators(plan);
  if (plan.second_replica) {  // stages s and p-1-s, rank by rank
    const auto last = static_cast<int>(plan.grids.size()) - 1, pair = std::min(stage_, last - stage_);
    const int first = plan.grids[static_cast<std::size_t>(pair)].first_rank();
    replica_pair_ = between_->split(first + plan.rank_in_stage(world_.rank()), world_.rank());
  }
  held_ = state_memory(plan, world_.rank());
  held_[MemoryClass::workspace] += backend_->workspace();
  workspace_ = Allocator::account(allocator_, backend_->workspace(), MemoryClass::workspace);
  count_shared_memory();
  parameters_ = std::make_unique<Parameters>(plan, world_.rank(), options_.seed, allocator_);
  guard_ = std::make_shared<StepGuard>(options_, world_);
  prepare(bound_[{options_.batch, options_.training}], std::move(plan));
  counter_->reset();
}

void Trainer::add_communicators(const Plan& plan) {
  grid_->add(plan.axis_sets(stage_));
  gradient_grid_->add(plan.gradient_axis_sets(stage_));
}

Trainer::Bound& Trainer::bound(Index batch, bool training) {
  auto& entry = bound_[{batch, training}];
  if (entry.executor) return entry;
  Plan plan = bind(model_, strategy_, {batch, options_.dtype, training, options_.optimizer});
  add_communicators(plan);
  count_shared_memory();
  prepare(entry, std::move(plan));
  return entry;
}

void Trainer::prepare(Bound& entry, Plan plan) {
  entry.plan = std::move(plan);
  entry.predicted = rank_traffic(entry.plan, world_.rank()).counted;
  for (std::size_t i = 0; i < entry.plan.layers.size(); ++i)
    for (const auto& item : step_traffic(entry.plan, static_cast<int>(i), world_.rank()))
      if (item.purpose == Purpose::update) entry.of_update += item.traffic;
  entry.executor = std::make_unique<Executor>(RunContext{
      entry.plan, *grid_, *gradient_grid_, *between_, *control_, replica_pair_.get(), *backend_, *parameters_,
      *counter_, allocator_, options_.seed, options_.overlap, guard_.get(), options_.graphs && captures()});
  if (options_.dtype == backend_->chosen_dtype())
    choose_kernels(*backend_, entry.executor->problems(),
                   KernelCache(options_.kernel_folder, *backend_, options_.threads), world_, options_.measuring,
                   entry.plan.kernels, kernel_report_);
  if (!entry.plan.workload.training) count_classes(entry);
}

/// True if the device can capture steps, with all messages in them.
bool Trainer::captures() const {
  return device().capture() != nullptr && between_->captures() && gradients_->captures();
}

/// Lets an evaluation count predictions by class. Of several ranks that hold the same positions, one counts.
void Trainer::count_classes(Bound& entry) {
  const Executor& executor = *entry.executor;
  if (!executor.target().labels) return;
  entry.executor->observe([this, &executor](int microbatch, const Tensor& scores, const Tensor& target) {
    if (counts_.classes() == 0) return;  // predict() runs the plan too, without targets
    const Layout& x = executor.plan().layers_of(microbatch).back()->at.x[0];
    if (representative_rank(x.grid(), grid_->rank(), x.replicated()) != grid_->rank()) return;
    counts_.add(on_host(scores, stream()), on_host(target, stream()));
  });
}

Trainer::~Trainer() = default;

Executor& Trainer::executor(Index batch, bool training) { return *bound(batch, training).executor; }

/// Zeros in the memory of the CPU for what this rank brings to a microbatch.
Batch Trainer::empty_batch(const Executor& executor, int microbatch) const {
  const auto made = [&](const Shape& shape, const Box& box, DType dtype) {
    return Tensor(dtype, shape.names(), box, host_allocator_, MemoryClass::activations);
  };
  const Target target = executor.target(microbatch);
  return {made(executor.plan().layers.front()->shape, executor.images(microbatch), options_.dtype),
          made(target.shape, executor.target_box(microbatch), target.labels ? DType::i32 : options_.dtype)};
}

Batch Trainer::read(const Executor& executor, int microbatch, Dataset& data, const SampleOrder& all, bool augment) {
  const Timed timed(Profile::Part::compute);
  const Batch batch = empty_batch(executor, microbatch);
  const Augmentation none;
  const Box image = inside_of(batch.images.box()), answer = inside_of(batch.target.box());
  const Interval range = executor.plan().samples(microbatch);
  const auto samples = all.part(range.lo, range.extent());
  const auto name_of = [&](Index n) { return fmt::format("sample {}", data.number(samples[n])); };
  const auto read_image = [&](Index n, auto values) {
    read_augmented(data, samples[n], image, augment ? options_.augmentation : none, options_.seed, epoch_, values);
  };
  const auto which = [&](Index n) { return fmt::format("data set '{}': {}", data.name(), name_of(n)); };
  if (options_.dtype == DType::f32)
    write_samples<float>(batch.images, read_image, which);
  else
    write_samples<double>(batch.images, read_image, which);
  if (batch.target.dtype() == DType::i32)
    write_samples<std::int32_t>(
        batch.target, [&](Index n, auto labels) { read_checked_labels(data, samples[n], answer, labels); }, name_of);
  else
    write_samples<double>(
        batch.target, [&](Index n, auto values) { data.read_target(samples[n], answer, values); },
        [&](Index n) { return fmt::format("data set '{}': the target of {}", data.name(), name_of(n)); });
  return batch;
}

StepResult Trainer::run(Bound& bound, Dataset& data, const SampleOrder& samples, bool augment, double rate) {
  return run(
      bound, [&](int microbatch) { return read(*bound.executor, microbatch, data, samples, augment); }, rate);
}

EpochReport Trainer::pass(Dataset& data, const SampleOrder& order, bool training, const Progress& progress) {
  const Index samples = order.size();
  const Index steps = batches(samples, options_.batch);
  const Index first = training ? step_ % steps : 0;  // a resumed epoch goes on where it was left
  if (prepared_ != &data)
    hold(data, order.from(first * options_.batch), training, training ? options_.augmentation : Augmentation{});
  prepared_ = nullptr;  // what was announced will have been asked for
  const double start = now();
  EpochReport report{.epoch = epoch_, .first = first, .all = steps};
  stopping_ = false;
  double counted = 0;  // samples of steps that were not skipped
  for (Index i = first; i < steps; ++i) {
    const Index size = std::min(options_.batch, samples - i * options_.batch);
    auto& bound = this->bound(size, training);
    if (training) last_rate_ = options_.optimizer.rate_at(step_, decay_end());
    const StepResult result =
        run(bound, data, order.part(i * options_.batch, size), training, training ? last_rate_ : 0);
    if (!training) check_loss(result);
    if (!result.skipped || std::isfinite(result.loss)) {
      report.loss += result.loss * static_cast<double>(size);
      report.accuracy += result.accuracy * static_cast<double>(size);
      counted += static_cast<double>(size);
    }
    report.samples += size;
    report.skipped += result.skipped ? 1 : 0;
    ++report.steps;
    if (training) end_step();
    if (progress) progress(epoch_, i + 1, steps, result);
    if (training && (stopping_ || step_ >= total_steps_)) break;
  }
  const auto mean = [&](double sum) { return counted > 0 ? sum / counted : std::numeric_limits<double>::quiet_NaN(); };
  report.loss = mean(report.loss);
  report.accuracy = mean(report.accuracy);
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
  const Adding order(held_[MemoryClass::data], RunMemory::order_bytes(data.size(), true));
  return pass(data, SampleOrder::shuffled(data.size(), options_.seed, epoch_, host_allocator_), true, progress);
}

void Trainer::prepare(Dataset& data) {
  hold(data, SampleOrder::ascending(data.size()), false, {});
  prepared_ = &data;
}

EpochReport Trainer::evaluate(Dataset& data, const Progress& progress) {
  if (data.size() < 1) throw AgreedError("the data set for evaluation has no samples; give one with at least one");
  const LayerPlan& loss = plan().layers.back();
  counts_ = ClassCounts(loss.op->target(loss->input_shapes[0]).labels ? loss->input_shapes[0]['C'] : 0);
  EpochReport report = pass(data, SampleOrder::ascending(data.size()), false, progress);
  counts_.sum(world_);
  report.counts = std::exchange(counts_, ClassCounts());
  return report;
}

StepResult Trainer::step(Dataset& data, std::span<const Index> samples) {
  for (const Index sample : samples)
    if (sample < 0 || sample >= data.size())
      throw AgreedError(fmt::format("a step cannot read sample {} of a data set of {}; give samples 0 to {}", sample,
                                    counted(data.size(), "sample"), data.size() - 1));
  total_steps_ = all_steps(data);
  const SampleOrder order = SampleOrder::given(samples);
  hold(data, order, true, {});
  auto& bound = this->bound(order.size(), true);
  const StepResult result = run(bound, data, order, false, options_.optimizer.rate_at(step_, decay_end()));
  end_step();
  return result;
}

Traffic Trainer::measured() const {
  Traffic total;
  for (const auto& [key, traffic] : counter_->by_label())
    if (key.first != "checkpoint") total += traffic;
  return total;
}

}  // namespace partita
