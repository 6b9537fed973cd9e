#pragma once

#include "src/backend/cuda/launch_errors.hpp"
#include "src/backend/cuda/launcher.hpp"

#include <cuda_runtime.h>

#include <limits>

// How a GPU runs functors. Sums are formed in a fixed order, so that each run gives the same
// bits: a thread adds its elements one by one, a block adds its threads as a tree, and a second kernel adds the blocks.

namespace partita {

namespace cuda {

constexpr int threads = 256;      // of a block
constexpr int tile_columns = 32;  // of a block that adds up columns; its other threads share the rows
constexpr int tile_rows = threads / tile_columns;

/// Work is cut into at most this many blocks, whose threads then take several elements each.
constexpr Index most_blocks = 1 << 16;

inline unsigned blocks_for(Index work) {
  const Index blocks = (work + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

template <class I, class F>
__global__ void __launch_bounds__(threads) each_kernel(I count, I columns, F f) {
  const I step = static_cast<I>(gridDim.x) * threads;
  for (I i = static_cast<I>(blockIdx.x) * threads + threadIdx.x; i < count; i += step)
    f(static_cast<Index>(i / columns), static_cast<Index>(i % columns));
}

template <class F>
__global__ void __launch_bounds__(threads) ragged_kernel(Lengths lengths, F f) {
  const Index group = blockIdx.y, step = static_cast<Index>(gridDim.x) * threads;
  for (Index i = static_cast<Index>(blockIdx.x) * threads + threadIdx.x; i < lengths[group]; i += step) f(group, i);
}

/// Combines the values of all threads of a block in a fixed order. The first thread gets the result.
template <class V, class Combine>
__device__ V of_block(V mine, Combine combine) {
  __shared__ __align__(16) unsigned char memory[threads * sizeof(V)];
  V* all = reinterpret_cast<V*>(memory);
  all[threadIdx.x] = mine;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) combine(all[threadIdx.x], all[threadIdx.x + half]);
  }
  return all[threadIdx.x];
}

struct AddTo {
  template <class V>
  __device__ void operator()(V& to, const V& value) const {
    to += value;
  }
};

/// NaN counts as larger than every number.
struct LargerOf {
  __device__ void operator()(double& to, double value) const {
    if (value > to || value != value) to = value;
  }
};

/// A thread combines all values of a group: for groups with few values.
template <class V, class LengthOf, class Value, class Combine, class Finish>
__global__ void __launch_bounds__(threads)
    thread_kernel(Index groups, LengthOf length, V start, Value value, Combine combine, Finish finish) {
  const Index step = static_cast<Index>(gridDim.x) * threads;
  for (Index group = static_cast<Index>(blockIdx.x) * threads + threadIdx.x; group < groups; group += step) {
    V all = start;
    for (Index i = 0; i < length[group]; ++i) combine(all, value(group, i));
    finish(group, all);
  }
}

/// `count` blocks share a group. Each combines a part of its values, and keeps the result in `parts`; or it finishes,
/// if it is the only one.
template <class V, class LengthOf, class Value, class Combine, class Finish>
__global__ void __launch_bounds__(threads)
    group_kernel(Index count, LengthOf length, V start, Value value, Combine combine, Finish finish, V* parts) {
  const Index group = blockIdx.x / count, step = count * threads;
  V mine = start;
  for (Index i = blockIdx.x % count * threads + threadIdx.x; i < length[group]; i += step)
    combine(mine, value(group, i));
  mine = of_block(mine, combine);
  if (threadIdx.x != 0) return;
  if (parts == nullptr)
    finish(group, mine);
  else
    parts[blockIdx.x] = mine;
}

template <class V, class Combine, class Finish>
__global__ void finish_groups_kernel(Index groups, Index count, V start, Combine combine, Finish finish,
                                     const V* parts) {
  const Index step = static_cast<Index>(gridDim.x) * threads;
  for (Index group = static_cast<Index>(blockIdx.x) * threads + threadIdx.x; group < groups; group += step) {
    V all = start;
    for (Index i = 0; i < count; ++i) combine(all, parts[group * count + i]);
    finish(group, all);
  }
}

/// Adds up a stripe of the rows of 32 columns, which are neighbors in memory.
template <class V, class Value, class Finish>
__global__ void __launch_bounds__(threads)
    columns_kernel(Index rows, Index columns, Value value, Finish finish, V* parts) {
  __shared__ __align__(16) unsigned char memory[threads * sizeof(V)];
  V* all = reinterpret_cast<V*>(memory);
  const Index lane = threadIdx.x % tile_columns, first = threadIdx.x / tile_columns, part = blockIdx.z;
  const Index column = static_cast<Index>(blockIdx.x) * tile_columns + lane, stripes = gridDim.y;
  V mine{};
  if (column < columns)
    for (Index row = static_cast<Index>(blockIdx.y) * tile_rows + first; row < rows; row += stripes * tile_rows)
      mine += value(part, row, column);
  all[threadIdx.x] = mine;
  for (int half = tile_rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (first < half) all[threadIdx.x] += all[threadIdx.x + half * tile_columns];
  }
  if (first != 0 || column >= columns) return;
  if (parts == nullptr)
    finish(part, column, all[threadIdx.x]);
  else
    parts[(part * columns + column) * stripes + blockIdx.y] = all[threadIdx.x];
}

template <class V, class Finish>
__global__ void finish_columns_kernel(Index sums, Index columns, Index stripes, Finish finish, const V* parts) {
  const Index step = static_cast<Index>(gridDim.x) * threads;
  for (Index i = static_cast<Index>(blockIdx.x) * threads + threadIdx.x; i < sums; i += step) {
    V all{};
    for (Index stripe = 0; stripe < stripes; ++stripe) all += parts[i * stripes + stripe];
    finish(i / columns, i % columns, all);
  }
}

/// The same length for every group.
struct EqualLength {
  Index length;
  PARTITA_HOST_DEVICE Index operator[](Index) const { return length; }
};

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.native); }

