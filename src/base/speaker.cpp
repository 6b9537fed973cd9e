#include "src/base/speaker.hpp"

#include "src/base/launched_rank.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace partita {

namespace {

/// Takes the name of the process that speaks for a job on this node. Ranks of one node have the same parent. Only one
/// process can own an abstract socket name, which disappears with it.
bool takes_name() {
  const int name_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = fmt::format("partita-speaker-{}", getppid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return name_socket < 0 || bind(name_socket, reinterpret_cast<const sockaddr*>(&address), length) == 0;
}

}  // namespace

bool speaks_for_job() {
  static const bool speaks = launched_process() == nullptr || takes_name();  // the name can be taken only once
  return speaks;
}

}  // namespace partita
