#include "src/comm/mpi/mpi_context.hpp"

#include "partita/device/memory.hpp"
#include "src/comm/job/patience.hpp"

#include <cstdlib>

namespace partita {

bool wants_shared_memory() {
  const char* text = std::getenv("PARTITA_SHARED_MEMORY");
  return text == nullptr || std::string_view(text) != "off";
}

void MpiContext::say_waiting(const std::vector<int>& missing) const { print_waiting(rank_, seconds_, missing); }

void MpiContext::stop_sharing(int ranks, bool speaks) {
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
