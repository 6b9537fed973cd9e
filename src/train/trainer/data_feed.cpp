#include "src/train/trainer/data_feed.hpp"

#include "partita/base/error.hpp"
#include "src/device/profile.hpp"
#include "src/train/executor/batch_boxes.hpp"
#include "src/train/trainer/agreement.hpp"
#include "src/train/trainer/announced.hpp"
#include "src/train/trainer/sample_values.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

void DataFeed::announce(Dataset& data, const SampleOrder& order, bool training, const Augmentation& augmentation) {
  Profile::layer("data");
  check_agreement(world_, "sizes of the data set", static_cast<std::uint64_t>(order.size()));
  const DataShare share = memory_.share(order.size(), training);
  const auto list = [&](Index count, const std::function<Box(const Plan& plan, int microbatch)>& box_of) {
    return Announced([&](Index batch, bool trains) -> const Plan& { return plans_.of(batch, trains).plan; }, order,
                     options_.batch, training, count, box_of, allocator_);
  };
  const int rank = world_.rank();
  agree_or_throw(world_, [&] {
    if (share.inputs.size() > 1 && (augmentation.flip || augmentation.shift > 0))
      fail("shifts and flips change images, but the model reads {} inputs ({}); leave them out", share.inputs.size(),
           quoted_list(share.names));
    memory_.data().expect(data, RunMemory::data_bytes(data, share, augmentation));
    memory_.check_pass(order.size(), training);
    if (data.needs_announcement()) {
      const auto own = data.inputs();
      const std::vector<int> numbers = match_inputs(data, share.names);
      for (std::size_t i = 0; i < share.layers.size(); ++i) {
        const auto box_of = [&](const Plan& plan, int microbatch) {
          return image_box(plan, share.layers[i], microbatch, rank);
        };
        data.hold_input(numbers[i], list(share.inputs[i].samples, box_of).samples(),
                        source_box(own[numbers[i]].shape, share.inputs[i].box, augmentation));
      }
      const auto target_of = [&](const Plan& plan, int microbatch) { return target_box(plan, microbatch, rank); };
      data.hold_targets(list(share.targets, target_of).samples(), share.target_box);
    }
    memory_.data().settle(data);
  });
  memory_.add_announcement(data, share);
}

Batch DataFeed::empty_batch(const Executor& executor, int microbatch, Fill fill) const {
  const auto made = [&](const Shape& shape, const Box& box, DType dtype) {
    return Tensor(dtype, shape.names(), box, allocator_, MemoryClass::activations, fill);
  };
  Batch batch;
  for (int i = 0; i < std::ssize(executor.inputs()); ++i) {
    const LayerPlan& input = executor.plan().layers[executor.inputs()[i]];
    batch.images.push_back(made(input->shape, executor.images(microbatch, i), input.op->output_type(options_.dtype)));
  }
  const Target target = executor.target(microbatch);
  batch.target = made(target.shape, executor.target_box(microbatch), target.labels ? DType::i32 : options_.dtype);
  return batch;
}

DataFeed::Step::Step(const DataFeed& feed, const Executor& executor, Dataset& data, SampleOrder samples,
                     const Augmentation& augmentation, Index epoch)
    : feed_(feed),
      executor_(executor),
      data_(data),
      samples_(std::move(samples)),
      augmentation_(augmentation),
      epoch_(epoch),
      own_(data.inputs()) {
  std::vector<std::string> names;
  for (const int input : executor.inputs()) names.push_back(executor.plan().layers[input].name);
  numbers_ = match_inputs(data, names);
}

namespace {

/// Throws Error if one of `tokens` is no whole number below the input's vocabulary. They are those of a box C L of a
/// sample, of which `which` says where it is.
void check_tokens(std::span<const double> tokens, const Box& box, const SampleInput& input, std::string_view which) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](double token) {
    return !(token >= 0 && token < static_cast<double>(input.vocabulary)) || token != std::trunc(token);
  });
  if (bad == tokens.end()) return;
  const Interval places = box.dims() > 1 ? box[1] : Interval{0, 1};
  fail("{} has the token {:g} at place {}{}, but {} is {}; tokens are whole numbers from 0 to {}", which, *bad,
       places.lo + (bad - tokens.begin()) % places.extent(),
       input.name.empty() ? "" : fmt::format(" of the input '{}'", input.name),
       input.name.empty() ? "vocabulary()" : "its vocabulary", input.vocabulary, input.vocabulary - 1);
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
  const Box answer = inside_of(batch.target.box());
  const Interval range = executor_.plan().samples(microbatch);
  const auto samples = samples_.part(range.lo, range.extent());
  const auto name_of = [&](Index n) { return fmt::format("sample {}", data_.number(samples[n])); };
  const auto which = [&](Index n) { return fmt::format("data set '{}': {}", data_.name(), name_of(n)); };
  for (std::size_t i = 0; i < batch.images.size(); ++i) {
    const Tensor& images = batch.images[i];
    const Box box = inside_of(images.box());
    const int number = numbers_[i];
    const auto read_image = [&](Index n, auto values) {
      read_augmented(data_, samples[n], box, augmentation_, feed_.options_.seed, epoch_, values, number);
    };
    if (images.dtype() == DType::i32)
      write_samples<double>(
          images,
          [&](Index n, auto tokens) {
            read_image(n, tokens);
            check_tokens(tokens, box, own_[number], which(n));
          },
          which);
    else if (images.dtype() == DType::f32)
      write_samples<float>(images, read_image, which);
    else
      write_samples<double>(images, read_image, which);
  }
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
