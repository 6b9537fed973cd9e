#include "src/cli/verbs/train/event_file.hpp"

#include "partita/base/error.hpp"
#include "src/system/host.hpp"

#include <unistd.h>
#include <boost/crc.hpp>

#include <bit>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace partita::cli {

namespace {

// Numbers of fields in TensorFlow's event.proto and summary.proto.
constexpr int event_time = 1, event_step = 2, event_version = 3, event_summary = 5, event_session = 7;
constexpr int summary_value = 1, value_tag = 1, value_number = 2;
constexpr int session_status = 1, session_start = 1;

/// Returns the low `bytes` bytes of a number, the least significant first.
std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFFU);
  return text;
}

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7U) text += static_cast<char>((value & 0x7FU) | 0x80U);
  return text + static_cast<char>(value);
}

// A field of a message: its number and its type on the wire, then its value.
std::string key(int field, unsigned type) { return varint(static_cast<std::uint64_t>(field) << 3U | type); }
std::string whole(int field, Index value) { return key(field, 0) + varint(static_cast<std::uint64_t>(value)); }
std::string real(int field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<std::uint64_t>(value), 8);
}
std::string real(int field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<std::uint32_t>(value), 4);
}
std::string bytes(int field, const std::string& value) { return key(field, 2) + varint(value.size()) + value; }

/// The checksum of a record. A checksum of data that holds its own checksum is weak, so TFRecord rotates it.
std::string masked_crc(const std::string& data) { return little_endian(std::rotr(crc32c(data), 15) + 0xa282ead8U, 4); }

double seconds_since_1970() {
  std::timespec time{};
  std::timespec_get(&time, TIME_UTC);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(text.data(), text.size());
  return crc.checksum();
}

EventFile::EventFile(const std::string& folder, Index steps_done) : file_(nullptr, std::fclose) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("--tensorboard {}: the folder cannot be made: {}", folder, error.message());
  // TensorBoard reads the files of a folder in the order of their names, which begin with the time.
  path_ = fmt::format("{}/events.out.tfevents.{:.6f}.{}.{}", folder, seconds_since_1970(), host_name(), getpid());
  file_.reset(std::fopen(path_.c_str(), "wb"));
  if (!file_)
    fail("--tensorboard {}: a file in it cannot be written: {}", folder, std::generic_category().message(errno));
  write(bytes(event_version, "brain.Event:2"));
  if (steps_done > 0)
    write(whole(event_step, steps_done + 1) + bytes(event_session, whole(session_status, session_start)));
}

void EventFile::add(Index step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    if (!std::isnan(value))
      summary += bytes(summary_value, bytes(value_tag, tag) + real(value_number, static_cast<float>(value)));
  write(whole(event_step, step) + bytes(event_summary, summary));
}

void EventFile::write(const std::string& event) {
  if (!file_) return;
  const std::string data = real(event_time, seconds_since_1970()) + event, length = little_endian(data.size(), 8);
  const std::string record = length + masked_crc(length) + data + masked_crc(data);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size() && std::fflush(file_.get()) == 0)
    return;
  fmt::print(stderr, "note: {}: it cannot be written: {}; the training goes on without it\n", path_,
             std::generic_category().message(errno));
  file_.reset();
}

}  // namespace partita::cli
