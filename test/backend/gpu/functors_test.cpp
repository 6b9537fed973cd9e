// The functors give what the reference gives, where no other test of the backends compares both with a definition.
#include "test/support/functors.hpp"
#include "test/support/cases.hpp"
#include "test/support/entropy.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

namespace partita::test::functors_test {
namespace {

using naive::Generator;

constexpr std::array<std::string_view, 6> names{"", "", "NC", "NCW", "NCHW", "NCDHW"};

/// Boxes that do not begin at the origin, with 1 to 3 spatial dimensions; some extents are 1, and one box is empty.
std::vector<Box> boxes() {
  std::vector<Box> all;
  for (int dims = 3; dims <= 5; ++dims)
    for (const Index channels : {1, 5}) {
      Box box(dims);
      for (int d = 0; d < dims; ++d) box[d] = {d + 1, d + 3 + d % 2};
      box[1] = {2, 2 + channels};
      all.push_back(box);
      box[dims - 1] = {1, 2};
      all.push_back(box);
    }
  all.push_back(Box(Shape{{'N', 0}, {'C', 3}, {'H', 2}}));
  return all;
}

std::string_view names_of(const Box& box) { return names[box.dims()]; }

Tensor copy_of(const Tensor& tensor) { return extract(tensor, tensor.box(), MemoryClass::workspace, {}); }

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.box(), expected.box());
  for (Index i = 0; i < found.volume(); ++i)
    ASSERT_NEAR(found.get(i), expected.get(i), tolerance * (1 + std::abs(expected.get(i)))) << "element " << i;
}

/// A type of elements, and what runs the functors.
class Functors : public testing::TestWithParam<std::tuple<DType, Runner>> {
 protected:
  static DType dtype() { return std::get<0>(GetParam()); }
  double tolerance() const {
    return dtype() == DType::f64 ? 1e-13 : dtype() == DType::f32 ? 1e-5 : dtype() == DType::bf16 ? 1e-2 : 2e-3;
  }
  std::unique_ptr<Backend> reference = make_reference_backend(), functors = make_functors(std::get<1>(GetParam()));
  Generator random{17};
};
INSTANTIATE_TEST_SUITE_P(DTypes, Functors,
                         testing::Combine(testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                                          testing::ValuesIn(runners())));

TEST_P(Functors, DropoutDrawsTheSameNumbers) {
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    Shape whole;
    for (int d = 0; d < box.dims(); ++d) whole.push_back({names_of(box)[d], box[d].hi + 1});
    const Tensor x = random.tensor(dtype(), names_of(box), box), y = x.like(box), other = x.like(box);
    const Random numbers(3, hash_text("dropout"), 5);
    const Tensor step = tensor(DType::f64, "F", Box(Shape{{'F', 1}}));
    step.set(0, 7);
    reference->dropout(0.4, numbers, step, 1000, whole, x, {}, y, {});
    functors->dropout(0.4, numbers, step, 1000, whole, x, {}, other, {});
    expect_near(other, y, 0);
    const Tensor added = random.tensor(dtype(), names_of(box), box), sum = x.like(box), other_sum = x.like(box);
    reference->dropout(0.4, numbers, step, 1000, whole, x, added, sum, {});
    functors->dropout(0.4, numbers, step, 1000, whole, x, added, other_sum, {});
    expect_near(other_sum, sum, dtype() == DType::f64 ? 1e-15 : 1e-6);
    if (y.volume() == 0) continue;
    Index first = 0;  // the index of the first element
    for (int d = 0; d < box.dims(); ++d) first = first * (box[d].hi + 1) + box[d].lo;
    EXPECT_EQ(y.get(0) == 0, numbers.at_step(7).uniform(1000 + first) < 0.4);
  }
}

TEST_P(Functors, SpatialSumsAndTheirAdjoints) {
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    Box flat(2);
    flat[0] = box[0];
    flat[1] = box[1];
    const Tensor x = random.tensor(dtype(), names_of(box), box), y = tensor(dtype(), "NC", flat), other = y.like(flat);
    reference->spatial_sum(x, 0.3, y, {});
    functors->spatial_sum(x, 0.3, other, {});
    expect_near(other, y, tolerance());
    const Tensor dx = x.like(box), other_dx = x.like(box);
    reference->spatial_spread(y, 0.3, dx, {});
    functors->spatial_spread(y, 0.3, other_dx, {});
    expect_near(other_dx, dx, 0);
  }
}

