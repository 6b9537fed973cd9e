#include "src/comm/mpi_context.hpp"

#include "partita/base/memory.hpp"
#include "partita/base/profile.hpp"

#include <cstdlib>

namespace partita {

bool wants_shared_memory() {
  const char* text = std::getenv("PARTITA_SHARED_MEMORY");
  return text == nullptr || std::string_view(text) != "off";
}

/// Says for whom the rank has waited so long, and in which layer.
void Context::say_waiting(const std::vector<int>& missing) const {
  constexpr std::size_t most = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(most, missing.size()); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", missing[i]);
  if (missing.size() > most) names += fmt::format(" and {} more", missing.size() - most);
  const std::string_view layer = Profile::current_layer();
  fmt::print(stderr, "note: rank {} has waited {} s for {}{}; it goes on waiting\n", rank_, seconds_,
             missing.empty() ? "other ranks" : fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", names),
             layer.empty() ? "" : fmt::format(" at layer '{}'", layer));
}

void Context::stop_sharing(int ranks, bool speaks) {
  shares_ = false;
  // The first communicator is that of all ranks. If even that has no shared memory, nothing else was tried.
  if (!speaks || (!shared_.empty() && !shared_.front()->first_to_tell())) return;
  fmt::print(
      stderr,
      "note: /dev/shm is too small: {} ranks need {} to exchange messages through shared memory, and {} are free; "
      "they use MPI's messages instead, which are slower. Make /dev/shm larger (for a container: --shm-size "
      "1g), or set PARTITA_SHARED_MEMORY=off to do without it\n",
      ranks, print_bytes(ranks * SharedMemory::bytes(ranks)), print_bytes(free_shared_bytes()));
}

}  // namespace partita
