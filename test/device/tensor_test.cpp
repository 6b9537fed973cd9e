#include "partita/device/tensor.hpp"

#include "test/support/error_of.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace partita::tensor_test {
namespace {

using At = std::array<Index, max_dims>;

/// Calls f(coordinates) for every element of `box`.
template <class F>
void for_coordinates(const Box& box, F&& f) {
  for (Index i = 0; i < box.volume(); ++i) {
    At at{};
    Index rest = i;
    for (int d = box.dims() - 1; d >= 0; rest /= box.extent(d), --d) at[d] = box[d].lo + rest % box.extent(d);
    f(at);
  }
}

/// A value that differs between neighboring coordinates and is exact in every floating-point type.
double value(const At& at) {
  return static_cast<double>((at[0] * 31 + at[1] * 17 + at[2] * 5 + at[3] * 3 + at[4]) % 97);
}

Tensor filled(DType dtype, std::string_view names, const Box& box) {
  Tensor tensor(dtype, names, box);
  for_coordinates(box, [&](const At& at) { tensor.set(tensor.offset(at), value(at)); });
  return tensor;
}

bool inside(const Box& box, const At& at) {
  for (int d = 0; d < box.dims(); ++d)
    if (at[d] < box[d].lo || at[d] >= box[d].hi) return false;
  return true;
}

Box make_box(std::initializer_list<Interval> sides) {
  Box box(static_cast<int>(sides.size()));
  int d = 0;
  for (const auto side : sides) box[d++] = side;
  return box;
}

/// Draws random intervals, boxes and dtypes.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed, hash_text("tensor_test")) {}
  Index below(Index n) { return static_cast<Index>(random_.bits(next_++)) % n; }
  /// Draws a box with extents from 0 (seldom) to 4, also at negative coordinates.
  Box box(int dims) {
    Box box(dims);
    for (int d = 0; d < dims; ++d) {
      const Index lo = below(3) - 1;
      box[d] = {lo, below(12) == 0 ? lo : lo + 1 + below(4)};
    }
    return box;
  }
  /// Draws a part of `whole`. It often covers a whole side, and it is sometimes empty.
  Box part(const Box& whole) {
    Box part = whole;
    for (int d = 0; d < whole.dims(); ++d) {
      if (below(2) == 0) continue;
      const Index lo = whole[d].lo + below(whole.extent(d) + 1);
      part[d] = {lo, lo + below(whole[d].hi - lo + 1)};
    }
    return part;
  }
  DType dtype() {
    constexpr std::array dtypes{DType::f64, DType::f32, DType::bf16, DType::f16};
    return dtypes[below(4)];
  }

 private:
  Random random_;
  Index next_ = 0;
};

const std::vector<std::string> all_names{"L", "NC", "FC", "CF", "NLC", "NCHW", "FCHW", "NDHW", "NCDHW", "FCDHW"};

TEST(Tensor, ChannelsVaryFastest) {
  const Tensor x(DType::f32, "NCHW", make_box({{0, 2}, {3, 6}, {1, 6}, {0, 7}}));
  EXPECT_EQ(x.stride(x.find('C')), 1);
  EXPECT_EQ(x.stride(x.find('W')), 3);
  EXPECT_EQ(x.stride(x.find('H')), 3 * 7);
  EXPECT_EQ(x.stride(x.find('N')), 3 * 7 * 5);
  EXPECT_EQ(x.bytes(), 2 * 3 * 5 * 7 * 4);
  EXPECT_EQ(x.offset({1, 4, 2, 3}), 105 + 1 + 21 + 9);
  EXPECT_EQ(x.extent('H'), 5);
  EXPECT_EQ(x.extent('D'), 1);
  EXPECT_EQ(x.find('F'), -1);
}

TEST(Tensor, WithoutChannelsTheLogicalOrderIsTheMemoryOrder) {
  const Tensor x(DType::f64, "NLV", make_box({{0, 2}, {0, 3}, {0, 5}}));
  EXPECT_EQ(x.stride(0), 15);
  EXPECT_EQ(x.stride(1), 5);
  EXPECT_EQ(x.stride(2), 1);
}

TEST(Tensor, OffsetsAreDense) {
  for (const auto& names : all_names) {
    Draw draw(hash_text(names));
    const Tensor x(DType::f32, names, draw.box(static_cast<int>(names.size())));
    std::vector<int> seen(static_cast<std::size_t>(x.volume()));
    for_coordinates(x.box(), [&](const At& at) { ++seen.at(static_cast<std::size_t>(x.offset(at))); });
    for (const int times : seen) EXPECT_EQ(times, 1) << names;
  }
}

