#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace partita {

/// Builds a message in protobuf's wire format (protobuf.dev/programming-guides/encoding). Traces for Chakra are its
/// only use and need four kinds of fields. libprotobuf would need its compiler at build time, and would be one more
/// library of the whole program, for less than these lines.
class ProtobufMessage {
 public:
  /// Each adds a field: a whole number, a number, text or a message, and a list of whole numbers.
  void add(int field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
  }
  void add(int field, double value) {
    tag(field, 1);
    auto bits = std::bit_cast<std::uint64_t>(value);
    for (int byte = 0; byte < 8; ++byte, bits >>= 8) bytes_.push_back(static_cast<char>(bits & 0xff));
  }
  void add(int field, std::string_view text) {
    tag(field, 2);
    varint(text.size());
    bytes_ += text;
  }
  void add(int field, std::span<const std::uint64_t> values) {
    if (values.empty()) return;
    ProtobufMessage packed;
    for (const std::uint64_t value : values) packed.varint(value);
    add(field, std::string_view(packed.bytes_));
  }
  const std::string& bytes() const { return bytes_; }
  /// The message after its length, as files hold several messages.
  std::string with_length() const {
    ProtobufMessage length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void tag(int field, int type) { varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

}  // namespace partita
