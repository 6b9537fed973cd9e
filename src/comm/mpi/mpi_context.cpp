#include "src/comm/mpi/mpi_context.hpp"

#include "partita/device/memory.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/job/patience.hpp"

#include <cstdlib>

namespace partita {

bool wants(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr || std::string_view(text) != "off";
}

std::vector<int> pretended_nodes(std::vector<int> nodes) {
  const char* text = std::getenv("PARTITA_NODES");
  if (text == nullptr) return nodes;
  std::vector<int> pretended;
  for (std::string_view left = text;; left.remove_prefix(left.find(',') + 1)) {
    const auto number = parse_number<int>(left.substr(0, left.find(',')));
    if (!number) pretended.clear();
    if (!number) break;
    pretended.push_back(*number);
    if (left.find(',') == std::string_view::npos) break;
  }
  if (pretended.size() != nodes.size())
    fail("PARTITA_NODES is '{}'; write the node of each of the {} ranks, as in \"0,0,1,1\"", text, nodes.size());
  return pretended;
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