TEST(Tensor, IsZeroAndAlignedWhenMade) {
  const Tensor x(DType::bf16, "NC", make_box({{0, 3}, {0, 5}}));
  for (Index i = 0; i < x.volume(); ++i) EXPECT_EQ(x.get(i), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data()) % 64, 0U);
}

TEST(Tensor, CopiesShareTheBuffer) {
  const Tensor x(DType::f32, "L", make_box({{0, 3}}));
  const Tensor y = x;
  x.set(1, 5);
  EXPECT_EQ(y.get(1), 5);
  y.zero({});
  EXPECT_EQ(x.get(1), 0);
  EXPECT_FALSE(Tensor());
  EXPECT_TRUE(x);
}

TEST(Tensor, RowsArePartsOfTheBuffer) {
  const Box box(Shape{{'N', 5}, {'C', 2}, {'W', 3}});
  const Tensor whole(DType::f32, "NCW", box);
  const Tensor part = whole.shifted(0, 10).rows({12, 14});
  EXPECT_EQ(part.box()[0], (Interval{12, 14}));
  EXPECT_EQ(part.volume(), 12);
  part.set(0, 7);
  part.set(11, 8);
  EXPECT_EQ(whole.get(12), 7);
  EXPECT_EQ(whole.get(23), 8);
  EXPECT_EQ(whole.rows({5, 5}).volume(), 0);
}

TEST(Tensor, LikeKeepsAllocatorAndClass) {
  const auto allocator = std::make_shared<Allocator>();
  const Tensor x(DType::f32, "NC", make_box({{0, 3}, {0, 5}}), allocator, MemoryClass::activations);
  const Tensor y = x.like(make_box({{0, 1}, {2, 4}})), z = x.like(x.box(), MemoryClass::halos);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.names(), "NC");
  EXPECT_GE(allocator->now()[MemoryClass::activations], x.bytes() + y.bytes());
  EXPECT_GE(allocator->now()[MemoryClass::halos], z.bytes());
}

TEST(Allocator, CountsWhatOthersAllocate) {
  const auto allocator = std::make_shared<Allocator>(1000);
  const auto buffer = Allocator::allocate(allocator, 300, MemoryClass::weights);
  {
    const auto counted = Allocator::account(allocator, 600, MemoryClass::data);
    EXPECT_EQ(allocator->now()[MemoryClass::data], 600);
    EXPECT_EQ(allocator->peak_total(), 900);
    EXPECT_THROW(Allocator::account(allocator, 101, MemoryClass::shared), Error);
    EXPECT_THROW(Allocator::allocate(allocator, 101, MemoryClass::weights), Error);
  }
  EXPECT_EQ(allocator->now().total(), 300);
  EXPECT_EQ(allocator->peak_total(), 900);
}

/// A buffer that was released and is used again counts like a new one.
TEST(Allocator, KeptBuffersCountTowardsTheLimit) {
  const auto allocator = std::make_shared<Allocator>(1000);
  const auto held = Allocator::allocate(allocator, 600, MemoryClass::weights);
  static_cast<void>(Allocator::allocate(allocator, 500, MemoryClass::workspace));  // not limited
  EXPECT_THROW(Allocator::allocate(allocator, 500, MemoryClass::activations), Error);
}

TEST(Allocator, KnowsWhetherItIsAsItWas) {
  const auto allocator = std::make_shared<Allocator>(1000);
  const auto make = [&](Index bytes) { return Allocator::allocate(allocator, bytes, MemoryClass::weights); };
  auto first = make(300);
  const Allocator::State one = allocator->state();
  auto second = make(300);
  EXPECT_NE(allocator->state().in_use, one.in_use);
  EXPECT_EQ(allocator->state().taken, one.taken + 1);
  second.reset();
  EXPECT_EQ(allocator->state().in_use, one.in_use);
  second = make(300);  // from kept memory
  EXPECT_EQ(allocator->state().taken, one.taken + 1);
  first.reset();
  EXPECT_NE(allocator->state().in_use, one.in_use) << "another buffer is in use, of the same size";
  second.reset();
  EXPECT_EQ(allocator->state().given_back, 0);
  make(900);
  EXPECT_EQ(allocator->state().given_back, 1) << "both kept buffers and 900 bytes exceed the limit";
}

