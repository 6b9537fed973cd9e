// Compares every method of the optimizer with its paper's formulas, one number at a time.
#include "test/support/functors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace partita::update_test {
namespace {

constexpr std::size_t elements = 5;

Optimizer optimizer_of(Method method) {
  return {.method = method,
          .momentum = 0.8,
          .beta1 = 0.7,
          .beta2 = 0.9,
          .epsilon = 1e-3,
          .trust = 0.02,
          .weight_decay = 0.1};
}

/// One weight of a few elements, updated by plain formulas.
class Plain {
 public:
  explicit Plain(std::vector<double> w) : w_(std::move(w)) {}

  void step(const Optimizer& o, double rate, int t, const std::vector<double>& dw) {
    std::vector<double> direction(elements);
    double squares_w = 0, squares_g = 0, squares_direction = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      const bool decoupled = o.method == Method::adamw || o.method == Method::lamb;
      const double g = dw[i] + (decoupled ? 0 : o.weight_decay * w_[i]);
      s_[i] = o.method == Method::adagrad ? s_[i] + g * g : o.beta2 * s_[i] + (1 - o.beta2) * g * g;
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      const double mean = m_[i] / (1 - std::pow(o.beta1, t)), square = s_[i] / (1 - std::pow(o.beta2, t));
      const double adam = mean / (std::sqrt(square) + o.epsilon), root = g / (std::sqrt(s_[i]) + o.epsilon);
      direction[i] = o.method == Method::sgd || o.method == Method::lars          ? g
                     : o.method == Method::adagrad || o.method == Method::rmsprop ? root
                                                                                  : adam;
      if (decoupled) direction[i] += o.weight_decay * w_[i];
      squares_w += w_[i] * w_[i];
      squares_g += dw[i] * dw[i];
      squares_direction += direction[i] * direction[i];
    }
    double factor = 1;
    if (o.method == Method::lamb) factor = std::sqrt(squares_w) / std::sqrt(squares_direction);
    if (o.method == Method::lars)
      factor = o.trust * std::sqrt(squares_w) / (std::sqrt(squares_g) + o.weight_decay * std::sqrt(squares_w));
    for (std::size_t i = 0; i < elements; ++i) {
      double move = factor * direction[i] * (o.method == Method::lars ? rate : 1);
      if (o.method == Method::sgd || o.method == Method::rmsprop || o.method == Method::lars) {
        v_[i] = o.momentum * v_[i] + move;
        move = o.nesterov ? move + o.momentum * v_[i] : v_[i];
      }
      w_[i] -= (o.method == Method::lars ? 1 : rate) * move;
    }
  }
  const std::vector<double>& w() const { return w_; }

 private:
  std::vector<double> w_, v_ = std::vector<double>(elements), m_ = v_, s_ = v_;
};

/// Numbers in memory that a backend can access.
template <class T>
class Numbers {
 public:
  explicit Numbers(const std::vector<T>& values)
      : tensor_(test::tensor(sizeof(T) == 8 ? DType::f64 : DType::f32, "F",
                             Box(Shape{{'F', static_cast<Index>(values.size())}}))) {
    std::copy(values.begin(), values.end(), tensor_.as<T>());
  }
  std::byte* at(std::size_t i) const { return reinterpret_cast<std::byte*>(tensor_.as<T>() + i); }
  void read(std::vector<T>& values) const { std::copy_n(tensor_.as<T>(), values.size(), values.begin()); }

 private:
  Tensor tensor_;
};

/// A step of one weight in two pieces, as two ranks that share it would take it: the squares of both are added.
template <class T>
void step(Backend& backend, const Optimizer& o, double rate, int t, const std::vector<T>& dw, std::vector<T>& w,
          std::vector<T> (&state)[2]) {
  const std::size_t states = o.states().size();
  const Numbers<T> of_dw(dw), of_w(w);
  const std::array of_state{Numbers<T>(state[0]), Numbers<T>(state[1])};
  std::vector<WeightPiece> pieces;
  for (const auto& [lo, hi] : {std::pair<std::size_t, std::size_t>{0, 2}, {2, elements}}) {
    WeightPiece piece{.dtype = sizeof(T) == 8 ? DType::f64 : DType::f32, .count = static_cast<Index>(hi - lo)};
    piece.dw = of_dw.at(lo);
    piece.w = of_w.at(lo);
    for (std::size_t k = 0; k < states; ++k) piece.state[k] = of_state[k].at(lo);
    pieces.push_back(piece);
  }
  Tensor squares;
  if (o.needs_norms()) {
    squares = test::tensor(DType::f64, "NC", Box(Shape{{'N', 2}, {'C', 2}}));
    backend.update_norms(o, {rate, t - 1}, pieces, squares, {});
    for (Index i = 0; i < 2; ++i) {
      const double both = squares.get(i) + squares.get(i + 2);
      squares.set(i, both);
      squares.set(i + 2, both);
    }
  }
  backend.update(o, {rate, t - 1}, pieces, squares, {});
  of_w.read(w);
  for (std::size_t k = 0; k < 2; ++k) of_state[k].read(state[k]);
}

