// Adjoints of the linear layer by boxes: <x w', dy> = <x, dy w> = <w, dy' x>, exactly, since all numbers are small
// whole ones; w may hold more than x and y touch.
#include "partita/matmul/linear.hpp"
#include "support/adjoint.hpp"

#include <gtest/gtest.h>

#include <random>

namespace partita::test {
namespace {

Tensor whole_numbers(std::string_view names, const Box& box, std::mt19937_64& random) {
  const Tensor tensor(DType::f64, names, box);
  for (Index i = 0; i < tensor.volume(); ++i) tensor.set(i, static_cast<double>(random() % 7) - 3);
  return tensor;
}

/// A sub-interval of [0, n), which may be empty.
Interval part_of(Index n, std::mt19937_64& random) {
  const auto a = static_cast<Index>(random() % static_cast<std::uint64_t>(n + 1));
  const auto b = static_cast<Index>(random() % static_cast<std::uint64_t>(n + 1));
  return {std::min(a, b), std::max(a, b)};
}

TEST(Linear, IsTheAdjointOfItsBackwards) {
  const auto backend = make_reference_backend();
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Shape w_shape{{'F', 7}, {'C', 3}, {'H', 5}, {'W', 2}};
    Box x_box(Shape{{'N', 5}, {'C', 3}, {'H', 5}, {'W', 2}}), y_box(Shape{{'N', 5}, {'C', 7}});
    x_box[0] = y_box[0] = part_of(5, random);
    for (int d = 1; d < 4; ++d) x_box[d] = part_of(x_box[d].hi, random);
    y_box[1] = part_of(7, random);
    Box w_box(w_shape);
    if (seed % 2 == 0) {  // just what it takes
      w_box[0] = y_box[1];
      for (int d = 1; d < 4; ++d) w_box[d] = x_box[d];
    }
    const Tensor x = whole_numbers("NCHW", x_box, random), dy = whole_numbers("NC", y_box, random);
    const Tensor w = whole_numbers("FCHW", w_box, random);
    const Tensor y = dy.like(y_box), dx = x.like(x_box), dw = w.like(w_box);
    linear_forward(*backend, x, w, {}, false, y, {});
    linear_backward_data(*backend, dy, w, dx, {});
    fill(dw, w_shape, [](Index) { return 77; });
    linear_backward_filter(*backend, x, dy, dw, Write::over, {});
    EXPECT_EQ(inner_local(y, dy), inner_local(x, dx));
    EXPECT_EQ(inner_local(y, dy), inner_local(w, dw));
    linear_backward_filter(*backend, x, dy, dw, Write::add, {});
    EXPECT_EQ(2 * inner_local(y, dy), inner_local(w, dw));
  }
}

TEST(Linear, AddsTheBiasOnlyWhereItIsAsked) {
  const auto backend = make_reference_backend();
  std::mt19937_64 random(1);
  const Tensor x = whole_numbers("NC", Box(Shape{{'N', 2}, {'C', 3}}), random);
  const Tensor w = whole_numbers("FC", Box(Shape{{'F', 4}, {'C', 3}}), random);
  const Tensor bias = whole_numbers("F", Box(Shape{{'F', 4}}), random);
  const Tensor with(DType::f64, "NC", Box(Shape{{'N', 2}, {'C', 4}})), without = with.like(with.box());
  linear_forward(*backend, x, w, bias, true, with, {});
  linear_forward(*backend, x, w, bias, false, without, {});
  for (Index n = 0; n < 2; ++n)
    for (Index f = 0; f < 4; ++f) EXPECT_EQ(with.at({n, f}), without.at({n, f}) + bias.at({f}));
}

}  // namespace
}  // namespace partita::test
