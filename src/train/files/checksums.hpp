#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// The CRC-32 checksums of an HDF5 file: one per array, and one of the rest of the file. They are in a trailer after
/// the part that HDF5 reads. HDF5 1.10 does not check its own structures and crashes if they are damaged. So the
/// checksums are checked before HDF5 opens the file.
///
/// The trailer consists of 64-bit little-endian numbers: begin, end and CRC of each array (a large array is split into
/// parts), the CRC of the rest, the number of arrays, the CRC of all numbers before it, and a mark.
class Checksums {
 public:
  /// An array, or a part of one: bytes [begin, end).
  struct Array {
    std::uint64_t begin = 0, end = 0, crc = 0;
  };
  /// Adds an array while the file is written: all its `elements`, which begin at byte `begin`.
  void add(off_t begin, std::span<const std::byte> elements);
  /// Adds arrays that others have written.
  void add(std::span<const Array> arrays) { arrays_.insert(arrays_.end(), arrays.begin(), arrays.end()); }
  const std::vector<Array>& arrays() const { return arrays_; }
  /// Appends the trailer to a file of `size` bytes that is otherwise complete. Throws Error if a system call fails.
  void seal(int file, off_t size) const;

  /// Reads the checksums of a file. Throws Error if there are none, or if anything except the arrays does not match
  /// them.
  static Checksums read(int file);
  /// Checks every `step`th array from `first` on. Throws Error if an array does not match its checksum.
  void verify(int file, std::size_t first, std::size_t step) const;
  /// After `read`: a number that differs, almost surely, for files of other content.
  std::uint64_t identity() const { return identity_; }

 private:
  std::uint64_t rest(int file, std::uint64_t size) const;

  std::vector<Array> arrays_;  // in the order of the file
  std::uint64_t identity_ = 0;
};

}  // namespace partita