/// A resampling of one dimension, the inputs that a part of its outputs reads, and that part.
struct Dimension {
  Resampling how;
  Interval in, out;
};

Dimension drawn_dimension(Generator& random) {
  Dimension dim;
  dim.how.kind = static_cast<Resampling::Kind>(random.draw(0, 2));
  dim.how.inputs = random.draw(1, 5);
  dim.how.factor = dim.how.kind == Resampling::Kind::crop ? 1 : random.draw(1, 4);
  dim.how.first = dim.how.kind == Resampling::Kind::crop ? random.draw(0, dim.how.inputs - 1) : 0;
  const Index outputs = dim.how.inputs * dim.how.factor - dim.how.first, lo = random.draw(0, outputs - 1);
  dim.out = {lo, random.draw(lo + 1, outputs)};
  dim.in = random.one_in(2) ? Interval{0, dim.how.inputs} : dim.how.inputs_of(dim.out);
  return dim;
}

TEST_P(Functors, ResamplingAndItsAdjoint) {
  for (int drawn = 0; drawn < 120; ++drawn) {
    const int spatial = 1 + drawn % 3;
    Box in(spatial + 2), out(spatial + 2);
    in[0] = out[0] = {1, 3};
    in[1] = out[1] = {2, 5};
    std::vector<Resampling> dims;
    for (int d = 0; d < spatial; ++d) {
      const Dimension dim = drawn_dimension(random);
      dims.push_back(dim.how);
      in[d + 2] = dim.in;
      out[d + 2] = dim.out;
    }
    SCOPED_TRACE(fmt::format("{} from {}", out.print(), in.print()));
    const Tensor x = random.tensor(dtype(), names_of(in), in), dy = random.tensor(dtype(), names_of(out), out);
    const Tensor y = dy.like(out), other = dy.like(out), dx = copy_of(x), other_dx = copy_of(x);
    reference->resample_forward(dims, x, y, {});
    functors->resample_forward(dims, x, other, {});
    expect_near(other, y, tolerance());
    reference->resample_backward(dims, dy, dx, {});
    functors->resample_backward(dims, dy, other_dx, {});
    expect_near(other_dx, dx, tolerance());
  }
}

TEST_P(Functors, BlocksMoveIntoChannelsAndBack) {
  for (int drawn = 0; drawn < 60; ++drawn) {
    const int spatial = 1 + drawn % 3;
    Box in(spatial + 2), out(spatial + 2);
    in[0] = out[0] = {1, 3};
    in[1] = {2, 5};
    Index per = 1;
    std::vector<Index> block;
    for (int d = 0; d < spatial; ++d) {
      block.push_back(random.draw(1, 3));
      per *= block.back();
      const Index lo = random.draw(0, 2), hi = lo + random.draw(1, 2);
      out[d + 2] = {lo, hi};
      in[d + 2] = {lo * block.back(), hi * block.back()};
    }
    out[1] = {0, 3 * per};
    SCOPED_TRACE(fmt::format("{} from {}", out.print(), in.print()));
    const Tensor x = random.tensor(dtype(), names_of(in), in), y = tensor(dtype(), names_of(out), out),
                 other = y.like(out);
    reference->space_to_depth(block, x, y, {});
    functors->space_to_depth(block, x, other, {});
    expect_near(other, y, 0);
    const Tensor dx = x.like(in);
    functors->depth_to_space(block, y, dx, {});
    expect_near(dx, x, 0);
  }
}

