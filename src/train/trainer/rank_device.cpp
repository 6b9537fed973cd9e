#include "partita/train/trainer/rank_device.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/device/device_threads.hpp"
#include "src/comm/device/nccl.hpp"
#include "src/comm/device/staged.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace partita {

namespace {

/// Returns a number of each rank for its host and a text. Collective.
std::vector<double> gather_names(Communicator& world, std::string_view text) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto mine = static_cast<double>(hash_text(fmt::format("{} {}", host.data(), text)) >> 12U);  // 52 bits
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  const std::vector<Index> counts(all.size(), 1);
  world.all_gather(&mine, all.data(), counts, DType::f64, {}).wait();
  return all;
}

/// How many ranks before this one run on the same host. Collective.
int local_rank(Communicator& world) {
  const auto hosts = gather_names(world, "");
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), hosts[world.rank()]));
}

/// Returns a number of each rank for its card. Collective.
std::vector<double> gather_cards(const CudaDevice& device, Communicator& world) {
  return gather_names(world, cuda_cards().at(static_cast<std::size_t>(device.card())).bus);
}

/// True if NCCL shall carry the messages. Throws Error, alike on every rank, if it cannot. Collective.
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

/// Returns N of "cuda:N", -1 for "cuda". Throws Error for another name.
int card_of(const std::string& name) {
  if (name == "cuda") return -1;
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix))
    if (const auto card = parse_number<int>(name.substr(prefix.size())); card && *card >= 0) return *card;
  fail("there is no device '{}'; there are 'cpu', 'cuda' and, with the number of a card, e.g. 'cuda:0'", name);
}

}  // namespace

CardTransport parse_transport(const std::string& name) {
  if (name == "auto") return CardTransport::automatic;
  if (name == "staged") return CardTransport::staged;
  if (name == "nccl") return CardTransport::nccl;
  if (name == "copies") return CardTransport::copies;
  fail("there is no transport '{}'; there are 'auto', 'staged', 'nccl' and 'copies'", name);
}

void check_device_name(const std::string& name) {
  if (name != "cpu") static_cast<void>(card_of(name));
}

std::unique_ptr<CudaDevice> make_rank_device(const DeviceOptions& options, Communicator& world) {
  std::unique_ptr<CudaDevice> device;
  if (options.name == "cpu") return device;
  const int local = local_rank(world);
  agree_or_throw(world, [&] {
    const int card = card_of(options.name);
    const auto count = static_cast<int>(cuda_cards().size());
    device = make_cuda_device(card >= 0 ? card : local % std::max(count, 1));
  });
  return device;
}

int ranks_on_card(const CudaDevice& device, Communicator& world) {
  const auto cards = gather_cards(device, world);
  return static_cast<int>(std::count(cards.begin(), cards.end(), cards[world.rank()]));
}

BesideTensors beside_tensors(const DeviceOptions& options) {
  const bool copies = options.transport == CardTransport::copies;
  return {.shared = copies ? 2 * device_threads_room : 0, .workspace = options.workspace, .data = false};
}

MessageMemory message_memory(const CudaDevice& device, const DeviceOptions& options, bool overlap,
                             Communicator& world) {
  const bool staged = options.transport != CardTransport::copies && !uses_nccl(device, options.transport, world);
  return {true, overlap, overlap && (!staged || world.asynchronous())};
}

Processor make_processor(CudaDevice& device, const DeviceOptions& options, DType dtype, Communicator& world) {
  const bool nccl = uses_nccl(device, options.transport, world);
  const auto make = [&] {
    // One rank sends no messages; what it asks of itself stays on the device, and can be captured.
    if (options.transport == CardTransport::copies || world.size() == 1)
      return make_device_threads(world, device, options.limit);
    return nccl ? make_nccl(world, device, options.limit) : make_staged(world, device);
  };
  auto between = make();  // on every rank first, since ranks connect
  auto gradients = make();
  return {device, std::move(between), std::move(gradients),
          make_cuda_backend(device, {dtype, options.tf32, options.workspace})};
}

}  // namespace partita
