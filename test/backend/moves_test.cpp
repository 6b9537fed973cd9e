// The functors that move boxes on a GPU give the bits that the CPU's loops give.
#include "src/backend/gpu/functor_backend/moves.hpp"
#include "test/support/functors.hpp"
#include "test/support/host_launcher.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace partita::moves_test {
namespace {

constexpr Index elements = 2048;

/// Drawn numbers in every type. Some are infinite or NaN, some lie between two numbers of a shorter type.
Tensor drawn(DType dtype, std::mt19937_64& random) {
  const Tensor tensor = test::tensor(dtype, "F", Box(Shape{{'F', elements}}));
  std::normal_distribution<double> normal;
  for (Index i = 0; i < elements; ++i) {
    const double value = normal(random) * std::pow(2.0, static_cast<double>(random() % 40) - 20);
    tensor.set(i, dtype == DType::i32 ? static_cast<double>(random() % 2000001) - 1e6 : value);
  }
  if (dtype != DType::i32) {
    tensor.set(5, std::numeric_limits<double>::infinity());
    tensor.set(6, std::numeric_limits<double>::quiet_NaN());
  }
  return tensor;
}

/// A move of a drawn box between two tensors, from and to drawn places.
BoxMove drawn_move(const Tensor& from, const Tensor& to, Combine combine, std::mt19937_64& random) {
  BoxMove move{.from_type = from.dtype(), .to_type = to.dtype(), .combine = combine};
  Index reach_from = 1, reach_to = 1;
  for (int d = 0; d < static_cast<int>(random() % 5); ++d) {
    const Index extent = 1 + static_cast<Index>(random() % 4);
    const auto at = static_cast<std::size_t>(move.dims++);
    move.extent[at] = extent;
    move.from_stride[at] = reach_from + static_cast<Index>(random() % 2);
    move.to_stride[at] = reach_to + static_cast<Index>(random() % 2);
    reach_from = extent * move.from_stride[at];
    reach_to = extent * move.to_stride[at];
  }
  move.from = from.data() + static_cast<Index>(random() % 8) * size_of(from.dtype());
  move.to = to.data() + static_cast<Index>(random() % 8) * size_of(to.dtype());
  return move;
}

void move_on(test::Runner runner, std::span<const BoxMove> moves) {
  switch (runner) {
    case test::Runner::cpu: return run_moves(test::HostLauncher{}, moves, {});
    case test::Runner::emulated: return test::emulated_moves(moves);
    case test::Runner::card: return test::card()->move(moves, {});
  }
}

TEST(Moves, AreThoseOfTheCpuBitForBit) {
  std::mt19937_64 random(7);
  const std::array all{DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32};
  for (int round = 0; round < 400; ++round) {
    const DType from_type = all[random() % 5], to_type = all[random() % 5];
    const bool adds = to_type == DType::f32 && (from_type == DType::bf16 || from_type == DType::f16);
    const std::size_t ways = from_type == to_type ? 3 : adds ? 2 : 1;
    const Combine combine = std::array{Combine::replace, Combine::add, Combine::largest}[random() % ways];
    const bool overflows = to_type == DType::i32 && from_type != DType::i32;  // not defined for what is not finite
    const Tensor from = drawn(overflows ? DType::i32 : from_type, random), to = drawn(to_type, random);
    const Tensor other = to.like(to.box());
    std::memcpy(other.data(), to.data(), static_cast<std::size_t>(to.bytes()));
    const BoxMove move = drawn_move(from, to, combine, random);
    BoxMove same = move;
    same.to = other.data() + (static_cast<std::byte*>(move.to) - to.data());
    host_device().move({&move, 1}, {});
    const Tensor start = other.like(other.box());
    std::memcpy(start.data(), other.data(), static_cast<std::size_t>(to.bytes()));
    for (const test::Runner runner : test::runners()) {
      std::memcpy(other.data(), start.data(), static_cast<std::size_t>(to.bytes()));
      move_on(runner, {&same, 1});
      EXPECT_EQ(std::memcmp(to.data(), other.data(), static_cast<std::size_t>(to.bytes())), 0)
          << name(from.dtype()) << " to " << name(to_type) << ", combined as " << static_cast<int>(combine);
    }
  }
}

/// A move of rows between two tensors whose rows lie apart, as halos and parts of tensors do.
BoxMove drawn_rows(const Tensor& from, const Tensor& to, std::mt19937_64& random) {
  const Index whole = Index(1) << random() % 4;  // what extents and places are multiples of
  const auto multiple = [&](std::size_t most) { return whole * static_cast<Index>(random() % most); };
  BoxMove move{.from_type = from.dtype(), .to_type = to.dtype()};
  const Index row = whole + multiple(5);
  move.push(static_cast<Index>(1 + random() % 9), row + multiple(3), row + multiple(3));
  move.push(row, 1, 1);
  move.from = from.data() + multiple(4) * size_of(from.dtype());
  move.to = to.data() + multiple(4) * size_of(to.dtype());
  return move;
}

TEST(Moves, CopyRowsInUnitsOfAllSizes) {
  std::mt19937_64 random(11);
  std::map<std::size_t, int> moves_in_units;
  for (int round = 0; round < 400; ++round) {
    const DType dtype = std::array{DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32}[random() % 5];
    const Tensor from = drawn(dtype, random), expected = drawn(dtype, random);
    std::vector<BoxMove> moves;
    for (int i = 0; i < 5; ++i) moves.push_back(drawn_rows(from, expected, random));
    for (BoxMove wide : moves) ++moves_in_units[widen(wide)];
    const auto into_copy = [&](const auto& run) {
      const Tensor to = expected.like(expected.box());
      std::vector<BoxMove> same = moves;
      for (BoxMove& move : same) move.to = to.data() + (static_cast<std::byte*>(move.to) - expected.data());
      for (const BoxMove& move : same) run(std::span(&move, 1));  // they overlap, so that their order counts
      return to;
    };
    const Tensor to = into_copy([](std::span<const BoxMove> one) { host_device().move(one, {}); });
    for (const test::Runner runner : test::runners())
      EXPECT_EQ(std::memcmp(to.data(), into_copy([&](auto one) { move_on(runner, one); }).data(),
                            static_cast<std::size_t>(to.bytes())),
                0)
          << name(dtype);
  }
  for (const std::size_t bytes : {2, 4, 8, 16}) EXPECT_GT(moves_in_units[bytes], 100) << bytes;
}

/// Counts how often it starts a kernel.
struct CountingLauncher : test::HostLauncher {
  template <class F>
  void for_ragged(const Lengths& lengths, const F& f, Stream stream) const {
    ++*launches;
    HostLauncher::for_ragged(lengths, f, stream);
  }
  int* launches;
};

TEST(Moves, OfTheSameTypesShareALaunch) {
  const Tensor from = test::tensor(DType::f32, "F", Box(Shape{{'F', 100}})), to = from.like(from.box());
  const Tensor wide = from.like(DType::f64);
  for (Index i = 0; i < 100; ++i) from.set(i, static_cast<double>(i));
  std::vector<BoxMove> moves;
  for (Index i = 0; i < 70; ++i)
    moves.push_back(
        {.from = from.data() + 4 * i, .to = to.data() + 4 * i, .from_type = DType::f32, .to_type = DType::f32});
  for (Index i = 0; i < 5; ++i)
    moves.push_back({.from = from.data() + 4 * i, .to = wide.data() + 8 * i, .from_type = DType::f32});
  int launches = 0;
  CountingLauncher launch;
  launch.launches = &launches;
  run_moves(launch, moves, {});
  EXPECT_EQ(launches, 3 + 1);  // 70 moves in three batches, and the conversions
  for (Index i = 0; i < 100; ++i) EXPECT_EQ(to.get(i), i < 70 ? static_cast<double>(i) : 0);
  for (Index i = 0; i < 100; ++i) EXPECT_EQ(wide.get(i), i < 5 ? static_cast<double>(i) : 0);
}

}  // namespace
}  // namespace partita::moves_test
