#include "partita/base/profile.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

thread_local Profile* profile_of_thread = nullptr;

}  // namespace

Profile::Profile() : layer_(&seconds_[""]), since_(std::chrono::steady_clock::now()) {
  require(profile_of_thread == nullptr, "a thread must have at most one profile at a time");
  profile_of_thread = this;
}

Profile::~Profile() { profile_of_thread = nullptr; }

std::string_view& Profile::current_layer() {
  thread_local std::string_view layer;
  return layer;
}

Profile* Profile::current() { return profile_of_thread; }

void Profile::charge() {
  const auto now = std::chrono::steady_clock::now();
  (*layer_)[static_cast<std::size_t>(part_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
}

void Profile::set_layer(std::string_view layer) {
  charge();
  auto found = seconds_.find(layer);
  if (found == seconds_.end()) found = seconds_.emplace(std::string(layer), Seconds{}).first;
  layer_ = &found->second;
}

Profile::Part Profile::set_part(Part part) {
  charge();
  const Part before = part_;
  part_ = part;
  return before;
}

const std::map<std::string, Profile::Seconds, std::less<>>& Profile::by_layer() {
  charge();
  return seconds_;
}

void Profile::reset() {
  charge();
  for (auto& [layer, seconds] : seconds_) seconds = {};
}

}  // namespace partita
