#pragma once

#include "src/backend/gpu/cuda/launch_errors.hpp"
#include "src/backend/gpu/cuda/launcher.hpp"
#include "src/backend/gpu/cuda/packs.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

// How a GPU runs functors. Sums are formed in a fixed order, so that each run gives the same bits: a thread adds its
// elements one by one, a block adds its threads as a tree, and the block that ends last adds the blocks.

namespace partita {

namespace cuda {

constexpr int threads = 256;  // of a block

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

/// A block is a tile of `lanes` packs of columns and threads / lanes rows. It moves down a stripe of the rows.
struct Tile {
  unsigned lanes;
  Index stripes;
  __device__ Index column(int P) const { return (static_cast<Index>(blockIdx.x) * lanes + threadIdx.x % lanes) * P; }
  __device__ unsigned first() const { return threadIdx.x / lanes; }  // the thread's row in the tile
  __device__ unsigned rows() const { return threads / lanes; }
  __device__ Index row() const { return static_cast<Index>(blockIdx.y) * rows() + first(); }
  __device__ Index step() const { return stripes * rows(); }
};

template <int P, class F>
__global__ void __launch_bounds__(threads) elements_kernel(Stack size, Tile tile, F f) {
  const Index column = tile.column(P);
  if (column + P <= size.columns)
    for (Index part = blockIdx.z; part < size.parts; part += gridDim.z) {
      const auto g = columns_of<P>(f, part, column);
      if constexpr (HasOnce<F>)
        for (int k = 0; tile.row() == 0 && k < P; ++k) f.once(part, column + k);
      const Index step = tile.step();
      Index at = size.offset(part, tile.row(), column);  // multiplied once: 64-bit products take several instructions
      for (Index row = tile.row(); row < size.rows; row += step, at += step * size.columns) {
        Pack<Out<F>, P> out;
        for_values(f, g, row, at, [&](int k, const Out<F>& value) { out.of[k] = value; });
        out.store(f.out + at);
      }
    }
  else if (tile.row() == 0)  // the end of a single row
#pragma unroll 1
    for (Index c = column; c < size.columns; ++c) {
      if constexpr (HasOnce<F>) f.once(0, c);
      f.out[c] = value_at(f, f.column(0, c), 0, c);
    }
}

/// The first block of each group; a block takes `elements` elements of one group.
struct GroupBlocks {
  static constexpr unsigned elements = 4 * threads;
  std::array<unsigned, Lengths::most + 1> first{};
};

template <class I, class F>
__global__ void __launch_bounds__(threads) ragged_kernel(Lengths lengths, GroupBlocks blocks, F f) {
  std::size_t group = 0;
  while (blockIdx.x >= blocks.first[group + 1]) ++group;
  const auto length = static_cast<I>(lengths.length[group]);
  const I first = static_cast<I>(blockIdx.x - blocks.first[group]) * GroupBlocks::elements + threadIdx.x;
#pragma unroll
  for (unsigned k = 0; k < GroupBlocks::elements / threads; ++k)
    if (const I i = first + static_cast<I>(k * threads); i < length) f(static_cast<Index>(group), i);
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

/// The sums of the blocks that share a result, in memory of the GPU. The block that ends last combines them
/// ("threadFenceReduction" in NVIDIA's samples). `arrived` counts blocks for each result; it is 0 before and after.
template <class V>
struct Shares {
  unsigned* arrived;
  V* of;

  /// Called by all threads of a block that have kept their shares. Returns true on the last of `blocks` blocks.
  __device__ bool all_arrived(Index result, unsigned blocks) const {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(arrived + result, blocks - 1) == blocks - 1;
    __syncthreads();
    __threadfence();
    return last;
  }
};

/// Reads what another block has written, past the caches that may hold what was there before.
__device__ inline double fresh(const double* from) { return __ldcg(from); }
template <class A, std::size_t K>
__device__ Sums<A, K> fresh(const Sums<A, K>* from) {
  Sums<A, K> sums;
  for (std::size_t k = 0; k < K; ++k) sums.of[k] = __ldcg(&from->of[k]);
  return sums;
}

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

/// `count` blocks share a group. Each combines a part of its values.
template <class V, class LengthOf, class Value, class Combine, class Finish>
__global__ void __launch_bounds__(threads)
    group_kernel(Index count, LengthOf length, V start, Value value, Combine combine, Finish finish, Shares<V> shares) {
  const Index group = blockIdx.x / count, step = count * threads;
  V mine = start;
  for (Index i = blockIdx.x % count * threads + threadIdx.x; i < length[group]; i += step)
    combine(mine, value(group, i));
  mine = of_block(mine, combine);
  if (count > 1) {
    if (threadIdx.x == 0) shares.of[blockIdx.x] = mine;
    if (!shares.all_arrived(group, static_cast<unsigned>(count))) return;
    mine = start;
    for (Index i = threadIdx.x; i < count; i += threads) combine(mine, fresh(shares.of + group * count + i));
    mine = of_block(mine, combine);
  }
  if (threadIdx.x == 0) finish(group, mine);
}

/// Adds up stripes of the rows of columns, which are neighbors in memory.
template <int P, class V, class Value, class Finish>
__global__ void __launch_bounds__(threads)
    columns_kernel(Stack size, Tile tile, Value value, Finish finish, Shares<V> shares) {
  __shared__ __align__(16) unsigned char memory[threads * sizeof(V) * P];
  V* all = reinterpret_cast<V*>(memory);
  const Index column = tile.column(P);
  for (Index part = blockIdx.z; part < size.parts; part += gridDim.z) {
    V mine[P]{};
    if (column < size.columns) {
      const auto g = columns_of<P>(value, part, column);
      const Index step = tile.step(), stride = step * size.columns;
      Index row = tile.row(), at = size.offset(part, row, column);
      const auto add = [&](int i) {
        for_values(value, g, row + i * step, at + i * stride, [&](int k, const V& sum) { mine[k] += sum; });
      };
      constexpr int at_once = 4;  // rows, whose loads wait together
      for (; row + (at_once - 1) * step < size.rows; row += at_once * step, at += at_once * stride) {
#pragma unroll
        for (int i = 0; i < at_once; ++i) add(i);
      }
      for (; row < size.rows; row += step, at += stride) add(0);
    }
    const auto add_rows_of_tile = [&] {
      for (int k = 0; k < P; ++k) all[threadIdx.x + k * threads] = mine[k];
      for (unsigned half = tile.rows() / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tile.first() < half)
          for (int k = 0; k < P; ++k) {
            V* sum = all + threadIdx.x + k * threads;
            *sum += sum[half * tile.lanes];
          }
      }
    };
    add_rows_of_tile();
    const bool has_sum = tile.first() == 0 && column < size.columns;
    bool ends = true;
    if (tile.stripes > 1) {
      const auto share = [&](Index stripe, int k) {
        return shares.of + (part * tile.stripes + stripe) * size.columns + column + k;
      };
      for (int k = 0; has_sum && k < P; ++k) *share(blockIdx.y, k) = all[threadIdx.x + k * threads];
      ends = shares.all_arrived(part * gridDim.x + blockIdx.x, static_cast<unsigned>(tile.stripes));
      if (ends) {  // the threads take the stripes in turns
        for (int k = 0; k < P; ++k) {
          mine[k] = V{};
          for (Index stripe = tile.first(); column < size.columns && stripe < tile.stripes; stripe += tile.rows())
            mine[k] += fresh(share(stripe, k));
        }
        add_rows_of_tile();
      }
    }
    for (int k = 0; ends && has_sum && k < P; ++k) finish(part, column + k, all[threadIdx.x + k * threads]);
    __syncthreads();
  }
}

/// The same length for every group.
struct EqualLength {
  Index length;
  PARTITA_HOST_DEVICE Index operator[](Index) const { return length; }
};

/// Starts a kernel. Its arguments, some of which have thousands of bytes, are copied only by the driver.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, Stream stream,
            const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  check_launch(cudaLaunchKernel(kernel, grid, dim3(threads), pointers, 0, static_cast<cudaStream_t>(stream.native)));
}

/// The most blocks in a dimension of a grid.
constexpr Index most_x = std::numeric_limits<std::int32_t>::max(), most_y = 65535, most_z = 65535;

/// Returns a grid; blocks share the parts where there are more than a grid may have.
inline dim3 grid_of(Index tiles, Index stripes, Index parts) {
  check_count(tiles, most_x);
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(stripes), static_cast<unsigned>(std::min(parts, most_z))};
}

