#include "src/train/trainer/data_feed.hpp"

#include "partita/base/error.hpp"
#include "src/device/profile.hpp"
#include "src/train/executor/batch_boxes.hpp"
#include "src/train/trainer/agreement.hpp"
#include "src/train/trainer/announced.hpp"
#include "src/train/trainer/sample_values.hpp"

#include <cmath>

namespace partita {

void DataFeed::announce(Dataset& data, const SampleOrder& order, bool training, const Augmentation& augmentation) {
  Profile::layer("data");
  check_agreement(world_, "sizes of the data set", static_cast<std::uint64_t>(order.size()));
  const DataShare share = memory_.share(order.size(), training);
  const auto list = [&](Index count, Box (*box_of)(const Plan&, int, int)) {
    return Announced([&](Index batch, bool trains) -> const Plan& { return plans_.of(batch, trains).plan; }, order,
                     options_.batch, training, count,
                     [&](const Plan& plan, int microbatch) { return box_of(plan, microbatch, world_.rank()); },
                     allocator_);
  };
  agree_or_throw(world_, [&] {
    memory_.data().expect(data, RunMemory::data_bytes(data, share, augmentation));
    memory_.check_pass(order.size(), training);
    if (data.needs_announcement()) {
      data.hold(list(share.samples, image_box).samples(), source_box(data.sample(), share.box, augmentation));
      data.hold_targets(list(share.targets, target_box).samples(), share.target_box);
    }
    memory_.data().settle(data);
  });
  memory_.add_announcement(data, share);
}

Batch DataFeed::empty_batch(const Executor& executor, int microbatch, Fill fill) const {
  const auto made = [&](const Shape& shape, const Box& box, DType dtype) {
    return Tensor(dtype, shape.names(), box, allocator_, MemoryClass::activations, fill);
  };
  const Target target = executor.target(microbatch);
  const LayerPlan& input = executor.plan().layers.front();
  return {made(input->shape, executor.images(microbatch), input.op->output_type(options_.dtype)),
          made(target.shape, executor.target_box(microbatch), target.labels ? DType::i32 : options_.dtype)};
}

namespace {

/// Throws Error if one of `tokens` is no whole number below `vocabulary`. `which` names their sample.
void check_tokens(std::span<const double> tokens, Index vocabulary, std::string_view which) {
  for (const double token : tokens)
    if (!(token >= 0 && token < static_cast<double>(vocabulary)) || token != std::trunc(token))
      fail("{} has the token {:g}, but vocabulary() is {}; tokens are whole numbers from 0 to {}", which, token,
           vocabulary, vocabulary - 1);
}

}  // namespace

Batch DataFeed::Step::read(int microbatch) {
  if (auto node = ahead_.extract(microbatch)) return std::move(node.mapped());
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  return read_now(microbatch);
}

void DataFeed::Step::read_ahead() {
  Profile::layer("data");
  try {
    for (int j = 0; j < executor_.plan().microbatches; ++j)
      if (executor_.reads_images(j) || executor_.reads_target(j)) ahead_.emplace(j, read_now(j));
  } catch (...) {
    failed_ = std::current_exception();
  }
}

Batch DataFeed::Step::take_first() {
  auto node = ahead_.extract(0);
  return node ? std::move(node.mapped()) : Batch();
}

Batch DataFeed::Step::read_now(int microbatch) const {
  const Timed timed(Profile::Part::compute);
  const Batch batch = feed_.empty_batch(executor_, microbatch, Fill::none);
  const Box image = inside_of(batch.images.box()), answer = inside_of(batch.target.box());
  const Interval range = executor_.plan().samples(microbatch);
  const auto samples = samples_.part(range.lo, range.extent());
  const auto name_of = [&](Index n) { return fmt::format("sample {}", data_.number(samples[n])); };
  const auto read_image = [&](Index n, auto values) {
    read_augmented(data_, samples[n], image, augmentation_, feed_.options_.seed, epoch_, values);
  };
  const auto which = [&](Index n) { return fmt::format("data set '{}': {}", data_.name(), name_of(n)); };
  if (batch.images.dtype() == DType::i32)
    write_samples<double>(
        batch.images,
        [&](Index n, auto tokens) {
          read_image(n, tokens);
          check_tokens(tokens, data_.vocabulary(), which(n));
        },
        which);
  else if (batch.images.dtype() == DType::f32)
    write_samples<float>(batch.images, read_image, which);
  else
    write_samples<double>(batch.images, read_image, which);
  if (batch.target.dtype() == DType::i32)
    write_samples<std::int32_t>(
        batch.target,
        [&](Index n, auto labels) {
          read_checked_labels(data_, samples[n], answer, labels, executor_.plan().target().ignored);
        },
        name_of);
  else
    write_samples<double>(
        batch.target, [&](Index n, auto values) { data_.read_target(samples[n], answer, values); },
        [&](Index n) { return fmt::format("data set '{}': the target of {}", data_.name(), name_of(n)); });
  return batch;
}

}  // namespace partita