inline Index longest(const Lengths& lengths) {
  Index longest = 0;
  for (Index group = 0; group < lengths.groups; ++group)
    if (lengths[group] > longest) longest = lengths[group];
  return longest;
}

}  // namespace cuda

/// Returns into how many blocks the elements of one sum are cut: so many that the GPU is full, that each thread has a
/// few elements, and that their sums fit into the room.
inline Index CudaLauncher::pieces(Index length, Index at_once, Index others, Index sums, std::size_t bytes) const {
  constexpr Index enough_blocks = 1024, elements_a_thread = 16;
  Index pieces = enough_blocks / (others > 0 ? others : 1);
  const Index useful = length / (at_once * elements_a_thread), fitting = bytes_ / (sums * static_cast<Index>(bytes));
  if (pieces > useful) pieces = useful;
  if (pieces > fitting) pieces = fitting;
  return pieces > 1 ? pieces : 1;
}

template <class F>
void CudaLauncher::for_each(Index rows, Index columns, const F& f, Stream stream) const {
  const Index count = rows * columns;
  if (count == 0) return;
  constexpr Index short_count = std::numeric_limits<std::int32_t>::max();  // 32-bit divisions are much faster
  if (count < short_count)
    cuda::each_kernel<<<cuda::blocks_for(count), cuda::threads, 0, cuda::native(stream)>>>(
        static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(columns), f);
  else
    cuda::each_kernel<<<cuda::blocks_for(count), cuda::threads, 0, cuda::native(stream)>>>(count, columns, f);
  cuda::check_launch();
}

template <class F>
void CudaLauncher::for_ragged(const Lengths& lengths, const F& f, Stream stream) const {
  static_assert(sizeof(Lengths) + sizeof(F) <= 32000, "a kernel's arguments must fit into 32 KiB");
  const Index longest = cuda::longest(lengths);
  if (longest == 0) return;
  const dim3 grid(cuda::blocks_for(longest), static_cast<unsigned>(lengths.groups));
  cuda::ragged_kernel<<<grid, cuda::threads, 0, cuda::native(stream)>>>(lengths, f);
  cuda::check_launch();
}

template <class V, class LengthOf, class Value, class Combine, class Finish>
void CudaLauncher::over_groups(Index groups, Index length, const LengthOf& of, V start, const Value& value,
                               const Combine& combine, const Finish& finish, Stream stream) const {
  constexpr Index few_values = 64;  // that one thread combines
  if (groups == 0) return;
  if (length <= few_values) {
    cuda::thread_kernel<<<cuda::blocks_for(groups), cuda::threads, 0, cuda::native(stream)>>>(groups, of, start, value,
                                                                                              combine, finish);
    return cuda::check_launch();
  }
  const Index count = pieces(length, cuda::threads, groups, groups, sizeof(V));
  cuda::check_count(groups * count, std::numeric_limits<std::int32_t>::max());
  V* room = count > 1 ? static_cast<V*>(room_) : nullptr;
  cuda::group_kernel<<<static_cast<unsigned>(groups * count), cuda::threads, 0, cuda::native(stream)>>>(
      count, of, start, value, combine, finish, room);
  cuda::check_launch();
  if (room == nullptr) return;
  cuda::finish_groups_kernel<<<cuda::blocks_for(groups), cuda::threads, 0, cuda::native(stream)>>>(
      groups, count, start, combine, finish, room);
  cuda::check_launch();
}

template <class A, std::size_t K, class Value, class Finish>
void CudaLauncher::reduce(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const {
  over_groups(groups, length, cuda::EqualLength{length}, Sums<A, K>{}, value, cuda::AddTo{}, finish, stream);
}

template <class A, std::size_t K, class Value, class Finish>
void CudaLauncher::reduce_ragged(const Lengths& lengths, const Value& value, const Finish& finish,
                                 Stream stream) const {
  over_groups(lengths.groups, cuda::longest(lengths), lengths, Sums<A, K>{}, value, cuda::AddTo{}, finish, stream);
}

template <class Value, class Finish>
void CudaLauncher::largest(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const {
  over_groups(groups, length, cuda::EqualLength{length}, -std::numeric_limits<double>::infinity(), value,
              cuda::LargerOf{}, finish, stream);
}

template <class A, std::size_t K, class Value, class Finish>
void CudaLauncher::reduce_columns(Index parts, Index rows, Index columns, const Value& value, const Finish& finish,
                                  Stream stream) const {
  using V = Sums<A, K>;
  constexpr Index most_parts = 65535;  // of a grid's third dimension
  const Index sums = parts * columns;
  if (sums == 0) return;
  cuda::check_count(parts, most_parts);
  const Index tiles = (columns + cuda::tile_columns - 1) / cuda::tile_columns;
  const Index stripes = pieces(rows, cuda::tile_rows, parts * tiles, sums, sizeof(V));
  V* room = stripes > 1 ? static_cast<V*>(room_) : nullptr;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(stripes), static_cast<unsigned>(parts));
  cuda::columns_kernel<<<grid, cuda::threads, 0, cuda::native(stream)>>>(rows, columns, value, finish, room);
  cuda::check_launch();
  if (room == nullptr) return;
  cuda::finish_columns_kernel<<<cuda::blocks_for(sums), cuda::threads, 0, cuda::native(stream)>>>(
      sums, columns, stripes, finish, room);
  cuda::check_launch();
}

}  // namespace partita
