#include "src/train/trainer/card_ranks.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "src/comm/device/device_threads.hpp"
#include "src/comm/device/nccl.hpp"
#include "src/system/host.hpp"

#include <algorithm>
#include <vector>

namespace partita {

namespace {

/// Returns a number of each rank for its host and a text. Collective.
std::vector<double> gather_names(Communicator& world, std::string_view text) {
  constexpr unsigned beyond_52_bits = 12;
  return gather_numbers(world,
                        static_cast<double>(hash_text(fmt::format("{} {}", host_name(), text)) >> beyond_52_bits));
}

/// Returns a number of each rank for its card. Collective.
std::vector<double> gather_cards(const CudaDevice& device, Communicator& world) {
  return gather_names(world, cuda_cards().at(static_cast<std::size_t>(device.card())).bus);
}

}  // namespace

int local_rank(Communicator& world) {
  const auto hosts = gather_names(world, "");
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), hosts[world.rank()]));
}

bool uses_nccl(const CudaDevice& device, CardTransport transport, Communicator& world) {
  if (transport == CardTransport::staged || transport == CardTransport::copies) return false;
  const auto cards = gather_cards(device, world);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const auto other = static_cast<std::size_t>(std::find(cards.begin(), cards.end(), cards[rank]) - cards.begin());
    if (other == rank) continue;
    if (transport == CardTransport::automatic) return false;
    throw AgreedError(fmt::format(
        "ranks {} and {} have the same card, and NCCL needs a card for each rank; start fewer ranks on each "
        "host, or choose --transport staged",
        other, rank));
  }
  return transport == CardTransport::nccl || (have_nccl() && world.size() > 1);
}

int ranks_on_card(const CudaDevice& device, Communicator& world) {
  const auto cards = gather_cards(device, world);
  return static_cast<int>(std::count(cards.begin(), cards.end(), cards[world.rank()]));
}

Index workspace_on(const CudaDevice& device, const DeviceOptions& options) {
  if (options.workspace != 0) return options.workspace;
  return default_workspace(cuda_cards().at(static_cast<std::size_t>(device.card())).memory);
}

BesideTensors beside_tensors(const CudaDevice& device, const DeviceOptions& options) {
  const bool copies = options.transport == CardTransport::copies;
  return {.shared = copies ? 2 * device_threads_room : 0, .workspace = workspace_on(device, options), .data = false};
}

MessageMemory message_memory(const CudaDevice& device, const DeviceOptions& options, bool overlap,
                             Communicator& world) {
  const bool staged = options.transport != CardTransport::copies && !uses_nccl(device, options.transport, world);
  return {true, overlap, overlap && (!staged || world.asynchronous())};
}

}  // namespace partita