TEST_P(Functors, DiceAndDifferences) {
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    const Index samples = box.extent(0), channels = box.extent(1);
    const Tensor x = random.tensor(dtype(), names_of(box), box), target = random.tensor(dtype(), names_of(box), box);
    const Tensor labels = tensor(DType::i32, "F", Box(Shape{{'F', x.volume() / channels}}));
    for (Index i = 0; i < labels.volume(); ++i) labels.set(i, static_cast<double>(random.draw(0, channels - 1)));
    if (labels.volume() > 1) labels.set(1, -100);
    Labels counted = test::labels_of(x, labels);
    counted.ignored = -100;
    std::vector<Tensor> sums, results, gradients;
    for (Backend* backend : {reference.get(), functors.get()}) {
      sums.push_back(norm_numbers(x, 2, samples, channels, MemoryClass::workspace));
      results.push_back(tensor(DType::f64, "F", Box(Shape{{'F', 4}})));
      gradients.push_back(x.like(box));
      backend->overlap_forward(x, counted, sums.back(), results.back(), {});
      const Tensor overlaps = copy_of(sums.back());
      backend->overlap_loss(sums.back(), 7, 0.5, {}, {});  // without a result
      copy_box(overlaps, sums.back(), overlaps.box(), {});
      backend->overlap_loss(sums.back(), 7, 0.5, results.back(), {});
      backend->overlap_backward(x, counted, sums.back(), gradients.back(), {});
      for (const bool absolute : {false, true}) {
        results.push_back(tensor(DType::f64, "F", Box(Shape{{'F', 2}})));
        gradients.push_back(x.like(box));
        backend->difference_forward(absolute, x, target, 3, results.back(), {});
        backend->difference_backward(absolute, x, target, 0.25, gradients.back(), {});
      }
    }
    expect_near(sums[1], sums[0], 1e-12);
    for (std::size_t i = 0; i < 3; ++i) {
      expect_near(results[i + 3], results[i], 1e-12);
      expect_near(gradients[i + 3], gradients[i], tolerance());
    }
  }
}

// A label that is no class must neither read memory that is not the tensor's nor count as right.
TEST(FunctorLabels, ALabelThatIsNoClassGivesNoLoss) {
  const Tensor x = tensor(DType::f32, "NCH", Box(Shape{{'N', 1}, {'C', 3}, {'H', 2}}));
  x.set(0, 1);
  for (const Runner runner : runners())
    for (const double wrong : {-1.0, 3.0, 1e9}) {
      const auto backend = make_functors(runner);
      const Tensor labels = tensor(DType::i32, "NH", Box(Shape{{'N', 1}, {'H', 2}})),
                   result = tensor(DType::f64, "F", Box(Shape{{'F', 2}}));
      labels.set(1, wrong);
      test::cross_entropy(*backend, x, labels, 1, result);
      EXPECT_TRUE(std::isnan(result.get(0)));
      EXPECT_EQ(result.get(1), 1);
      const Tensor sums = norm_numbers(x, 2, 1, 3, MemoryClass::workspace);
      result.zero({});
      backend->overlap_forward(x, test::labels_of(x, labels), sums, result, {});
      backend->overlap_loss(sums, 1, 1, result, {});
      EXPECT_TRUE(std::isnan(result.get(0)));
      EXPECT_EQ(result.get(1), 1);
    }
}

