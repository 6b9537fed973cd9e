#include "partita/train/trainer/local_batch.hpp"

#include "partita/base/error.hpp"
#include "src/train/trainer/sample_values.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

void SampleBlock::fill(const Writer& write) const {
  if (tensor.box().dims() == 0) return;
  const Box inside = inside_of(tensor.box());
  const auto write_one = [&](Index n, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0);
    write(first_sample + n, inside, values);
    const auto no_label = [](double value) { return !(std::abs(value) <= 0x7fffffff) || value != std::trunc(value); };
    if (tensor.dtype() != DType::i32) return;
    if (const auto found = std::find_if(values.begin(), values.end(), no_label); found != values.end())
      fail("sample {} of the batch has the label {:g}; labels are whole numbers from 0", first_sample + n, *found);
  };
  write_samples<double>(tensor, write_one,
                        [&](Index n) { return fmt::format("sample {} of the batch", first_sample + n); });
}

void SampleBlock::read(const Reader& read) const {
  const Box& box = tensor.box();
  if (box.dims() == 0 || box.empty()) return;
  const Box inside = inside_of(box);
  const Index channels = tensor.extent('C'), volume = tensor.volume() / box.extent(0), places = volume / channels;
  std::vector<double> values(static_cast<std::size_t>(volume));
  for (Index n = box[0].lo; n < box[0].hi; ++n) {
    for (Index place = 0; place < places; ++place)
      for (Index c = 0; c < channels; ++c)
        values[c * places + place] = tensor.get((n - box[0].lo) * volume + place * channels + c);
    read(first_sample + n, inside, values);
  }
}

void SampleBlock::check_labels(std::string_view loss, Index classes, std::optional<Index> ignored) const {
  if (tensor.dtype() != DType::i32 || tensor.volume() == 0) return;
  const Index places = tensor.volume() / tensor.box().extent(0);
  for (Index i = 0; i < tensor.volume(); ++i)
    if (const auto label = tensor.as<std::int32_t>()[i]; (label < 0 || label >= classes) && label != ignored)
      fail("sample {} of the batch has the label {}, but the loss '{}' has {} classes; labels are 0 to {}",
           first_sample + tensor.box()[0].lo + i / places, label, loss, classes, classes - 1);
}

namespace {

std::vector<std::string> names_of_inputs(std::span<const SampleBlock> images) {
  std::vector<std::string> names;
  for (const auto& block : images)
    if (std::find(names.begin(), names.end(), block.input) == names.end()) names.push_back(block.input);
  return names;
}

}  // namespace

void LocalBatch::fill_images(const SampleBlock::Writer& write) const {
  if (const auto names = names_of_inputs(images); names.size() > 1)
    fail("the batch has {} inputs; name the one that is filled: {}", names.size(), quoted_list(names));
  for (const auto& block : images) block.fill(write);
}

void LocalBatch::fill_images(std::string_view input, const SampleBlock::Writer& write) const {
  if (const auto names = names_of_inputs(images); std::find(names.begin(), names.end(), input) == names.end())
    fail("the batch has no input '{}'{}; it has {}", input, did_you_mean(input, names), quoted_list(names));
  for (const auto& block : images)
    if (block.input == input) block.fill(write);
}

void LocalBatch::fill_targets(const SampleBlock::Writer& write) const {
  for (const auto& block : targets) block.fill(write);
}

}  // namespace partita