/// The lanes of a tile: a power of two, so that they divide the threads.
inline unsigned lanes_for(Index packs, unsigned most) {
  return packs >= static_cast<Index>(most) ? most : std::bit_ceil(static_cast<unsigned>(packs));
}

inline Index longest(const Lengths& lengths) {
  Index longest = 0;
  for (Index group = 0; group < lengths.groups; ++group)
    if (lengths[group] > longest) longest = lengths[group];
  return longest;
}

}  // namespace cuda

/// Returns into how many blocks the elements of one result are cut: so many that the GPU is full, that each thread has a
/// few elements, and that their sums fit into the room. `results` are independent of each other, and have `sums` sums of
/// `bytes` bytes.
inline Index CudaLauncher::pieces(Index length, Index at_once, Index results, Index sums, std::size_t bytes) const {
  constexpr Index elements_a_thread = 16;
  Index pieces = most_shares / (results > 0 ? results : 1);
  const Index useful = length / (at_once * elements_a_thread),
              fitting = (bytes_ - arrivals_bytes) / (sums * static_cast<Index>(bytes));
  if (pieces > useful) pieces = useful;
  if (pieces > fitting) pieces = fitting;
  if (pieces <= 1) return 1;
  cuda::check_count(results, most_shared_results);
  return pieces;
}

