#pragma once

#include "partita/comm/communicator.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace partita {

/// Counts the traffic of one rank per label (a layer and the role of the transfer) and operation. All communicators of
/// a rank share one counter.
class TrafficCounter {
 public:
  /// Charges communication to `label` from now on.
  void set_label(std::string_view label) { label_ = label; }
  /// Charges communication to "layer role" from now on, without allocating a new string.
  void set_label(std::string_view layer, std::string_view role) { (label_ = layer).append(" ").append(role); }
  const std::string& label() const { return label_; }
  void add(Verb verb, const Traffic& traffic);
  /// The traffic of each (label, operation) that moved something.
  const std::map<std::pair<std::string, Verb>, Traffic>& by_label() const { return counts_; }
  Traffic total() const;
  void reset() { counts_.clear(); }
  /// Returns what was counted since `before`, a copy of this counter.
  TrafficCounter since(const TrafficCounter& before) const;
  /// Counts once more what another counter has counted.
  void add(const TrafficCounter& other);

 private:
  std::string label_;
  std::map<std::pair<std::string, Verb>, Traffic> counts_;
};

/// Returns a decorator of `inner` that counts its communication in `counter`, by the rules of Traffic. Communicators
/// split from it count in the same counter.
/// @pre `inner` outlives the decorator.
std::shared_ptr<Communicator> counting(Communicator& inner, std::shared_ptr<TrafficCounter> counter);
/// Returns a counting decorator that shares the ownership of `inner`.
std::shared_ptr<Communicator> counting(std::shared_ptr<Communicator> inner, std::shared_ptr<TrafficCounter> counter);

}  // namespace partita
