#include "partita/train/run/trainer.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/profile.hpp"
#include "src/train/run/agreement.hpp"
#include "src/train/run/held_data.hpp"
#include "src/train/run/sample_order.hpp"
#include "src/train/run/sample_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <sstream>
#include <utility>

namespace partita {

namespace {

constexpr const char* checkpoint_label = "checkpoint";
constexpr std::string_view note_prefix = "note ";  // of attributes that hold Trainer::notes()

/// The options on which the course of a training depends.
std::string print(const TrainerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {}", o.epochs, o.steps, o.seed, o.augmentation.shift, o.augmentation.flip,
                     o.optimizer.print(), o.backend);
}

/// The first lines of two texts that differ; "nothing" for one that has ended.
std::pair<std::string, std::string> first_difference(const std::string& one, const std::string& other) {
  std::istringstream lines(one), others(other);
  const auto next = [](std::istream& from) {
    std::string line;
    return std::getline(from, line) ? fmt::format("\"{}\"", line) : "nothing";
  };
  while (true) {
    std::string a = next(lines), b = next(others);
    if (a != b || a == "nothing") return {std::move(a), std::move(b)};
  }
}

Index batches(Index samples, Index batch) { return (samples + batch - 1) / batch; }

}  // namespace

void check_ranks(const Strategy& strategy, int ranks) {
  const int size = strategy.ranks();
  if (size == ranks) return;
  if (!strategy.groups().empty() || strategy.stage_count() > 1)
    fail("the strategy's {} {} {} together, but {} {} started; start it with `mpiexec -n {}`",
         counted(static_cast<Index>(strategy.grids().size()), "stage"), strategy.grids().size() == 1 ? "has" : "have",
         counted(size, "rank"), ranks, ranks == 1 ? "was" : "were", size);
  fail("the grid \"{}\" has {}, but {} {} started; start it with `mpiexec -n {}`, or give a grid of {}",
       strategy.grid().print(), counted(size, "rank"), ranks, ranks == 1 ? "was" : "were", size, ranks);
}

Trainer::Trainer(Model model, Strategy strategy, TrainerOptions options, Communicator& world)
    : model_(std::move(model)),
      strategy_(std::move(strategy)),
      options_(std::move(options)),
      counter_(std::make_shared<TrafficCounter>()),
      world_(world),
      allocator_(std::make_shared<Allocator>(options_.memory_limit)),
      memory_(options_.batch, options_.training,
              [this](Index batch, bool training) -> const Plan& { return bound(batch, training).plan; }),
      held_data_(std::make_unique<HeldData>(allocator_)) {
  check_ranks(strategy_, world_.size());
  backend_ = make_backend(options_.backend, options_.dtype, options_.threads);
  Plan plan = bind(model_, strategy_, {options_.batch, options_.dtype, options_.training, options_.optimizer});
  check_memory(plan, options_.memory_limit);
  check_agreement(world_, "plans or options", plan.hash() ^ hash_text(print(options_)));
  strategy_ = pin_weight_layouts(std::move(strategy_), plan);
  counted_ = counting(world_, counter_);
  stage_ = plan.stage_of_rank(world_.rank());
  const auto stage_world = plan.grids.size() == 1 ? counted_ : counted_->split(stage_, world_.rank());
  grid_ =
      std::make_unique<ProcessGrid>(plan.grids[static_cast<std::size_t>(stage_)], stage_world, plan.axis_sets(stage_));
  if (plan.second_replica) {  // stages s and p-1-s, rank by rank
    const auto last = static_cast<int>(plan.grids.size()) - 1, pair = std::min(stage_, last - stage_);
    const int first = plan.grids[static_cast<std::size_t>(pair)].first_rank();
    replica_pair_ = counted_->split(first + plan.rank_in_stage(world_.rank()), world_.rank());
  }
  held_ = state_memory(plan, world_.rank());
  count_shared_memory();
  parameters_ = std::make_unique<Parameters>(plan, world_.rank(), options_.seed, allocator_);
  prepare(bound_[{options_.batch, options_.training}], std::move(plan));
  counter_->reset();
}

