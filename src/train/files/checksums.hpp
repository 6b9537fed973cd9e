#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// CRC-32s of a file, of each array's elements and of everything else, in a trailer behind what HDF5 reads. HDF5 1.10
/// trusts its own structures so far that damaged ones crash it; so they are checked before it sees them.
///
/// The trailer is numbers of 64 bits, little end first: begin, end and CRC of each array, large ones in parts; the CRC of
/// the rest; the number of arrays; the CRC of the numbers so far; a mark.
class Checksums {
 public:
  /// While the file is written: all `elements` of an array, at byte `begin`.
  void add(off_t begin, std::span<const std::byte> elements);
  /// Appends the trailer to a file of `size` bytes that holds all else. Throws Error if the system fails.
  void seal(int file, off_t size) const;

  /// Those of a file. Throws Error if there are none or if anything but arrays differs from them.
  static Checksums read(int file);
  /// Throws Error if an array differs: every `step`th from `first` on.
  void verify(int file, std::size_t first, std::size_t step) const;

 private:
  struct Array {
    std::uint64_t begin = 0, end = 0, crc = 0;
  };
  std::uint64_t rest(int file, std::uint64_t size) const;

  std::vector<Array> arrays_;  // in the order of the file
};

}  // namespace partita
