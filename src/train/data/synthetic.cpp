#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/data/dataset.hpp"

#include <array>
#include <numbers>
#include <vector>

namespace partita {

namespace {

/// sample = (pattern + noise) / sqrt 2, both standard normal. Everything is a pure function of the global sample number
/// and position. So nothing is held, and any box is a part of the same sample.
class Synthetic : public Dataset {
 public:
  /// `input` is the input's number, where a sample has several.
  Synthetic(const Shape& sample, const Shape& target, Index size, Index classes, std::uint64_t seed, int part,
            int input = 0)
      : sample_(sample),
        target_(target),
        size_(size),
        classes_(classes),
        seed_(seed),
        pattern_(seed, hash_text("synthetic pattern"), 0),
        targets_(seed, hash_text("synthetic label"), static_cast<std::uint64_t>(part)),
        noise_(seed, hash_text("synthetic noise"), static_cast<std::uint64_t>(part + 2 * input)),
        shown_(static_cast<std::size_t>(target.dims() > 0 ? classes * sample.extent(0) : 0)) {
    pattern_.normal(0, shown_);
  }

  Shape sample() const override { return sample_; }
  Index size() const override { return size_; }
  Index classes() const override { return classes_; }
  void hold(std::span<const Index>, const Box&) override {}
  bool needs_announcement() const override { return false; }
  Index held_bytes() const override { return static_cast<Index>(shown_.size() * sizeof(double)); }

  void read(Index sample, const Box& box, std::span<double> out) const override { read_values(sample, box, out); }
  void read_f32(Index sample, const Box& box, std::span<float> out) const override { read_values(sample, box, out); }

  Shape target() const override { return target_; }
  void read_target(Index sample, const Box& box, std::span<double> out) const override {
    read_targets(sample, box, out);
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    read_targets(sample, box, out);
  }

  std::int32_t label(Index sample) const override {
    check(sample);
    require(target_.dims() == 0, "one label per sample");
    return static_cast<std::int32_t>(target_at(sample, 0));
  }

 private:
  using At = std::array<Index, max_dims>;

  void check(Index sample) const { require(sample >= 0 && sample < size_, "the data set has the sample"); }

  double target_at(Index sample, Index place) const {
    const Index i = sample * std::max<Index>(target_.volume(), 1) + place;
    if (classes_ == 0) return targets_.normal(i);
    return static_cast<double>(targets_.bits(i) % static_cast<std::uint64_t>(classes_));
  }

  template <class T>
  void read_values(Index sample, const Box& box, std::span<T> out) const {
    check(sample);
    require(Box(sample_).contains(box), "the box lies inside the sample");
    require(static_cast<Index>(out.size()) == box.volume(), "room for the box");
    const Index first = sample * sample_.volume();
    const auto length = static_cast<std::size_t>(box.extent(box.dims() - 1));
    std::vector<double> values(length), noise(length);
    for_rows(box, sample_, [&](const At& at, Index place, std::size_t to) {
      read_pattern(sample, at, place, values);
      noise_.normal(first + place, noise);
      for (std::size_t i = 0; i < length; ++i)
        out[to + i] = static_cast<T>((values[i] + noise[i]) / std::numbers::sqrt2);
    });
  }

  template <class T>
  void read_targets(Index sample, const Box& box, std::span<T> out) const {
    check(sample);
    require(static_cast<Index>(out.size()) == box.volume(), "room for the box");
    if (box.dims() == 0) return static_cast<void>(out[0] = static_cast<T>(target_at(sample, 0)));
    for_rows(box, target_, [&](const At&, Index place, std::size_t to) {
      for (Index i = 0; i < box.extent(box.dims() - 1); ++i)
        out[to + static_cast<std::size_t>(i)] = static_cast<T>(target_at(sample, place + i));
    });
  }

  /// Computes the pattern of a row of positions from `at` on.
  void read_pattern(Index sample, const At& at, Index place, std::vector<double>& values) const {
    if (target_.dims() == 0)
      return Random(seed_, hash_text("synthetic pattern"), static_cast<std::uint64_t>(label(sample)))
          .normal(place, values);
    At here = at;
    const auto last = static_cast<std::size_t>(sample_.dims() - 1);
    Index target = -1;
    double value = 0;
    for (std::size_t i = 0; i < values.size(); ++i, ++here[last]) {
      if (const Index next = target_place(here); next != target) value = target_at(sample, target = next);
      values[i] = classes_ == 0 ? value * pattern_.normal(place + static_cast<Index>(i))
                                : shown_[static_cast<Index>(value) * sample_.extent(0) + here[0]];
    }
  }

