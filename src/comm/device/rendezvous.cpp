#include "src/comm/device/rendezvous.hpp"

#include "partita/base/error.hpp"
#include "src/comm/job/peer_failed.hpp"

namespace partita {

bool Rendezvous::meet(const MessageKey& key, bool sends, const Endpoint& mine, Endpoint& other) {
  const std::scoped_lock lock(mutex_);
  const auto [at, comes_first] = meetings_.try_emplace(key);
  Meeting& meeting = at->second;
  if (comes_first) {
    meeting.sender_first = sends;
    meeting.first = mine;
    return false;
  }
  require(!meeting.met && meeting.sender_first != sends, "a message must have a sender and a receiver");
  if (meeting.first.bytes != mine.bytes)
    throw CommunicationError(fmt::format("rank {} expected {} bytes from rank {}, but received {}", key.to,
                                         sends ? meeting.first.bytes : mine.bytes, key.from,
                                         sends ? mine.bytes : meeting.first.bytes));
  meeting.met = true;
  other = meeting.first;
  return true;
}

void Rendezvous::tell(const MessageKey& key, Event done) {
  const std::scoped_lock lock(mutex_);
  Meeting& meeting = meetings_.at(key);
  meeting.told = true;
  meeting.done = std::move(done);
  changed_.notify_all();
}

Event Rendezvous::done(const MessageKey& key, int peer) {
  std::unique_lock lock(mutex_);
  const auto at = meetings_.find(key);
  require(at != meetings_.end(), "a rank must start an exchange before it waits for it");
  Meeting& meeting = at->second;
  const auto over = [&] { return meeting.told || !failure_.empty() || (gone_.contains(peer) && !meeting.met); };
  bool in_time = true;
  if (limit_.count() > 0)
    in_time = changed_.wait_for(lock, limit_, over);
  else
    changed_.wait(lock, over);
  if (!meeting.told) {
    if (!failure_.empty()) throw PeerFailed(failure_);
    if (!in_time)
      throw CommunicationError(
          fmt::format("rank {} has waited {} s for rank {} to start message {} from rank {} to "
                      "rank {}; do all ranks use their communicators in one order?",
                      key.from == peer ? key.to : key.from, std::chrono::duration<double>(limit_).count(), peer,
                      key.number, key.from, key.to));
    throw CommunicationError(
        fmt::format("a message from rank {} to rank {} cannot arrive: rank {} has finished", key.from, key.to, peer));
  }
  if (meeting.failed) throw PeerFailed(fmt::format("rank {} failed", peer));
  Event done = meeting.done;
  if (++meeting.asked == 2) meetings_.erase(at);
  return done;
}

void Rendezvous::cancel(const MessageKey& key) {
  const std::scoped_lock lock(mutex_);
  Meeting& meeting = meetings_.at(key);
  meeting.told = meeting.failed = true;
  changed_.notify_all();
}

Event Rendezvous::withdraw(const MessageKey& key) {
  std::unique_lock lock(mutex_);
  const auto at = meetings_.find(key);
  if (at == meetings_.end()) return {};
  Meeting& meeting = at->second;
  changed_.wait(lock, [&] { return !meeting.met || meeting.told; });
  Event done = meeting.done;
  if (!meeting.met || ++meeting.asked == 2) meetings_.erase(at);
  return done;
}

void Rendezvous::leave(int rank, bool failed) {
  const std::scoped_lock lock(mutex_);
  gone_.insert(rank);
  if (failed && failure_.empty()) failure_ = fmt::format("rank {} failed", rank);
  changed_.notify_all();
}

}  // namespace partita
