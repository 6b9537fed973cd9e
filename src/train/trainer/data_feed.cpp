#include "src/train/trainer/data_feed.hpp"

#include "partita/base/error.hpp"
#include "src/device/profile.hpp"
#include "src/train/executor/batch_boxes.hpp"
#include "src/train/trainer/agreement.hpp"
#include "src/train/trainer/announced.hpp"
#include "src/train/trainer/sample_values.hpp"

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

Batch DataFeed::empty_batch(const Executor& executor, int microbatch) const {
  const auto made = [&](const Shape& shape, const Box& box, DType dtype) {
    return Tensor(dtype, shape.names(), box, allocator_, MemoryClass::activations);
  };
  const Target target = executor.target(microbatch);
  return {made(executor.plan().layers.front()->shape, executor.images(microbatch), options_.dtype),
          made(target.shape, executor.target_box(microbatch), target.labels ? DType::i32 : options_.dtype)};
}

Executor::Reader DataFeed::reader(const Executor& executor, Dataset& data, const SampleOrder& samples,
                                  const Augmentation& augmentation, Index epoch) const {
  return [&, epoch](int microbatch) { return read(executor, microbatch, data, samples, augmentation, epoch); };
}

Batch DataFeed::read(const Executor& executor, int microbatch, Dataset& data, const SampleOrder& all,
                     const Augmentation& augmentation, Index epoch) const {
  const Timed timed(Profile::Part::compute);
  const Batch batch = empty_batch(executor, microbatch);
  const Box image = inside_of(batch.images.box()), answer = inside_of(batch.target.box());
  const Interval range = executor.plan().samples(microbatch);
  const auto samples = all.part(range.lo, range.extent());
  const auto name_of = [&](Index n) { return fmt::format("sample {}", data.number(samples[n])); };
  const auto read_image = [&](Index n, auto values) {
    read_augmented(data, samples[n], image, augmentation, options_.seed, epoch, values);
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

}  // namespace partita
