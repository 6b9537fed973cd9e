#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/shape.hpp"
#include "src/backend/common/activation_functions.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

namespace partita {

/// y[row, c] += bias[c]
template <class T>
struct AddBias {
  using A = Accumulator<T>;
  Inputs<T> in;  // y
  T* out;
  const T* bias;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    return [added = static_cast<A>(bias[c])](Index /*row*/, T y) { return to_element<T>(static_cast<A>(y) + added); };
  }
};

/// The element itself.
template <class T>
struct ElementOf {
  Inputs<T> in;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*c*/) const {
    return [](Index /*row*/, T x) { return Sums<double, 1>{{static_cast<double>(x)}}; };
  }
};

/// db[c] = sum, or db[c] += sum
template <class T>
struct KeepBias {
  T* db;
  bool adds;
  PARTITA_HOST_DEVICE void operator()(Index /*part*/, Index c, const Sums<double, 1>& sum) const {
    db[c] = to_element<T>((adds ? static_cast<double>(db[c]) : 0.0) + sum.of[0]);
  }
};

/// y = a + b, or ReLU of it
template <class T, bool relu>
struct AddElements {
  using A = Accumulator<T>;
  Inputs<T, T> in;  // a, b
  T* out;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [](Index /*row*/, T a, T b) {
      const A value = static_cast<A>(a) + static_cast<A>(b);
      return to_element<T>(relu ? ActivationFunction<Activation::Kind::relu>::value(value, A(0)) : value);
    };
  }
};

/// y = f(x)
template <class T, class F>
struct Activate {
  using A = Accumulator<T>;
  Inputs<T> in;  // x
  T* out;
  A parameter;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [p = parameter](Index /*row*/, T x) { return to_element<T>(F::value(static_cast<A>(x), p)); };
  }
};

/// dx = f'(kept) * dy
template <class T, class F>
struct ActivateBackward {
  using A = Accumulator<T>;
  Inputs<T, T> in;  // kept, dy
  T* out;
  A parameter;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [p = parameter](Index /*row*/, T kept, T dy) {
      return to_element<T>(F::gradient(static_cast<A>(kept), static_cast<A>(dy), p));
    };
  }
};

/// The row-major index in a global shape of an element, given its number in memory.
struct GlobalIndex {
  int dims = 0;
  Index first = 0;                               // of the first element
  std::array<Index, max_dims> extent{}, step{};  // the slowest dimension in memory comes first

  PARTITA_HOST_DEVICE Index operator()(Index i) const {
    Index index = first;
    for (auto d = static_cast<std::size_t>(dims); d-- > 0; i /= extent[d]) index += i % extent[d] * step[d];
    return index;
  }
};

/// y = x / (1 - rate) or 0, and `added` more where `adds`. All elements are one row.
template <class T, bool adds>
struct DropElements {
  using A = Accumulator<T>;
  std::conditional_t<adds, Inputs<T, T>, Inputs<T>> in;  // x, added
  T* out;
  double rate;
  Random random;
  const double* step;
  Index first;
  GlobalIndex index;
  A keep;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index i) const {
    const Random numbers = random.at_step(static_cast<std::uint64_t>(*step));
    const A factor = numbers.uniform(first + index(i)) < rate ? A(0) : keep;
    if constexpr (adds)
      return [factor](Index /*row*/, T x, T added) {
        return to_element<T>(static_cast<A>(added) + factor * static_cast<A>(x));
      };
    else
      return [factor](Index /*row*/, T x) { return to_element<T>(factor * static_cast<A>(x)); };
  }
};

/// y = a * x, or a * x + b * y where `adds`.
template <class S, class T, bool adds>
struct Axpby {
  std::conditional_t<adds, Inputs<S, T>, Inputs<S>> in;  // x, y
  T* out;
  double a, b;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    if constexpr (adds)
      return [a = a, b = b](Index /*row*/, S x, T y) {
        return to_element<T>(a * static_cast<double>(x) + b * static_cast<double>(y));
      };
    else
      return [a = a](Index /*row*/, S x) { return to_element<T>(a * static_cast<double>(x)); };
  }
};

/// Writes numbers that lie in the arguments of the kernel itself.
struct Constants {
  static constexpr Index most = 64;
  double* to;
  std::array<double, most> values;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const { to[i] = values[i]; }
};

template <class T>
struct SquareOf {
  const T* x;
  PARTITA_HOST_DEVICE Sums<double, 1> operator()(Index /*group*/, Index i) const {
    const auto value = static_cast<double>(x[i]);
    return {{value * value}};
  }
};

struct AddTo {
  double* to;
  PARTITA_HOST_DEVICE void operator()(Index /*group*/, const Sums<double, 1>& sum) const { *to += sum.of[0]; }
};

}  // namespace partita
