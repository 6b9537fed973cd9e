#include "src/comm/device/nccl_watch.hpp"

#include <algorithm>

namespace partita {

void NcclWatch::set_connecting(bool connecting) {
  const std::scoped_lock lock(mutex_);
  connecting_ = connecting;
  looked_ = 0;
}

void NcclWatch::add(NcclLibrary::Comm comm) {
  const std::scoped_lock lock(mutex_);
  comms_.push_back(comm);
}

void NcclWatch::remove(NcclLibrary::Comm comm) {
  const std::scoped_lock lock(mutex_);
  std::erase(comms_, comm);
}

void NcclWatch::started(const Event& done) {
  const std::scoped_lock lock(mutex_);
  under_way_.push_back(done);
  while (under_way_.size() > 1 && device_.passed(under_way_.front())) {
    under_way_.pop_front();
    looked_ = 0;
  }
}

std::pair<NcclWatch::Finding, std::string> NcclWatch::look() {
  const std::scoped_lock lock(mutex_);
  for (const NcclLibrary::Comm comm : comms_)
    if (std::string error = library_.error(comm); !error.empty()) return {Finding::failed, std::move(error)};
  for (; !under_way_.empty() && device_.passed(under_way_.front()); looked_ = 0) under_way_.pop_front();
  const bool waits = (connecting_ || !under_way_.empty()) && ++looked_ >= patience;
  return {waits ? Finding::lost : Finding::fine, ""};
}

}  // namespace partita
