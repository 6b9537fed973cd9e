#include "src/train/run/update.hpp"

#include "partita/base/error.hpp"

#include <cmath>

namespace partita {

namespace {

/// A piece and the optimizer's constants in the type of the weights.
template <class T>
struct Numbers {
  Numbers(const Optimizer& o, Moment moment, const Piece& piece)
      : count(piece.count),
        dw(reinterpret_cast<const T*>(piece.dw)),
        w(reinterpret_cast<T*>(piece.w)),
        first(reinterpret_cast<T*>(piece.state[0])),
        second(reinterpret_cast<T*>(piece.state[1])),
        rate(static_cast<T>(moment.rate)),
        momentum(static_cast<T>(o.momentum)),
        beta1(static_cast<T>(o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        epsilon(static_cast<T>(o.epsilon)),
        decay(static_cast<T>(piece.decays ? o.weight_decay : 0)),
        correct1(static_cast<T>(1 / (1 - std::pow(o.beta1, static_cast<double>(moment.step + 1))))),
        correct2(static_cast<T>(1 / (1 - std::pow(o.beta2, static_cast<double>(moment.step + 1))))) {}

  /// Updates the running mean and mean square of element i with its gradient g.
  void advance(Index i, T g) const {
    first[i] = beta2 * first[i] + (1 - beta2) * g * g;
    second[i] = beta1 * second[i] + (1 - beta1) * g;
  }
  /// Returns Adam's direction for element i from these means.
  T direction(Index i) const { return correct1 * second[i] / (std::sqrt(correct2 * first[i]) + epsilon); }

  Index count;
  const T* dw;
  T *w, *first, *second;
  T rate, momentum, beta1, beta2, epsilon, decay, correct1, correct2;
};

template <class T>
void sgd(const Numbers<T>& n, bool nesterov) {
  for (Index i = 0; i < n.count; ++i) {
    const T g = n.dw[i] + n.decay * n.w[i];
    T direction = g;
    if (n.first != nullptr) {
      n.first[i] = n.momentum * n.first[i] + g;
      direction = nesterov ? g + n.momentum * n.first[i] : n.first[i];
    }
    n.w[i] -= n.rate * direction;
  }
}

template <class T>
void adagrad(const Numbers<T>& n) {
  for (Index i = 0; i < n.count; ++i) {
    const T g = n.dw[i] + n.decay * n.w[i];
    n.first[i] += g * g;
    n.w[i] -= n.rate * g / (std::sqrt(n.first[i]) + n.epsilon);
  }
}

template <class T>
void rmsprop(const Numbers<T>& n) {
  for (Index i = 0; i < n.count; ++i) {
    const T g = n.dw[i] + n.decay * n.w[i];
    n.first[i] = n.beta2 * n.first[i] + (1 - n.beta2) * g * g;
    T direction = g / (std::sqrt(n.first[i]) + n.epsilon);
    if (n.second != nullptr) direction = n.second[i] = n.momentum * n.second[i] + direction;
    n.w[i] -= n.rate * direction;
  }
}

template <class T>
void adam(const Numbers<T>& n) {
  for (Index i = 0; i < n.count; ++i) {
    n.advance(i, n.dw[i] + n.decay * n.w[i]);
    n.w[i] -= n.rate * n.direction(i);
  }
}

template <class T>
void adamw(const Numbers<T>& n) {
  for (Index i = 0; i < n.count; ++i) {
    n.advance(i, n.dw[i]);
    n.w[i] -= n.rate * (n.direction(i) + n.decay * n.w[i]);
  }
}

template <class T>
void lars(const Numbers<T>& n, T scale) {
  for (Index i = 0; i < n.count; ++i) {
    T step = scale * n.rate * (n.dw[i] + n.decay * n.w[i]);
    if (n.first != nullptr) step = n.first[i] = n.momentum * n.first[i] + step;
    n.w[i] -= step;
  }
}

template <class T>
void lamb(const Numbers<T>& n, T scale) {
  for (Index i = 0; i < n.count; ++i) n.w[i] -= scale * n.rate * (n.direction(i) + n.decay * n.w[i]);
}

template <class T>
void prepare(const Numbers<T>& n, Method method, Squares& squares) {
  for (Index i = 0; i < n.count; ++i) {
    T direction = n.dw[i];
    if (method == Method::lamb) {
      n.advance(i, n.dw[i]);
      direction = n.direction(i) + n.decay * n.w[i];
    }
    squares.w += static_cast<double>(n.w[i]) * static_cast<double>(n.w[i]);
    squares.direction += static_cast<double>(direction) * static_cast<double>(direction);
  }
}

template <class T>
void apply(const Numbers<T>& n, const Optimizer& optimizer, double scale) {
  switch (optimizer.method) {
    case Method::sgd: return sgd(n, optimizer.nesterov);
    case Method::adagrad: return adagrad(n);
    case Method::rmsprop: return rmsprop(n);
    case Method::adam: return adam(n);
    case Method::adamw: return adamw(n);
    case Method::lars: return lars(n, static_cast<T>(scale));
    case Method::lamb: return lamb(n, static_cast<T>(scale));
  }
  broken("unknown method");
}

}  // namespace

void prepare(const Optimizer& optimizer, Moment moment, const Piece& piece, Squares& squares) {
  if (piece.dtype == DType::f64) return prepare(Numbers<double>(optimizer, moment, piece), optimizer.method, squares);
  prepare(Numbers<float>(optimizer, moment, piece), optimizer.method, squares);
}

double scale(const Optimizer& optimizer, const Squares& squares) {
  const double w = std::sqrt(squares.w), direction = std::sqrt(squares.direction);
  if (w == 0 || direction == 0) return 1;
  if (optimizer.method == Method::lars) return optimizer.trust * w / (direction + optimizer.weight_decay * w);
  return w / direction;
}

void apply(const Optimizer& optimizer, Moment moment, const Piece& piece, double scale) {
  if (piece.dtype == DType::f64) return apply(Numbers<double>(optimizer, moment, piece), optimizer, scale);
  apply(Numbers<float>(optimizer, moment, piece), optimizer, scale);
}

}  // namespace partita
