#pragma once

#include "partita/base/types.hpp"

#include <string_view>

namespace partita {

/// The communication operations that move data between ranks; `none` is local work.
enum class Verb : std::uint8_t { none, exchange, all_reduce, all_gather, reduce_scatter, broadcast, all_to_all };

/// Returns e.g. "all_reduce".
std::string_view name(Verb verb);

/// What one rank moves by communication operations. An exchange counts the messages and bytes that the rank sends.
/// A collective counts as one message with the bytes of its full vector (n in the closed forms of the cost model):
/// the sum for all_reduce and reduce_scatter, the result for all_gather, the buffer for broadcast, and everything that
/// the rank sends for all_to_all. An operation in which the rank has nothing to move (no peer, no element) counts
/// nothing.
struct Traffic {
  Index messages = 0;
  Index bytes = 0;
  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  Traffic& operator-=(const Traffic& other) {
    messages -= other.messages;
    bytes -= other.bytes;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

}  // namespace partita