template <class V>
auto CudaLauncher::shares() const {
  auto* const room = static_cast<std::byte*>(room_);
  return cuda::Shares<V>{reinterpret_cast<unsigned*>(room), reinterpret_cast<V*>(room + arrivals_bytes)};
}

template <int P, class F>
void CudaLauncher::elements_in_packs(const Stack& size, const F& f, Stream stream) const {
  constexpr Index enough_blocks = 2048, rows_a_thread = 8;
  const Index packs = (size.columns + P - 1) / P;
  const unsigned lanes = cuda::lanes_for(packs, cuda::threads);
  const Index tiles = (packs + lanes - 1) / lanes, rows_at_once = cuda::threads / lanes;
  const Index useful = size.rows / (rows_at_once * rows_a_thread), full = enough_blocks / (tiles * size.parts);
  const Index stripes = std::clamp<Index>(std::min(useful, full), 1, cuda::most_y);
  cuda::launch(cuda::elements_kernel<P, F>, cuda::grid_of(tiles, stripes, size.parts), stream, size,
               cuda::Tile{lanes, stripes}, f);
}

template <class F>
void CudaLauncher::for_elements(const Stack& size, const F& f, Stream stream) const {
  if (size.volume() == 0) return;
  constexpr int P = static_cast<int>(16 / std::max(cuda::element_read<F>, sizeof(cuda::Out<F>)));
  const bool one_row = size.parts * size.rows == 1, fits = one_row || size.columns % P == 0;
  if (fits && cuda::all_aligned<P>(f.in) && cuda::all_aligned<P>(Inputs<cuda::Out<F>>{f.out}))
    elements_in_packs<P>(size, f, stream);
  else
    elements_in_packs<1>(size, f, stream);
}

