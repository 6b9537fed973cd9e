#include "src/train/data/subset.hpp"

#include "partita/base/error.hpp"
#include "partita/train/data/augment.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

class Subset final : public Dataset {
 public:
  Subset(std::unique_ptr<Dataset> whole, std::vector<Index> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {
    set_name(whole_->name());
  }

  Shape sample() const override { return whole_->sample(); }
  Index size() const override { return static_cast<Index>(samples_.size()); }
  Index classes() const override { return whole_->classes(); }
  Index vocabulary() const override { return whole_->vocabulary(); }
  Shape target() const override { return whole_->target(); }
  void hold(std::span<const Index> samples, const Box& box) override { whole_->hold(of_whole(samples), box); }
  std::vector<SampleInput> inputs() const override { return whole_->inputs(); }
  void hold_input(int input, std::span<const Index> samples, const Box& box) override {
    whole_->hold_input(input, of_whole(samples), box);
  }
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    whole_->read_input(input, of_whole(sample), box, out);
  }
  void read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const override {
    whole_->read_input_f32(input, of_whole(sample), box, out);
  }
  Index bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const override {
    return whole_->bytes_to_hold_inputs(inputs, targets, target_box) + own_bytes();
  }
  void hold_targets(std::span<const Index> samples, const Box& box) override {
    whole_->hold_targets(of_whole(samples), box);
  }
  Index held_bytes() const override { return whole_->held_bytes() + own_bytes(); }
  Index bytes_to_hold(Index samples, const Box& box, Index targets, const Box& target_box) const override {
    return whole_->bytes_to_hold(samples, box, targets, target_box) + own_bytes();
  }
  bool needs_announcement() const override { return whole_->needs_announcement(); }
  void read(Index sample, const Box& box, std::span<double> out) const override {
    whole_->read(of_whole(sample), box, out);
  }
  void read_f32(Index sample, const Box& box, std::span<float> out) const override {
    whole_->read_f32(of_whole(sample), box, out);
  }
  void read_target(Index sample, const Box& box, std::span<double> out) const override {
    whole_->read_target(of_whole(sample), box, out);
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    whole_->read_labels(of_whole(sample), box, out);
  }
  Index number(Index sample) const override { return whole_->number(of_whole(sample)); }
  std::int32_t label(Index sample) const override { return whole_->label(of_whole(sample)); }
  Index classes_beside(Index ignored) const override { return whole_->classes_beside(ignored); }
  std::string label_beyond(Index classes, std::optional<Index> ignored) const override {
    return whole_->label_beyond(classes, ignored);
  }

 private:
  Index own_bytes() const { return static_cast<Index>(samples_.capacity() * sizeof(Index)); }
  Index of_whole(Index sample) const {
    require(sample >= 0 && sample < size(), "the subset has the sample");
    return samples_[sample];
  }
  std::vector<Index> of_whole(std::span<const Index> samples) const {
    std::vector<Index> all;
    all.reserve(samples.size());
    for (const Index sample : samples) all.push_back(of_whole(sample));
    return all;
  }

  std::unique_ptr<Dataset> whole_;
  std::vector<Index> samples_;
};

}  // namespace

Division divide(Index samples, double fraction, std::uint64_t seed) {
  if (!(fraction > 0 && fraction < 1)) fail("a fraction of {} cannot be held out; give one between 0 and 1", fraction);
  if (samples < 2) fail("{} cannot be divided; a part can be held out of 2 or more", counted(samples, "sample"));
  const auto wanted = static_cast<Index>(std::llround(fraction * static_cast<double>(samples)));
  const Index count = std::clamp<Index>(wanted, 1, samples - 1);
  const std::vector<Index> order = shuffled(samples, seed, 0);  // epochs of training count from 1
  Division parts{{order.begin() + count, order.end()}, {order.begin(), order.begin() + count}};
  std::sort(parts.training.begin(), parts.training.end());
  std::sort(parts.held_out.begin(), parts.held_out.end());
  return parts;
}

std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> whole, std::vector<Index> samples) {
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

}  // namespace partita