TEST(ReleasedTensor, TakesItsMemoryAgainOrSharesIt) {
  const auto allocator = std::make_shared<Allocator>();
  const Box box(Shape{{'F', 3}});
  Tensor gone(DType::f64, "F", box, allocator, MemoryClass::gradients), held = gone.like(box);
  const auto* address = gone.data();
  const ReleasedTensor of_gone(gone), of_held(held), of_nothing{Tensor()};
  gone = {};
  EXPECT_EQ(allocator->now()[MemoryClass::gradients], 24);
  const Tensor again = of_gone.again();
  EXPECT_EQ(again.data(), address);
  EXPECT_EQ(again.box(), box);
  EXPECT_EQ(allocator->now()[MemoryClass::gradients], 48);
  EXPECT_EQ(of_held.again().data(), held.data());
  EXPECT_EQ(allocator->now()[MemoryClass::gradients], 48) << "it shares the memory that is held";
  EXPECT_FALSE(of_nothing.again());
}

TEST(Tensor, ConvertsIntoATensor) {
  const auto allocator = std::make_shared<Allocator>();
  const Tensor from(DType::f32, "F", make_box({{0, 3}}), allocator, MemoryClass::weights);
  const Tensor to(DType::bf16, "F", make_box({{0, 3}}), allocator, MemoryClass::weights);
  for (Index i = 0; i < 3; ++i) from.set(i, 1 + static_cast<double>(i) / 512);
  convert(from, to, {});
  const Tensor expected = convert(from, DType::bf16, {});
  for (Index i = 0; i < 3; ++i) EXPECT_EQ(to.get(i), expected.get(i));
}

/// Random tensors and parts of them. The expected content comes from loops over coordinates.
class TensorBoxes : public testing::TestWithParam<int> {
 protected:
  Draw draw{static_cast<std::uint64_t>(GetParam())};
  std::string names = all_names[draw.below(static_cast<Index>(all_names.size()))];
  int dims = static_cast<int>(names.size());
  DType dtype = draw.dtype();
};

TEST_P(TensorBoxes, PackWritesTheMemoryOrderOfThePart) {
  const Tensor x = filled(dtype, names, draw.box(dims));
  const Box part = draw.part(x.box());
  const Tensor packed(dtype, names, part);  // dense and in the same format, so pack must write exactly its buffer
  pack(x, part, packed.data(), {});
  for_coordinates(part, [&](const At& at) { EXPECT_EQ(packed.at(at), value(at)); });
}

TEST_P(TensorBoxes, UnpackWritesThePartOnly) {
  const Tensor x(dtype, names, draw.box(dims));
  const Box part = draw.part(x.box());
  const Tensor packed = filled(dtype, names, part);
  for (const bool adding : {false, true}) {
    for (Index i = 0; i < x.volume(); ++i) x.set(i, 3);
    adding ? unpack_add(packed.data(), part, x, {}) : unpack(packed.data(), part, x, {});
    for_coordinates(x.box(),
                    [&](const At& at) { EXPECT_EQ(x.at(at), inside(part, at) ? value(at) + (adding ? 3 : 0) : 3); });
  }
}

TEST_P(TensorBoxes, CopyAndAddTouchThePartOnly) {
  const Tensor from = filled(dtype, names, draw.box(dims));
  const Tensor to(dtype, names, draw.below(3) == 0 ? from.box() : draw.box(dims));
  const Box part = draw.part(intersect(from.box(), to.box()));
  for (const bool adding : {false, true}) {
    for (Index i = 0; i < to.volume(); ++i) to.set(i, 3);
    adding ? add_box(from, to, part, {}) : copy_box(from, to, part, {});
    for_coordinates(to.box(),
                    [&](const At& at) { EXPECT_EQ(to.at(at), inside(part, at) ? value(at) + (adding ? 3 : 0) : 3); });
  }
}

TEST_P(TensorBoxes, ExtractIsZeroOutside) {
  const Tensor from = filled(dtype, names, draw.box(dims));
  const Tensor to = extract(from, draw.box(dims), MemoryClass::halos, {});
  for_coordinates(to.box(), [&](const At& at) { EXPECT_EQ(to.at(at), inside(from.box(), at) ? value(at) : 0); });
}

TEST_P(TensorBoxes, AddIsElementwise) {
  const Tensor x = filled(dtype, names, draw.box(dims)), y = filled(dtype, names, x.box());
  add(x, y, {});
  for_coordinates(x.box(), [&](const At& at) { EXPECT_EQ(y.at(at), 2 * value(at)); });
}

