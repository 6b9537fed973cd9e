#pragma once

#include "partita/base/types.hpp"

#include <string_view>

namespace partita {

/// The ways in which data moves between ranks; `none` is local work.
enum class Verb : std::uint8_t { none, exchange, all_reduce, all_gather, reduce_scatter, broadcast, all_to_all };

/// e.g. "all_reduce".
std::string_view name(Verb verb);

/// What one rank puts on the network by one verb. An exchange counts the messages and bytes that the rank sends; a
/// collective is one message and counts the bytes of its full vector (n in the closed forms): of the sum for all_reduce
/// and reduce_scatter, of the result for all_gather, of the buffer for broadcast, of what the rank sends for
/// all_to_all. Verbs in which the rank has nothing to move (no peer, no element) count nothing.
struct Traffic {
  Index messages = 0;
  Index bytes = 0;
  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

}  // namespace partita