Trainer::Bound& Trainer::bound(Index batch, bool training) {
  auto& entry = bound_[{batch, training}];
  if (entry.executor) return entry;
  Plan plan = bind(model_, strategy_, {batch, options_.dtype, training, options_.optimizer});
  grid_->add(plan.axis_sets(stage_));
  count_shared_memory();
  prepare(entry, std::move(plan));
  return entry;
}

void Trainer::prepare(Bound& entry, Plan plan) {
  entry.plan = std::move(plan);
  entry.predicted = rank_traffic(entry.plan, world_.rank());
  entry.executor =
      std::make_unique<Executor>(RunContext{entry.plan, *grid_, *counted_, replica_pair_.get(), *backend_, *parameters_,
                                            *counter_, allocator_, options_.seed, options_.overlap});
  if (options_.dtype == DType::f32)  // in which alone backends have a choice
    choose_kernels(*backend_, entry.executor->problems(),
                   KernelCache(options_.kernel_folder, *backend_, options_.threads), world_, options_.measuring,
                   entry.plan.kernels, kernel_report_);
  if (!entry.plan.workload.training) count_classes(entry);
}

/// Lets an evaluation count predictions by class. Of several ranks that hold the same positions, one counts.
void Trainer::count_classes(Bound& entry) {
  const Executor& executor = *entry.executor;
  if (!executor.target().labels) return;
  entry.executor->observe([this, &executor](int microbatch, const Tensor& scores, const Tensor& target) {
    if (counts_.classes() == 0) return;  // predict() runs the plan too, without targets
    const Layout& x = executor.plan().layers_of(microbatch).back()->at.x[0];
    if (x.grid().group(grid_->rank(), x.replicated()).front() != grid_->rank()) return;
    counts_.add(scores, {target.as<std::int32_t>(), static_cast<std::size_t>(target.volume())});
  });
}

Trainer::~Trainer() = default;

Executor& Trainer::executor(Index batch, bool training) { return *bound(batch, training).executor; }

/// Zeros for what this rank brings to a microbatch.
Batch Trainer::empty_batch(const Executor& executor, int microbatch) const {
  const auto made = [&](const Shape& shape, const Box& box, DType dtype) {
    return Tensor(dtype, shape.names(), box, allocator_, MemoryClass::activations);
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
  write_samples<float>(batch.images, [&](Index n, std::span<float> values) {
    read_augmented(data, samples[n], image, augment ? options_.augmentation : none, options_.seed, epoch_, values);
  });
  write_samples<float>(
      batch.target, [&](Index n, std::span<float> values) { read_checked_target(data, samples[n], answer, values); });
  return batch;
}

StepResult Trainer::run(Bound& bound, Dataset& data, const SampleOrder& samples, bool augment, double rate) {
  const auto reader = [&](int microbatch) { return read(*bound.executor, microbatch, data, samples, augment); };
  const StepResult result = bound.executor->run(reader, step_, rate);
  predicted_ += bound.predicted;
  predict_memory(bound);
  return result;
}

EpochReport Trainer::pass(Dataset& data, const SampleOrder& order, bool training, const Progress& progress) {
  const Index samples = order.size();
  const Index steps = batches(samples, options_.batch);
  const Index first = training ? step_ % steps : 0;  // a resumed epoch goes on where it was left
  if (prepared_ != &data)
    hold(data, order.from(first * options_.batch), training, training ? options_.augmentation : Augmentation{});
  prepared_ = nullptr;  // what was announced will have been asked for
  const double start = now();
  EpochReport report{.epoch = epoch_};
  for (Index i = first; i < steps; ++i) {
    const Index size = std::min(options_.batch, samples - i * options_.batch);
    auto& bound = this->bound(size, training);
    if (training) last_rate_ = options_.optimizer.rate_at(step_, total_steps_);
    const StepResult result =
        run(bound, data, order.part(i * options_.batch, size), training, training ? last_rate_ : 0);
    report.loss += result.loss * static_cast<double>(size);
    report.accuracy += result.accuracy * static_cast<double>(size);
    report.samples += size;
    ++report.steps;
    if (training) ++step_;
    if (progress) progress(epoch_, i + 1, steps, result);
    if (training && step_ >= total_steps_) break;
  }
  const auto count = static_cast<double>(std::max<Index>(report.samples, 1));
  report.loss /= count;
  report.accuracy /= count;
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
        "training began on {} samples and cannot go on with {}: an epoch would be another one", samples_, data.size()));
  samples_ = data.size();
  total_steps_ = all_steps(data);
  epoch_ = step_ / batches(data.size(), options_.batch) + 1;
  const Index order_bytes = RunMemory::order_bytes(data.size(), true);
  held_[MemoryClass::data] += order_bytes;
  const EpochReport report =
      pass(data, SampleOrder::shuffled(data.size(), options_.seed, epoch_, allocator_), true, progress);
  held_[MemoryClass::data] -= order_bytes;
  return report;
}