template <class T>
void expect_formulas(Backend& backend, const Optimizer& o, double tolerance) {
  SCOPED_TRACE(fmt::format("{} by {}", o.print(), backend.name()));
  Plain plain({0.5, -1, 2, 0, 0.25});
  std::vector<T> w(plain.w().begin(), plain.w().end()), state[2] = {std::vector<T>(elements), std::vector<T>(elements)};
  for (int t = 1; t <= 4; ++t) {
    std::vector<double> dw;
    for (std::size_t i = 0; i < elements; ++i)
      dw.push_back(std::sin(static_cast<double>(t) + 2.0 * static_cast<double>(i)));
    const double rate = 0.1 / t;
    plain.step(o, rate, t, dw);
    step(backend, o, rate, t, std::vector<T>(dw.begin(), dw.end()), w, state);
    for (std::size_t i = 0; i < elements; ++i)
      EXPECT_NEAR(static_cast<double>(w[i]), plain.w()[i], tolerance) << "element " << i << " after step " << t;
  }
}

TEST(Update, FollowsThePapers) {
  for (const auto& backend : test::all_types()) {
    for (const Method method :
         {Method::sgd, Method::adagrad, Method::rmsprop, Method::adam, Method::adamw, Method::lars, Method::lamb}) {
      Optimizer o = optimizer_of(method);
      expect_formulas<double>(*backend, o, 1e-14);
      expect_formulas<float>(*backend, o, 1e-6);
      o.momentum = 0;
      expect_formulas<double>(*backend, o, 1e-14);
    }
    Optimizer nesterov = optimizer_of(Method::sgd);
    nesterov.nesterov = true;
    expect_formulas<double>(*backend, nesterov, 1e-14);
  }
}

TEST(Update, RoundsTheCopyThatKernelsRead) {
  for (const auto& backend : test::all_types())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(fmt::format("{} by {}", name(dtype), backend->name()));
      const Box box(Shape{{'F', 5}});
      const Tensor w = test::tensor(DType::f32, "F", box), dw = w.like(box), rounded = test::tensor(dtype, "F", box);
      for (Index i = 0; i < 5; ++i) {
        w.set(i, 0.1 * static_cast<double>(i));
        dw.set(i, 1.0 / 3);
        rounded.set(i, -1);
      }
      Optimizer o = optimizer_of(Method::sgd);
      o.momentum = 0;
      WeightPiece piece{.dtype = DType::f32, .count = 3};  // of elements 1 to 3
      piece.dw = dw.data() + sizeof(float);
      piece.w = w.data() + sizeof(float);
      piece.rounded = rounded.data() + size_of(dtype);
      piece.rounded_type = dtype;
      backend->update(o, {0.5, 0}, {&piece, 1}, {}, {});
      const Tensor expected = convert(w, dtype, {});
      for (Index i = 0; i < 5; ++i) EXPECT_EQ(rounded.get(i), i == 0 || i == 4 ? -1 : expected.get(i));
    }
}

/// Returns how far a step of rate 1 moves a weight of 0 with gradient 3, given these squares.
double moved(Backend& backend, Method method, bool decays, double squares_w, double squares_direction,
             double weight_decay = 0) {
  Optimizer o = optimizer_of(method);
  o.weight_decay = weight_decay;
  o.momentum = 0;
  std::vector<double> w{0};
  const Numbers<double> of_w(w), dw({3}), first({3}), second({3});
  const Tensor squares = test::tensor(DType::f64, "NC", Box(Shape{{'N', 1}, {'C', 2}}));
  squares.set(0, squares_w);
  squares.set(1, squares_direction);
  WeightPiece piece{.count = 1, .decays = decays};
  piece.dw = dw.at(0);
  piece.w = of_w.at(0);
  piece.state = {first.at(0), second.at(0)};
  backend.update(o, {1, 0}, {&piece, 1}, squares, {});
  of_w.read(w);
  return -w[0];
}

TEST(Update, AWeightOfNormZeroIsNotScaled) {
  for (const auto& backend : test::all_types())
    for (const Method method : {Method::lars, Method::lamb}) {
      const double whole = moved(*backend, method, false, 4, 16);  // what does not decay is not scaled
      EXPECT_GT(whole, 0);
      EXPECT_EQ(moved(*backend, method, true, 0, 4), whole);
      EXPECT_EQ(moved(*backend, method, true, 4, 0), whole);
      EXPECT_EQ(moved(*backend, method, true, 4, 0, 0.5), whole);  // the formula of the paper gives trust/decay
      const double scale = method == Method::lars ? 0.02 * 2 / 4 : 0.5;
      EXPECT_NEAR(moved(*backend, method, true, 4, 16), scale * whole, 1e-15);
    }
}

}  // namespace
}  // namespace partita::update_test