TEST_P(TensorBoxes, ConvertKeepsBoxAndFormat) {
  const Tensor x = filled(dtype, names, draw.box(dims));
  const Tensor y = convert(x, draw.dtype(), {});
  EXPECT_EQ(y.box(), x.box());
  EXPECT_EQ(y.names(), x.names());
  for_coordinates(x.box(), [&](const At& at) { EXPECT_EQ(y.at(at), value(at)); });
}

INSTANTIATE_TEST_SUITE_P(Drawn, TensorBoxes, testing::Range(0, 100));

TEST(Convert, SharesTheBufferOfTheSameDtype) {
  const Tensor x(DType::f32, "L", make_box({{0, 2}}));
  EXPECT_EQ(convert(x, DType::f32, {}).data(), x.data());
  EXPECT_NE(convert(x, DType::f64, {}).data(), x.data());
}

TEST(Convert, RoundsToNearestEven) {
  const Tensor x(DType::f64, "L", make_box({{0, 3}}));
  x.set(0, 1 + 0x1p-8);         // halfway between 1 and 1 + 2^-7: rounds to 1, whose last bit is even
  x.set(1, 1 + 3 * 0x1p-8);     // halfway between 1 + 2^-7 and 1 + 2^-6: rounds to the latter
  x.set(2, -1 - 15 * 0x1p-10);  // rounds to the nearest value, -1 - 16 * 2^-10 = -1 - 2^-6
  const Tensor y = convert(x, DType::bf16, {});
  EXPECT_EQ(y.get(0), 1);
  EXPECT_EQ(y.get(1), 1 + 0x1p-6);
  EXPECT_EQ(y.get(2), -1 - 0x1p-6);
}

// Numbers within 2^-40 of the middle between two neighbors: a float would hold the middle, which rounds to even.
TEST(Convert, RoundsADoubleOnce) {
  for (const auto& [dtype, bits] : {std::pair{DType::bf16, 8}, {DType::f16, 11}}) {
    const Tensor wide(DType::f64, "C", Box(Shape{{'C', 3000}}));
    std::vector<double> right;
    const Random random(1, 1);
    for (Index i = 0; i < wide.volume(); ++i) {
      const double sign = i % 2 == 0 ? 1 : -1, leading = (1 + random.uniform(i)) * std::ldexp(1, bits - 1),
                   exact = i % 3 == 0 ? leading : std::floor(leading) + 0.5 + (i % 3 - 1.5) * 0x1p-40;
      const double unit = std::ldexp(1, static_cast<int>(i % 11) - 5 - bits);
      wide.set(i, sign * exact * unit);
      right.push_back(sign * std::nearbyint(exact) * unit);
    }
    const Tensor converted = convert(wide, dtype, {}), set = wide.like(dtype);
    for (Index i = 0; i < wide.volume(); ++i) {
      set.set(i, wide.get(i));
      ASSERT_EQ(converted.get(i), right[i]) << name(dtype) << " of " << wide.get(i);
      ASSERT_EQ(set.get(i), right[i]) << name(dtype) << " of " << wide.get(i);
    }
  }
}

TEST(Convert, KeepsIntegers) {
  const Tensor x(DType::i32, "N", make_box({{0, 2}}));
  x.set(0, -7);
  x.set(1, 123456789);
  EXPECT_EQ(convert(x, DType::f64, {}).get(0), -7);
  EXPECT_EQ(convert(convert(x, DType::f64, {}), DType::i32, {}).get(1), 123456789);
}

TEST(Allocator, RefusesToPassItsLimitButForWorkspace) {
  const auto allocator = std::make_shared<Allocator>(1000);
  const auto first = Allocator::allocate(allocator, 600, MemoryClass::activations);
  test::expect_error([&] { Allocator::allocate(allocator, 401, MemoryClass::halos); },
                     {"401 more bytes of halos", "1000"});
  EXPECT_NO_THROW(Allocator::allocate(allocator, 400, MemoryClass::halos));
  EXPECT_NO_THROW(Allocator::allocate(allocator, 900, MemoryClass::workspace));
}

TEST(TensorDeathTest, APartOutsideIsRefused) {
  const Tensor x(DType::f32, "L", make_box({{0, 2}}));
  std::array<std::byte, 64> out{};
  EXPECT_DEATH(pack(x, make_box({{1, 3}}), out.data(), {}), "the part must lie inside the tensor");
}

}  // namespace
}  // namespace partita::tensor_test
