// Steps on batches that the user's own program fills.
#include "partita/base/error.hpp"
#include "partita/train/run/trainer.hpp"
#include "src/train/run/agreement.hpp"
#include "src/train/run/held_data.hpp"

namespace partita {

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

Executor::Reader Trainer::reader_of(const LocalBatch& batch) {
  return [&batch](int microbatch) {
    const auto j = static_cast<std::size_t>(microbatch);
    return Batch{batch.images[j].tensor, batch.targets[j].tensor};
  };
}

StepResult Trainer::step(const LocalBatch& batch) {
  if (!options_.training) throw AgreedError("this trainer evaluates only; set TrainerOptions::training");
  if (total_steps_ == 0) total_steps_ = options_.steps;
  if (decay_end() < 1 && options_.optimizer.decay != Decay::none)
    throw AgreedError("the learning rate decays over all steps; set TrainerOptions::steps to their number");
  check(batch, true);
  auto& bound = this->bound(batch.samples, true);
  const StepResult result = run(bound, reader_of(batch), options_.optimizer.rate_at(step_, decay_end()));
  end_step();
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
      blocks.push_back(
          {bound.plan.samples(j).lo, bound.plan.layers_of(j).back()->input_shapes[0], on_host(mine, stream())});
  return blocks;
}

}  // namespace partita
