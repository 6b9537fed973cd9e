#pragma once

#include "partita/comm/communicator.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>

namespace partita {

/// What one rank has moved, by label (a layer and what it does) and verb. Shared by all communicators of a rank.
class TrafficCounter {
 public:
  /// Communication from here on belongs to `label`.
  void set_label(std::string_view label) { label_ = label; }
  /// The same to "layer role", without memory of its own.
  void set_label(std::string_view layer, std::string_view role) { (label_ = layer).append(" ").append(role); }
  const std::string& label() const { return label_; }
  void add(Verb verb, const Traffic& traffic);
  /// (label, verb) -> traffic; only what moved something.
  const std::map<std::pair<std::string, Verb>, Traffic>& by_label() const { return counts_; }
  Traffic total() const;
  void reset() { counts_.clear(); }

 private:
  std::string label_;
  std::map<std::pair<std::string, Verb>, Traffic> counts_;
};

/// A decorator that counts in `counter` what passes through it and through its splits (by the rules of Traffic).
/// @pre `inner` outlives the decorator.
std::shared_ptr<Communicator> counting(Communicator& inner, std::shared_ptr<TrafficCounter> counter);
/// A decorator that shares the ownership of `inner`.
std::shared_ptr<Communicator> counting(std::shared_ptr<Communicator> inner, std::shared_ptr<TrafficCounter> counter);

}  // namespace partita
