#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/dataset.hpp"

#include <array>
#include <numbers>
#include <vector>

namespace partita {

namespace {

/// sample = (pattern of its class + noise) / sqrt 2, both standard normal. Everything is a pure function of the global
/// sample number and pixel, so nothing is held and any box of a sample is the same piece of the same sample.
class Synthetic : public Dataset {
 public:
  Synthetic(const Shape& sample, Index size, Index classes, std::uint64_t seed, int part)
      : sample_(sample),
        size_(size),
        classes_(classes),
        seed_(seed),
        labels_(seed, hash("synthetic label"), static_cast<std::uint64_t>(part)),
        noise_(seed, hash("synthetic noise"), static_cast<std::uint64_t>(part)) {}

  Shape sample() const override { return sample_; }
  Index size() const override { return size_; }
  Index classes() const override { return classes_; }
  void hold(std::span<const Index>, const Box&) override {}

  void read(Index sample, const Box& box, std::span<float> out) const override {
    require(sample >= 0 && sample < size_, "the data set has the sample");
    require(Box(sample_).contains(box), "the box lies inside the sample");
    require(static_cast<Index>(out.size()) == box.volume(), "room for the box");
    const Random pattern(seed_, hash("synthetic pattern"), static_cast<std::uint64_t>(label(sample)));
    const Index first = sample * sample_.volume();
    const auto length = static_cast<std::size_t>(box.extent(box.dims() - 1));
    std::vector<double> values(length), noise(length);
    for_rows(box, [&](Index pixel, std::size_t at) {
      pattern.normal(pixel, values);
      noise_.normal(first + pixel, noise);
      for (std::size_t i = 0; i < length; ++i)
        out[at + i] = static_cast<float>((values[i] + noise[i]) / std::numbers::sqrt2);
    });
  }

  std::int32_t label(Index sample) const override {
    require(sample >= 0 && sample < size_, "the data set has the sample");
    return static_cast<std::int32_t>(labels_.bits(sample) % static_cast<std::uint64_t>(classes_));
  }

 private:
  /// Calls f(row-major index of its first pixel in the whole sample, in `box`) for each row of `box`.
  template <class F>
  void for_rows(const Box& box, F&& f) const {
    const Index volume = box.volume(), length = box.extent(box.dims() - 1);
    for (Index at = 0; at < volume; at += length) {
      Index rest = at, pixel = 0, stride = 1;
      for (int d = box.dims() - 1; d >= 0; --d) {
        pixel += (box[d].lo + rest % box.extent(d)) * stride;
        rest /= box.extent(d);
        stride *= sample_.extent(d);
      }
      f(pixel, static_cast<std::size_t>(at));
    }
  }

  Shape sample_;
  Index size_, classes_;
  std::uint64_t seed_;
  Random labels_, noise_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(const Shape& sample, Index size, Index classes, std::uint64_t seed, int part) {
  if (size < 0) fail("a synthetic data set cannot have {} samples", size);
  if (classes < 1) fail("a synthetic data set has at least one class, not {}", classes);
  require(!sample.has('N'), "the shape of one sample has no N");
  return std::make_unique<Synthetic>(sample, size, classes, seed, part);
}

}  // namespace partita