void Trainer::prepare(Dataset& data) {
  hold(data, SampleOrder::ascending(data.size()), false, {});
  prepared_ = &data;
}

EpochReport Trainer::evaluate(Dataset& data, const Progress& progress) {
  const LayerPlan& loss = plan().layers.back();
  counts_ = ClassCounts(loss.op->target(loss->input_shapes[0]).labels ? loss->input_shapes[0]['C'] : 0);
  EpochReport report = pass(data, SampleOrder::ascending(data.size()), false, progress);
  counts_.sum(world_);
  report.counts = std::exchange(counts_, ClassCounts());
  return report;
}

StepResult Trainer::step(Dataset& data, std::span<const Index> samples) {
  total_steps_ = all_steps(data);
  const SampleOrder order = SampleOrder::given(samples);
  hold(data, order, true, {});
  auto& bound = this->bound(order.size(), true);
  const StepResult result = run(bound, data, order, false, options_.optimizer.rate_at(step_, total_steps_));
  ++step_;
  return result;
}

LocalBatch Trainer::make_batch(Index samples, bool training) {
  check_agreement(world_, "sizes of the batch", static_cast<std::uint64_t>(samples));
  if (samples < 1) throw AgreedError(fmt::format("a batch of {} samples; it must have 1 or more", samples));
  const Executor& executor = this->executor(samples, training);
  LocalBatch batch{.samples = samples, .images = {}, .targets = {}};
  for (int j = 0; j < executor.plan().microbatches; ++j) {
    const Index first = executor.plan().samples(j).lo;
    const Batch part = empty_batch(executor, j);
    batch.images.push_back({first, executor.plan().layers_of(j).front()->shape, part.images});
    batch.targets.push_back({first, executor.target(j).shape, part.target});
  }
  return batch;
}

namespace {

bool fits(const SampleBlock& block, const Box& box, DType dtype) {
  return block.tensor.box() == box && block.tensor.dtype() == dtype;
}

}  // namespace

/// Throws Error unless make_batch() could have made the batch.
void Trainer::check(const LocalBatch& batch, bool training) {
  if (batch.samples < 1) fail("the batch has no samples; Trainer::make_batch makes one");
  const Executor& executor = this->executor(batch.samples, training);
  const auto count = static_cast<std::size_t>(executor.plan().microbatches);
  bool good = batch.images.size() == count && batch.targets.size() == count;
  for (std::size_t j = 0; good && j < count; ++j) {
    const auto m = static_cast<int>(j);
    good = fits(batch.images[j], executor.images(m), options_.dtype) &&
           fits(batch.targets[j], executor.target_box(m), executor.target(m).labels ? DType::i32 : options_.dtype);
  }
  if (!good)
    fail("the batch of {} samples is not cut as this rank's {} plan cuts it; make it with make_batch({}, {})",
         batch.samples, training ? "training" : "evaluation", batch.samples, training);
  const LayerPlan& loss = executor.plan().layers.back();
  for (const auto& block : batch.targets)
    block.check_labels(loss.name, loss->input_shapes[0].has('C') ? loss->input_shapes[0]['C'] : 0);
}

