// Times attention alone: four heads of 64 channels of one sample, forward and backward, in the threads of one process.
// Prints the median seconds of a forward with its backward. bench/peers/compare.py compares them with PyTorch.
//   build/bench/attention PLACES causal|full THREADS SECONDS
#include "partita/backend/backend.hpp"
#include "src/system/clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

using namespace partita;

namespace {

constexpr Index head_count = 4, dim = 64, row = 3 * dim;  // a row has the query, the key and the value of a head

Index number(std::string_view text) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    fail("'{}' is no whole number above 0", text);
  return value;
}

/// A tensor of one sample with numbers between -1 and 1.
Tensor drawn(Index channels, Index places) {
  Box box(3);
  box[0] = {0, 1};
  box[1] = {0, channels};
  box[2] = {0, places};
  Tensor x(DType::f32, "NCL", box);
  std::uint32_t state = 1;
  for (Index i = 0; i < x.volume(); ++i) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    x.as<float>()[i] = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return x;
}

void measure(Index places, bool causal, int threads, double seconds) {
  const auto backend = make_backend("auto", DType::f32, threads);
  const HeadShape shape{head_count, 1, dim, 1 / std::sqrt(static_cast<double>(dim)), causal};
  const Tensor x = drawn(head_count * row, places), dx = x.like(x.box()), dy = drawn(head_count * dim, places),
               y = dy.like(dy.box()), log_sums = drawn(head_count, places);
  const auto part = [](const Tensor& of, Index which) { return Heads{of, which * dim, row}; };
  std::vector<double> times;
  const double first = now();
  for (bool warm = false; times.size() < 5 || now() - first < seconds; warm = true) {
    const double start = now();
    backend->attention_forward(shape, part(x, 0), part(x, 1), part(x, 2), y, log_sums, Write::over, {});
    backend->attention_backward(shape, part(x, 0), part(x, 1), part(x, 2), y, dy, log_sums, part(dx, 0), part(dx, 1),
                                part(dx, 2), Write::over, {});
    if (warm) times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  fmt::print("{:.6e}\n", times[times.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) fail("usage: attention PLACES causal|full THREADS SECONDS");
    const std::string_view mask = argv[2];
    if (mask != "causal" && mask != "full") fail("'{}' is neither causal nor full", mask);
    measure(number(argv[1]), mask == "causal", static_cast<int>(number(argv[3])), static_cast<double>(number(argv[4])));
  } catch (const Error& error) {
    fmt::print(stderr, "attention: {}\n", error.what());
    return 2;
  }
  return 0;
}