// Wide and tall ones, so that a GPU moves several elements at once, or one where the channels do not allow it, and cuts
// the rows into parts.
TEST_P(Functors, RowsOfManyChannels) {
  const std::array<std::array<Index, 3>, 7> sizes{
      {{1, 5000, 1}, {2, 3000, 3}, {1, 4001, 4}, {3, 700, 16}, {1, 600, 260}, {2, 9, 1032}, {1, 1, 4099}}};
  for (const auto& [samples, points, channels] : sizes) {
    SCOPED_TRACE(fmt::format("{} samples, {} points, {} channels", samples, points, channels));
    const Box box(Shape{{'N', samples}, {'C', channels}, {'H', points}}), vector(Shape{{'F', channels}});
    const Tensor x = random.tensor(dtype(), "NCH", box), dy = random.tensor(dtype(), "NCH", box);
    const Tensor scale = random.tensor(dtype(), "F", vector), shift = random.tensor(dtype(), "F", vector);
    std::vector<Tensor> sums, tensors;
    for (Backend* backend : {reference.get(), functors.get()})
      for (const Index parts : {Index(1), samples}) {
        const auto numbers = [&](Index count) {
          return norm_numbers(x, count, parts, x.extent('C'), MemoryClass::workspace);
        };
        const Tensor moments = numbers(2), shared = numbers(4), statistics = numbers(3), gradients = numbers(2),
                     db = shift.like(vector);
        const Tensor y = copy_of(x), z = x.like(box), dx = x.like(box), more = copy_of(x);
        backend->bias_forward(shift, y, {});
        backend->bias_backward(dy, db, Write::over, {});
        const Index count = samples * points / parts;
        backend->channel_sums(x, channels, moments, {});
        backend->norm_moments(x, moments, count, count, shared, {});
        backend->norm_statistics(shared, count, 1e-3, {}, statistics, {});
        backend->norm_forward(x, statistics, scale, shift, false, z, {});
        backend->channel_gradient_sums(x, dy, statistics, gradients, {});
        backend->norm_backward(x, dy, statistics, gradients, false, scale, samples * points / parts, dx, {}, {});
        backend->axpby(0.5, dy, 2, more, {});
        sums.insert(sums.end(), {moments, gradients});
        tensors.insert(tensors.end(), {y, db, z, dx, more});
      }
    for (std::size_t i = 0; i < sums.size() / 2; ++i) expect_near(sums[i + sums.size() / 2], sums[i], 1e-10);
    for (std::size_t i = 0; i < tensors.size() / 2; ++i)
      expect_near(tensors[i + tensors.size() / 2], tensors[i], 10 * tolerance());
  }
}

// A grid of blocks has at most 65,535 in a dimension.
TEST(FunctorParts, MayBeMoreThanAGridHasBlocks) {
  const Index samples = sanitized ? 257 : 65537;  // a sanitizer makes each change of threads slow
  const Box box(Shape{{'N', samples}, {'C', 1}, {'H', 1}}), vector(Shape{{'F', 1}});
  const Tensor x = Generator{3}.tensor(DType::f64, "NCH", box), y = x.like(box);
  const auto numbers = [&](Index count) {
    const Tensor zeros = norm_numbers(x, count, samples, 1, MemoryClass::workspace);
    zeros.zero({});
    return zeros;
  };
  const Tensor one(DType::f64, "F", vector), zero(DType::f64, "F", vector), statistics = numbers(3), sums = numbers(2);
  one.set(0, 1);
  for (Index i = 0; i < samples; ++i) statistics.set(2 * samples + i, 2);  // mean 0, 1 / deviation 2
  const auto emulated = make_emulated_backend();
  emulated->norm_forward(x, statistics, one, zero, false, y, {});
  for (Index i = 0; i < samples; ++i) ASSERT_EQ(y.get(i), 2 * x.get(i)) << i;
  if (!lengthy()) return;  // each thread waits at nine barriers: 15 seconds
  emulated->channel_gradient_sums(x, x, statistics, sums, {});
  for (Index i = 0; i < samples; ++i) ASSERT_EQ(sums.get(i), x.get(i)) << i;
}

TEST_P(Functors, CrossEntropyAndItsGradient) {
  for (const Box& box : boxes()) {
    SCOPED_TRACE(box.print());
    const Tensor x = random.tensor(dtype(), names_of(box), box);
    const Tensor labels = tensor(DType::i32, "F", Box(Shape{{'F', x.volume() / box.extent(1)}}));
    for (Index i = 0; i < labels.volume(); ++i) labels.set(i, static_cast<double>(random.draw(0, box.extent(1) - 1)));
    std::vector<Tensor> results, gradients;
    for (Backend* backend : {reference.get(), functors.get()}) {
      results.push_back(tensor(DType::f64, "F", Box(Shape{{'F', 2}})));
      gradients.push_back(x.like(box));
      test::cross_entropy(*backend, x, labels, 5, results.back());
      test::cross_entropy_gradient(*backend, x, labels, 0.75, gradients.back());
    }
    expect_near(results[1], results[0], tolerance());
    expect_near(gradients[1], gradients[0], tolerance());
  }
}

}  // namespace
}  // namespace partita::test::functors_test
