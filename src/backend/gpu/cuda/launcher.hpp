#pragma once

#include "src/backend/gpu/functors/launcher.hpp"

#include <span>

namespace partita {

/// Starts functors (functors/launcher.hpp) as kernels on a GPU. Its functions are defined in launcher.cuh, and the .cu
/// files beside it instantiate them for every functor: a functor that none of them names does not link.
class CudaLauncher {
 public:
  /// The largest number of blocks that share results, and of results that two or more of them share.
  static constexpr Index most_shares = 1024, most_shared_results = most_shares / 2;
  /// The room begins with a number for each shared result: how many of its blocks have ended.
  static constexpr Index arrivals_bytes = most_shared_results * static_cast<Index>(sizeof(unsigned));
  /// `room` is memory of the GPU for the sums of blocks, `scratch` another part of it for whole kernels. The kernels of
  /// one stream use them in turns.
  /// @pre The first `arrivals_bytes` of the room are 0. Kernels leave them so.
  CudaLauncher(void* room, Index room_bytes, std::span<std::byte> scratch)
      : room_(room), bytes_(room_bytes), scratch_(scratch) {}

  std::span<std::byte> scratch() const { return scratch_; }

  template <class F>
  void for_elements(const Stack& size, const F& f, Stream stream) const;
  template <class F>
  void for_each(Index rows, Index columns, const F& f, Stream stream) const;
  template <class F>
  void for_ragged(const Lengths& lengths, const F& f, Stream stream) const;
  template <class A, std::size_t K, class Value, class Finish>
  void reduce(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const;
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_ragged(const Lengths& lengths, const Value& value, const Finish& finish, Stream stream) const;
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_columns(const Stack& size, const Value& value, const Finish& finish, Stream stream) const;
  template <class Value, class Finish>
  void largest(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const;

 private:
  template <int P, class F>
  void elements_in_packs(const Stack& size, const F& f, Stream stream) const;
  template <int P, class V, class Value, class Finish>
  void columns_in_packs(const Stack& size, const Value& value, const Finish& finish, Stream stream) const;
  Index pieces(Index length, Index at_once, Index results, Index sums, std::size_t bytes) const;
  template <class V>
  auto shares() const;
  template <class V, class LengthOf, class Value, class Combine, class Finish>
  void over_groups(Index groups, Index length, const LengthOf& of, V start, const Value& value, const Combine& combine,
                   const Finish& finish, Stream stream) const;

  void* room_;
  Index bytes_;
  std::span<std::byte> scratch_;
};

}  // namespace partita
