#include "partita/train/trainer/trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace partita::augment_test {

namespace {

/// Pixel values that encode their position, none of them zero. Fails if a box outside the announced box is requested.
class NumberedData final : public Dataset {
 public:
  explicit NumberedData(const Shape& sample) : sample_(sample), held_(sample) {}
  Shape sample() const override { return sample_; }
  Index size() const override { return 1000; }
  Index classes() const override { return 2; }
  void hold(std::span<const Index>, const Box& box) override { held_ = box; }
  void read(Index sample, const Box& box, std::span<double> out) const override {
    EXPECT_TRUE(box.empty() || held_.contains(box)) << box.print() << " was requested, " << held_.print() << " is held";
    ASSERT_EQ(static_cast<Index>(out.size()), box.volume());
    for (std::size_t i = 0; i < out.size(); ++i) {
      Index rest = static_cast<Index>(i), at = 0, scale = 1;
      for (int d = box.dims() - 1; d >= 0; --d) {
        at += (box[d].lo + rest % box.extent(d)) * scale;
        rest /= box.extent(d);
        scale *= sample_.extent(d);
      }
      out[i] = static_cast<double>(1 + at + sample * sample_.volume());
    }
  }
  std::int32_t label(Index) const override { return 0; }

 private:
  Shape sample_;
  Box held_;
};

const Shape shape{{'C', 2}, {'H', 5}, {'W', 7}};

std::vector<float> augmented(const Dataset& data, Index sample, const Box& box, const Augmentation& augmentation,
                             Index epoch) {
  std::vector<float> out(static_cast<std::size_t>(box.volume()), -1);
  read_augmented(data, sample, box, augmentation, 3, epoch, std::span(out));
  return out;
}

/// Element (c, h, w) of an image of the whole shape.
float pixel(const std::vector<float>& image, Index c, Index h, Index w) {
  return image[(c * shape['H'] + h) * shape['W'] + w];
}

/// How one augmented image was moved, found by trying: a candidate must explain every pixel.
struct Found {
  Index down = 0, right = 0;
  bool mirrored = false;
  auto operator<=>(const Found&) const = default;
};

bool explains(const Found& move, const std::vector<float>& plain, const std::vector<float>& image) {
  for (Index c = 0; c < shape['C']; ++c)
    for (Index h = 0; h < shape['H']; ++h)
      for (Index w = 0; w < shape['W']; ++w) {
        const Index from_h = h - move.down, from_w = (move.mirrored ? shape['W'] - 1 - w : w) - move.right;
        const bool inside = from_h >= 0 && from_h < shape['H'] && from_w >= 0 && from_w < shape['W'];
        if (pixel(image, c, h, w) != (inside ? pixel(plain, c, from_h, from_w) : 0)) return false;
      }
  return true;
}

std::vector<Found> explanations(const std::vector<float>& plain, const std::vector<float>& image) {
  std::vector<Found> found;
  for (Index down = -4; down <= 4; ++down)
    for (Index right = -6; right <= 6; ++right)
      for (const bool mirrored : {false, true})
        if (const Found move{down, right, mirrored}; explains(move, plain, image)) found.push_back(move);
  return found;
}

}  // namespace

TEST(Augment, AnyBoxIsCutFromTheSameImage) {
  std::mt19937 random(5);
  const auto draw = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  for (const Augmentation augmentation : {Augmentation{0, false}, {0, true}, {1, false}, {2, true}, {9, true}})
    for (int i = 0; i < 300; ++i) {
      NumberedData data(shape);
      const Index sample = draw(0, 9), epoch = draw(1, 3);
      const auto whole = augmented(data, sample, Box(shape), augmentation, epoch);
      Box box(3);
      for (int d = 0; d < 3; ++d) {
        const Index lo = draw(0, shape.extent(d));
        box[d] = {lo, draw(lo, shape.extent(d))};  // may be empty
      }
      const std::vector<Index> samples{sample};
      data.hold(samples, source_box(shape, box, augmentation));
      const auto part = augmented(data, sample, box, augmentation, epoch);
      std::size_t at = 0;
      for (Index c = box[0].lo; c < box[0].hi; ++c)
        for (Index h = box[1].lo; h < box[1].hi; ++h)
          for (Index w = box[2].lo; w < box[2].hi; ++w)
            ASSERT_EQ(part[at++], pixel(whole, c, h, w)) << box.print() << " shift " << augmentation.shift;
    }
}

TEST(Augment, ShiftsAndMirrorsWholeImagesInAllWays) {
  const NumberedData data(shape);
  std::set<Found> seen;
  for (Index sample = 0; sample < 300; ++sample) {
    const auto plain = augmented(data, sample, Box(shape), {}, 1);
    const auto found = explanations(plain, augmented(data, sample, Box(shape), {1, true}, 1));
    ASSERT_EQ(found.size(), 1U) << "sample " << sample << " is not its shifted, mirrored self";
    seen.insert(found.begin(), found.end());
  }
  EXPECT_EQ(seen.size(), 18U) << "3 shifts down, 3 right, mirrored or not";
}

TEST(Augment, EpochsDiffer) {
  const NumberedData data(shape);
  int equal = 0;
  for (Index sample = 0; sample < 100; ++sample)
    equal += augmented(data, sample, Box(shape), {2, true}, 1) == augmented(data, sample, Box(shape), {2, true}, 2);
  EXPECT_LT(equal, 15);
}

TEST(Augment, SourceBoxIsNoLargerThanNeeded) {
  Box box(shape);
  box[1] = {1, 3};
  box[2] = {0, 2};
  EXPECT_EQ(source_box(shape, box, {}), box);
  EXPECT_EQ(source_box(shape, box, {1, false}).print(), "[0,2)x[0,4)x[0,3)");
  EXPECT_EQ(source_box(shape, box, {0, true}).print(), "[0,2)x[1,3)x[0,7)");
  box[2] = {2, 2};
  EXPECT_TRUE(source_box(shape, box, {3, true}).empty());
}

TEST(Shuffled, IsAPermutationOfItsOwnForEverySeedAndEpoch) {
  std::set<std::vector<Index>> seen;
  for (const Index n : {0, 1, 2, 3, 7, 101})
    for (const std::uint64_t seed : {1U, 2U})
      for (const Index epoch : {1, 2, 3}) {
        auto order = shuffled(n, seed, epoch);
        EXPECT_EQ(order, shuffled(n, seed, epoch));
        if (n == 101) seen.insert(order);
        std::sort(order.begin(), order.end());
        for (Index i = 0; i < n; ++i) ASSERT_EQ(order[i], i);
        ASSERT_EQ(static_cast<Index>(order.size()), n);
      }
  EXPECT_EQ(seen.size(), 6U);
}

TEST(Shuffled, EveryOrderIsAboutAsLikely) {
  std::map<std::vector<Index>, int> counts;
  for (Index epoch = 0; epoch < 6000; ++epoch) ++counts[shuffled(3, 1, epoch)];
  ASSERT_EQ(counts.size(), 6U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);  // 5 standard deviations
}

}  // namespace partita::augment_test