template <class F>
void CudaLauncher::for_each(Index rows, Index columns, const F& f, Stream stream) const {
  const Index count = rows * columns;
  if (count == 0) return;
  constexpr Index short_count = std::numeric_limits<std::int32_t>::max();  // 32-bit divisions are much faster
  if (count < short_count)
    cuda::launch(cuda::each_kernel<std::uint32_t, F>, cuda::blocks_for(count), stream,
                 static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(columns), f);
  else
    cuda::launch(cuda::each_kernel<Index, F>, cuda::blocks_for(count), stream, count, columns, f);
}

template <class F>
void CudaLauncher::for_ragged(const Lengths& lengths, const F& f, Stream stream) const {
  static_assert(sizeof(Lengths) + sizeof(cuda::GroupBlocks) + sizeof(F) <= 32000,
                "a kernel's arguments must fit into 32 KiB");
  constexpr Index a_block = cuda::GroupBlocks::elements, short_length = Index(1) << 31;
  cuda::GroupBlocks blocks;
  Index count = 0;
  for (Index group = 0; group < lengths.groups; ++group) {
    count += (lengths[group] + a_block - 1) / a_block;
    cuda::check_count(count, cuda::most_x);
    blocks.first[static_cast<std::size_t>(group) + 1] = static_cast<unsigned>(count);
  }
  if (count == 0) return;
  const auto grid = static_cast<unsigned>(count);
  if (cuda::longest(lengths) < short_length)
    cuda::launch(cuda::ragged_kernel<std::uint32_t, F>, grid, stream, lengths, blocks, f);
  else
    cuda::launch(cuda::ragged_kernel<Index, F>, grid, stream, lengths, blocks, f);
}

template <class V, class LengthOf, class Value, class Combine, class Finish>
void CudaLauncher::over_groups(Index groups, Index length, const LengthOf& of, V start, const Value& value,
                               const Combine& combine, const Finish& finish, Stream stream) const {
  constexpr Index few_values = 64;  // that one thread combines
  if (groups == 0) return;
  if (length <= few_values)
    return cuda::launch(cuda::thread_kernel<V, LengthOf, Value, Combine, Finish>, cuda::blocks_for(groups), stream,
                        groups, of, start, value, combine, finish);
  const Index count = pieces(length, cuda::threads, groups, groups, sizeof(V));
  cuda::check_count(groups * count, std::numeric_limits<std::int32_t>::max());
  cuda::launch(cuda::group_kernel<V, LengthOf, Value, Combine, Finish>, static_cast<unsigned>(groups * count), stream,
               count, of, start, value, combine, finish, shares<V>());
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

template <int P, class V, class Value, class Finish>
void CudaLauncher::columns_in_packs(const Stack& size, const Value& value, const Finish& finish, Stream stream) const {
  constexpr unsigned most_lanes = 32;  // so that a block has 8 rows or more
  const Index packs = (size.columns + P - 1) / P, sums = size.parts * size.columns;
  const unsigned lanes = cuda::lanes_for(packs, most_lanes);
  const Index tiles = (packs + lanes - 1) / lanes;
  const Index stripes = pieces(size.rows, cuda::threads / lanes, size.parts * tiles, sums, sizeof(V));
  cuda::launch(cuda::columns_kernel<P, V, Value, Finish>, cuda::grid_of(tiles, stripes, size.parts), stream, size,
               cuda::Tile{lanes, stripes}, value, finish, shares<V>());
}

template <class A, std::size_t K, class Value, class Finish>
void CudaLauncher::reduce_columns(const Stack& size, const Value& value, const Finish& finish, Stream stream) const {
  if (size.parts * size.columns == 0) return;
  constexpr int most = 4;  // elements of a pack, whose sums a thread keeps in registers
  constexpr int P = std::min(most, static_cast<int>(16 / cuda::element_read<Value>));
  if (size.columns % P == 0 && cuda::all_aligned<P>(value.in))
    columns_in_packs<P, Sums<A, K>>(size, value, finish, stream);
  else
    columns_in_packs<1, Sums<A, K>>(size, value, finish, stream);
}

}  // namespace partita