namespace {

Executor::Reader reader_of(const LocalBatch& batch) {
  return [&batch](int microbatch) {
    const auto j = static_cast<std::size_t>(microbatch);
    return Batch{batch.images[j].tensor, batch.targets[j].tensor};
  };
}

}  // namespace

StepResult Trainer::step(const LocalBatch& batch) {
  if (!options_.training) throw AgreedError("this trainer evaluates only; set TrainerOptions::training");
  if (options_.steps < 1 && options_.optimizer.decay != Decay::none)
    throw AgreedError("the learning rate decays over all steps; set TrainerOptions::steps to their number");
  check(batch, true);
  auto& bound = this->bound(batch.samples, true);
  const double rate = options_.optimizer.rate_at(step_, options_.steps);
  const StepResult result = bound.executor->run(reader_of(batch), step_, rate);
  predicted_ += bound.predicted;
  predict_memory(bound);
  ++step_;
  return result;
}

std::vector<SampleBlock> Trainer::predict(const LocalBatch& batch) {
  check(batch, false);
  auto& bound = this->bound(batch.samples, false);
  const std::vector<Tensor> values = bound.executor->predict(reader_of(batch), step_);
  predicted_ += bound.predicted;
  predict_memory(bound);
  std::vector<SampleBlock> blocks;
  for (int j = 0; j < bound.plan.microbatches; ++j)
    if (const Tensor& mine = values[static_cast<std::size_t>(j)]; mine.box().dims() > 0)
      blocks.push_back({bound.plan.samples(j).lo, bound.plan.layers_of(j).back()->input_shapes[0], mine});
  return blocks;
}

Traffic Trainer::measured() const {
  Traffic total;
  for (const auto& [key, traffic] : counter_->by_label())
    if (key.first != checkpoint_label) total += traffic;
  return total;
}

std::map<std::string, std::string> Trainer::attributes() const {
  return {
      {"model", model_.describe()}, {"seed", std::to_string(options_.seed)}, {"batch", std::to_string(options_.batch)}};
}

void Trainer::save(const std::string& path) {
  counter_->set_label(checkpoint_label);
  auto attributes = this->attributes();
  attributes["step"] = std::to_string(step_);
  attributes["samples"] = std::to_string(samples_);
  predict_checkpoint(true, true);
  for (const auto& [key, text] : notes_) attributes[std::string(note_prefix) + key] = text;
  save_checkpoint(path, parameters_->named_everywhere(plan(), *grid_, world_.rank()), attributes, *counted_);
}

void Trainer::load(const std::string& path, bool optimizer) {
  counter_->set_label(checkpoint_label);
  Index step = 0, samples = 0;
  agree_or_throw(world_, [&] {
    auto stored = checkpoint_attributes(path);
    for (const auto& [key, mine] : attributes())
      if ((optimizer || key == "model") && stored[key] != mine) {
        const auto [there, here] = first_difference(stored[key], mine);
        fail("the checkpoint {} has another {}: {}, here it is {}", path, key, there, here);
      }
    for (const auto& [key, value] : {std::pair("step", &step), std::pair("samples", &samples)}) {
      const auto& text = stored[key];
      if (std::from_chars(text.data(), text.data() + text.size(), *value).ec != std::errc{})
        fail("the checkpoint {} does not say at which {} it was saved", path, key);
    }
    for (const auto& [key, text] : stored)
      if (optimizer && key.starts_with(note_prefix)) notes_[key.substr(note_prefix.size())] = text;
  });
  predict_checkpoint(optimizer, false);
  const auto named = parameters_->named(plan(), *grid_, optimizer);
  load_checkpoint(path, named, *counted_);
  if (optimizer) parameters_->keep_state(plan(), named);
  parameters_->refresh();
  if (!optimizer) return;
  step_ = step;
  samples_ = samples;
}

}  // namespace partita
