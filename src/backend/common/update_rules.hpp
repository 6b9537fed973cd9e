#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/optimizer.hpp"

#include <Eigen/Core>

#include <cmath>
#include <cstddef>

namespace partita {

/// Sums of squares over the elements of one weight.
struct Squares {
  double w = 0, direction = 0;
};

/// Returns the factor of the step for one weight; 1 if a norm is zero.
PARTITA_HOST_DEVICE inline double update_scale(const Optimizer& optimizer, const Squares& squares) {
  const double w = std::sqrt(squares.w), direction = std::sqrt(squares.direction);
  if (w == 0 || direction == 0) return 1;
  if (optimizer.method == Method::lars) return optimizer.trust * w / (direction + optimizer.weight_decay * w);
  return w / direction;
}

/// The update of one element of a weight (Method gives the formulas). The constants are in the type of the weights.
template <class T>
struct UpdateRule {
  UpdateRule(const Optimizer& o, StepRate at)
      : nesterov(o.nesterov),
        rate(static_cast<T>(at.rate)),
        momentum(static_cast<T>(o.momentum)),
        beta1(static_cast<T>(o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        epsilon(static_cast<T>(o.epsilon)),
        decay(static_cast<T>(o.weight_decay)),
        correct1(static_cast<T>(1 / (1 - std::pow(o.beta1, static_cast<double>(at.step + 1))))),
        correct2(static_cast<T>(1 / (1 - std::pow(o.beta2, static_cast<double>(at.step + 1))))) {}

  /// One element: its gradient, its weight and the states that the method has; and whether it decays.
  struct Element {
    const T& dw;
    T &w, *first, *second;
    T decay;
  };

  template <Method method>
  PARTITA_HOST_DEVICE void apply(const Element& e, T scale) const {
    if constexpr (method == Method::sgd) {
      const T g = e.dw + e.decay * e.w;
      T step = g;
      if (e.first != nullptr) {
        *e.first = momentum * *e.first + g;
        step = nesterov ? g + momentum * *e.first : *e.first;
      }
      e.w -= rate * step;
    } else if constexpr (method == Method::adagrad) {
      const T g = e.dw + e.decay * e.w;
      *e.first += g * g;
      e.w -= rate * g / (std::sqrt(*e.first) + epsilon);
    } else if constexpr (method == Method::rmsprop) {
      const T g = e.dw + e.decay * e.w;
      *e.first = beta2 * *e.first + (1 - beta2) * g * g;
      T step = g / (std::sqrt(*e.first) + epsilon);
      if (e.second != nullptr) step = *e.second = momentum * *e.second + step;
      e.w -= rate * step;
    } else if constexpr (method == Method::adam) {
      advance(e, e.dw + e.decay * e.w);
      e.w -= rate * direction(e);
    } else if constexpr (method == Method::adamw) {
      advance(e, e.dw);
      e.w -= rate * (direction(e) + e.decay * e.w);
    } else if constexpr (method == Method::lars) {
      T step = scale * rate * (e.dw + e.decay * e.w);
      if (e.first != nullptr) step = *e.first = momentum * *e.first + step;
      e.w -= step;
    } else {
      e.w -= scale * rate * (direction(e) + e.decay * e.w);
    }
  }

  /// Advances LAMB's states, and returns the squares of w and of the direction.
  template <Method method>
  PARTITA_HOST_DEVICE Squares norms(const Element& e) const {
    T step = e.dw;
    if constexpr (method == Method::lamb) {
      advance(e, e.dw);
      step = direction(e) + e.decay * e.w;
    }
    return {static_cast<double>(e.w) * static_cast<double>(e.w), static_cast<double>(step) * static_cast<double>(step)};
  }

  bool nesterov;
  T rate, momentum, beta1, beta2, epsilon, decay, correct1, correct2;

 private:
  /// Updates the running mean and mean square of an element with its gradient g.
  PARTITA_HOST_DEVICE void advance(const Element& e, T g) const {
    *e.first = beta2 * *e.first + (1 - beta2) * g * g;
    *e.second = beta1 * *e.second + (1 - beta1) * g;
  }
  /// Returns Adam's direction for an element from these means.
  PARTITA_HOST_DEVICE T direction(const Element& e) const {
    return correct1 * *e.second / (std::sqrt(correct2 * *e.first) + epsilon);
  }
};

/// The arrays of a piece of a weight, in its type.
template <class T>
struct UpdateArrays {
  const T* dw = nullptr;
  T *w = nullptr, *first = nullptr, *second = nullptr;
  T decay = 0;
  std::byte* rounded = nullptr;  // a copy of w in a shorter type; null: none
  bool to_half = false;          // that type is f16, else bf16

  /// Writes the copy of element i.
  PARTITA_HOST_DEVICE void round(Index i) const {
    if (rounded == nullptr) return;
    if (to_half)
      reinterpret_cast<Eigen::half*>(rounded)[i] = static_cast<Eigen::half>(w[i]);
    else
      reinterpret_cast<Eigen::bfloat16*>(rounded)[i] = static_cast<Eigen::bfloat16>(w[i]);
  }
  PARTITA_HOST_DEVICE typename UpdateRule<T>::Element operator[](Index i) const {
    return {dw[i], w[i], first == nullptr ? nullptr : first + i, second == nullptr ? nullptr : second + i, decay};
  }
};

}  // namespace partita