  /// Returns the target position that belongs to a position of the sample: the same fraction of each dimension. Values
  /// without spatial dimensions take turns.
  Index target_place(const At& at) const {
    Index place = 0;
    for (int d = 0; d < target_.dims(); ++d) {
      const int mine = sample_.find(target_.name(d));
      Index turn = 0;
      for (int other = 0; other < sample_.dims(); ++other) turn += at[other];
      const Index here = target_.name(d) == 'C' || mine < 0 ? turn % target_.extent(d)
                                                            : at[mine] * target_.extent(d) / sample_.extent(mine);
      place = place * target_.extent(d) + here;
    }
    return place;
  }

  /// Calls f for each row of `box`, with its first position as coordinates, as a row-major index in `whole`, and as an
  /// index in `box`.
  template <class F>
  static void for_rows(const Box& box, const Shape& whole, F&& f) {
    const Index volume = box.volume(), length = box.extent(box.dims() - 1);
    for (Index i = 0; i < volume; i += length) {
      At at{};
      Index rest = i, place = 0, stride = 1;
      for (int d = box.dims() - 1; d >= 0; --d) {
        at[d] = box[d].lo + rest % box.extent(d);
        place += at[d] * stride;
        rest /= box.extent(d);
        stride *= whole.extent(d);
      }
      f(at, place, static_cast<std::size_t>(i));
    }
  }

  Shape sample_, target_;
  Index size_, classes_;
  std::uint64_t seed_;
  Random pattern_, targets_, noise_;
  std::vector<double> shown_;  // if each position has a label: the value of each class in each channel
};

/// Samples of several inputs with one label. Inputs of values are those of Synthetic. In three of four places of
/// tokens, the token modulo `classes` is the label, if there are as many tokens.
class SyntheticInputs final : public DatasetOfInputs {
 public:
  SyntheticInputs(std::vector<SampleInput> inputs, Index size, Index classes, std::uint64_t seed, int part)
      : inputs_(std::move(inputs)), seed_(seed), part_(part) {
    for (const SampleInput& input : inputs_)
      values_.emplace_back(input.shape, Shape{}, size, classes, seed, part, static_cast<int>(values_.size()));
  }

  std::vector<SampleInput> inputs() const override { return inputs_; }
  Index size() const override { return values_[0].size(); }
  Index classes() const override { return values_[0].classes(); }
  void hold_input(int, std::span<const Index>, const Box&) override {}
  bool needs_announcement() const override { return false; }
  std::int32_t label(Index sample) const override { return values_[0].label(sample); }
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    inputs_[input].vocabulary > 0 ? read_tokens(input, sample, box, out) : values_[input].read(sample, box, out);
  }
  void read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const override {
    values_[input].read_f32(sample, box, out);
  }

 private:
  void read_tokens(int input, Index sample, const Box& box, std::span<double> out) const {
    const auto& [name, shape, vocabulary] = inputs_[input];
    require(Box(shape).contains(box) && static_cast<Index>(out.size()) == box.volume(), "the box lies in the sample");
    const Random random(seed_, hash_text("synthetic indices"), static_cast<std::uint64_t>(part_ + 2 * input));
    const Index in_class = vocabulary / classes();
    for (std::size_t i = 0; i < out.size(); ++i) {
      Index rest = static_cast<Index>(i), place = 0, stride = 1;
      for (int d = box.dims() - 1; d >= 0; --d) {
        place += (box[d].lo + rest % box.extent(d)) * stride;
        rest /= box.extent(d);
        stride *= shape.extent(d);
      }
      const std::uint64_t drawn = random.bits(sample * shape.volume() + place), turn = drawn / 4;
      const bool shows = drawn % 4 != 0 && in_class > 0;
      out[i] = shows ? static_cast<double>(static_cast<Index>(turn % static_cast<std::uint64_t>(in_class)) * classes() +
                                           label(sample))
                     : static_cast<double>(turn % static_cast<std::uint64_t>(vocabulary));
    }
  }

  std::vector<SampleInput> inputs_;
  std::uint64_t seed_;
  int part_;
  std::vector<Synthetic> values_;  // by input; of tokens, the labels alone
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(std::vector<SampleInput> inputs, Index size, Index classes, std::uint64_t seed,
                                        int part) {
  if (size < 0) fail("a synthetic data set cannot have {} samples", size);
  if (classes < 1) fail("a synthetic data set with labels has at least one class, not {}", classes);
  if (inputs.empty()) fail("a synthetic data set has one or more inputs");
  return std::make_unique<SyntheticInputs>(std::move(inputs), size, classes, seed, part);
}

std::unique_ptr<Dataset> make_synthetic(const Shape& sample, const Shape& target, Index size, Index classes,
                                        std::uint64_t seed, int part) {
  if (size < 0) fail("a synthetic data set cannot have {} samples", size);
  if (classes < 0 || (classes == 0 && target.dims() == 0))
    fail("a synthetic data set with labels has at least one class, not {}", classes);
  for (const Shape& shape : {sample, target})
    if (shape.has('N'))
      fail("a synthetic data set has samples of {}; leave out N, since it is the shape of one", shape.print());
  return std::make_unique<Synthetic>(sample, target, size, classes, seed, part);
}

}  // namespace partita
