// What the tests of partitioned layers share: parts of known tensors on thread ranks, and their comparison with whole
// arrays.
#pragma once

#include "partita/distconv/halo_exchange.hpp"

#include "test/support/adjoint.hpp"
#include "test/support/naive.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace partita::test {

/// The part in `box` of the tensor of small integers that `seed` stands for.
inline Tensor part_of(std::string_view names, const Shape& shape, const Box& box, std::uint64_t seed) {
  const Tensor tensor(DType::f64, names, box);
  fill(tensor, shape, [&](Index i) { return value(seed, i); });
  return tensor;
}

/// The extents of N C H W (or F C H W) as n c d h w.
inline naive::At extents_of(const Shape& shape) {
  return {shape.extent(0), shape.extent(1), 1, shape.extent(2), shape.extent(3)};
}

/// All of that tensor as an array.
inline naive::Array array_of(std::string_view names, const Shape& shape, std::uint64_t seed) {
  return naive::whole(part_of(names, shape, Box(shape), seed), extents_of(shape));
}

/// The windows over H and W as those over D, H and W.
inline naive::Windows three_windows(const std::vector<Window>& windows) { return {Window{}, windows[0], windows[1]}; }

/// The part has the array's elements. Sums of small integers are exact, so that `tolerance` can be 0.
inline void expect_part(const Tensor& part, const naive::Array& whole, std::string_view what, double tolerance = 0) {
  naive::for_elements(part, [&](const naive::At& at, Index i) {
    if (!(std::abs(part.get(i) - whole.get(at)) <= tolerance))
      ADD_FAILURE() << what << " is " << part.get(i) << ", not " << whole.get(at) << ", at n " << at[0] << " c "
                    << at[1] << " h " << at[3] << " w " << at[4];
  });
}

/// Sums a tensor that every rank has over the ranks that count.
inline void sum_parts(Communicator& comm, const Tensor& part, bool counts) {
  if (!counts) part.zero({});
  comm.all_reduce(part.data(), part.volume(), part.dtype(), ReduceOp::sum, {}).wait();
}

/// <a, b> over all ranks: of replicas the first one counts.
inline double inner_of(Communicator& comm, const Layout& layout, const Tensor& a, const Tensor& b) {
  return sum_over(comm, is_first(layout.grid(), comm.rank(), layout.replicated()) ? inner_local(a, b) : 0);
}

}  // namespace partita::test
