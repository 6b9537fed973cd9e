#include "src/device/profile.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

thread_local Profile* profile_of_thread = nullptr;

}  // namespace

Profile::Profile(Device& device, Stream stream)
    : device_(device), stream_(stream), layer_(&seconds_[""]), since_(device.mark(stream)) {
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
  constexpr std::size_t many = 4096;  // events are kept until the device is waited for
  turns_.push_back({device_.mark(stream_), layer_, part_});
  if (device_.host() || turns_.size() == many) read_times();
}

void Profile::read_times() {
  device_.finish(stream_);
  for (const auto& [moment, layer, part] : turns_) {
    (*layer)[static_cast<std::size_t>(part)] += device_.seconds(since_, moment);
    since_ = moment;
  }
  turns_.clear();
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
  read_times();
  return seconds_;
}

void Profile::reset() {
  charge();
  read_times();
  for (auto& [layer, seconds] : seconds_) seconds = {};
}

}  // namespace partita
