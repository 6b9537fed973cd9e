#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/shape.hpp"
#include "src/backend/functors/activation_functions.hpp"
#include "src/backend/functors/launcher.hpp"

namespace partita {

// Rows are vectors of channels, which are the innermost dimension.

/// y[row, c] += bias[c]
template <class T>
struct AddBias {
  const T* bias;
  T* y;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    T& to = y[row * channels + c];
    to = static_cast<T>(static_cast<A>(to) + static_cast<A>(bias[c]));
  }
};

/// The element in a row and channel.
template <class T>
struct ElementOf {
  const T* x;
  Index channels;
  PARTITA_HOST_DEVICE Sums<double, 1> operator()(Index /*part*/, Index row, Index c) const {
    return {{static_cast<double>(x[row * channels + c])}};
  }
};

/// db[c] = sum, or db[c] += sum
template <class T>
struct KeepBias {
  T* db;
  bool adds;
  PARTITA_HOST_DEVICE void operator()(Index /*part*/, Index c, const Sums<double, 1>& sum) const {
    db[c] = static_cast<T>((adds ? static_cast<double>(db[c]) : 0.0) + sum.of[0]);
  }
};

/// y = f(x)
template <class T, class F>
struct Activate {
  using A = Accumulator<T>;
  const T* x;
  T* y;
  A parameter;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const {
    y[i] = static_cast<T>(F::value(static_cast<A>(x[i]), parameter));
  }
};

/// dx = f'(kept) * dy
template <class T, class F>
struct ActivateBackward {
  using A = Accumulator<T>;
  const T *kept, *dy;
  T* dx;
  A parameter;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const {
    dx[i] = static_cast<T>(F::gradient(static_cast<A>(kept[i]), static_cast<A>(dy[i]), parameter));
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

/// y = x / (1 - rate) or 0
template <class T>
struct DropElements {
  using A = Accumulator<T>;
  const T* x;
  T* y;
  double rate;
  Random random;
  const double* step;
  Index first;
  GlobalIndex index;
  A keep;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const {
    const Random numbers = random.at_step(static_cast<std::uint64_t>(*step));
    const A factor = numbers.uniform(first + index(i)) < rate ? A(0) : keep;
    y[i] = static_cast<T>(factor * static_cast<A>(x[i]));
  }
};

/// y = a * x + b * y
template <class S, class T>
struct Axpby {
  double a, b;
  const S* x;
  T* y;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const {
    const double first = a * static_cast<double>(x[i]);
    y[i] = static_cast<T>(b == 0 ? first : first + b * static_cast<double>(y[i]));
  }
};

/// Sets the mark to 1 if an element is NaN or infinite. Several calls may write the same number.
template <class T>
struct MarkNotFinite {
  const T* x;
  double* mark;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index i) const {
    const auto value = static_cast<double>(x[i]);
    if (!(value - value == 0)) *mark = 1;
  }
};

}  // namespace partita
