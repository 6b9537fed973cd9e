#include "src/train/files/checksums.hpp"

#include "partita/base/error.hpp"
#include "src/system/system_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>

namespace partita {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written in the order of bytes in memory");

constexpr std::uint64_t mark = 0x316D757341545250;               // "PRTASum1"
constexpr std::size_t number = sizeof(std::uint64_t), tail = 3;  // tail: numbers after the CRC of the rest
constexpr const char* missing =
    "its checksums are missing: the file was truncated, or another program or version 1 wrote it";

std::uint64_t crc_of(std::uint64_t before, std::span<const std::byte> bytes) {
  return crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

/// Returns the CRC of bytes [begin, end), continued from the CRC `before`.
std::uint64_t crc_of_file(int file, std::uint64_t begin, std::uint64_t end, std::uint64_t before) {
  constexpr std::uint64_t piece = std::uint64_t{256} << 10;  // stays in the cache
  std::vector<std::byte> bytes(std::min(piece, end - begin));
  for (; begin < end; begin += bytes.size()) {
    bytes.resize(std::min<std::uint64_t>(bytes.size(), end - begin));
    read_all(file, bytes, static_cast<off_t>(begin));
    before = crc_of(before, bytes);
  }
  return before;
}

}  // namespace

void Checksums::add(off_t begin, std::span<const std::byte> elements) {
  constexpr std::size_t most = std::size_t{64} << 20;  // so that ranks can share the checking of large arrays
  for (auto at = static_cast<std::uint64_t>(begin); !elements.empty();) {
    const auto piece = elements.first(std::min(most, elements.size()));
    arrays_.push_back({at, at + piece.size(), crc_of(0, piece)});
    at += piece.size();
    elements = elements.subspan(piece.size());
  }
}

std::uint64_t Checksums::rest(int file, std::uint64_t size) const {
  std::uint64_t crc = 0, at = 0;
  for (const auto& array : arrays_) {
    crc = crc_of_file(file, at, array.begin, crc);
    at = array.end;
  }
  return crc_of_file(file, at, size, crc);
}

void Checksums::seal(int file, off_t size) const {
  Checksums sorted = *this;
  std::sort(sorted.arrays_.begin(), sorted.arrays_.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  std::vector<std::uint64_t> numbers;
  for (const auto& [begin, end, crc] : sorted.arrays_) numbers.insert(numbers.end(), {begin, end, crc});
  numbers.push_back(sorted.rest(file, static_cast<std::uint64_t>(size)));
  numbers.push_back(arrays_.size());
  numbers.push_back(crc_of(0, std::as_bytes(std::span(numbers))));
  numbers.push_back(mark);
  write_all(file, std::as_bytes(std::span(numbers)), size);
}

Checksums Checksums::read(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) fail_system();
  const auto all = static_cast<std::uint64_t>(status.st_size);
  std::array<std::uint64_t, tail> end{};  // count, CRC, mark
  if (all < sizeof end) fail("{}", missing);
  read_all(file, std::as_writable_bytes(std::span(end)), static_cast<off_t>(all - sizeof end));
  const std::uint64_t count = end[0];
  if (end[2] != mark || count > all / (3 * number) || (3 * count + 1 + tail) * number > all) fail("{}", missing);
  const std::uint64_t size = all - (3 * count + 1 + tail) * number;
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(3 * count + 2));
  read_all(file, std::as_writable_bytes(std::span(numbers)), static_cast<off_t>(size));
  if (crc_of(0, std::as_bytes(std::span(numbers))) != end[1]) fail("the checksums themselves are damaged");
  Checksums sums;
  sums.identity_ = all << 32 ^ end[1];
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Array array{numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2]};
    if (array.begin < at || array.end < array.begin || array.end > size)
      fail("the ranges of its checksums overlap or exceed the file");
    at = array.end;
    sums.arrays_.push_back(array);
  }
  if (sums.rest(file, size) != numbers[3 * count]) fail("the data that describe its arrays differ from their checksum");
  return sums;
}

void Checksums::verify(int file, std::size_t first, std::size_t step) const {
  for (std::size_t i = first; i < arrays_.size(); i += step) {
    const auto& [begin, end, crc] = arrays_[i];
    if (crc_of_file(file, begin, end, 0) != crc) fail("bytes {} to {} differ from their checksum", begin, end);
  }
}

}  // namespace partita
