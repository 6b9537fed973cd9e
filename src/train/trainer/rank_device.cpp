#include "partita/train/trainer/rank_device.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/device/device_threads.hpp"
#include "src/comm/device/nccl.hpp"
#include "src/comm/device/staged.hpp"
#include "src/train/trainer/card_ranks.hpp"

#include <algorithm>

namespace partita {

namespace {

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

Processor make_processor(CudaDevice& device, const DeviceOptions& options, DType dtype, Communicator& world) {
  const bool nccl = uses_nccl(device, options.transport, world);
  const auto make = [&] {
    // One rank sends no messages; what it asks of itself stays on the device, and can be captured.
    if (options.transport == CardTransport::copies || world.size() == 1)
      return make_device_threads(world, device, options.limit);
    return nccl ? make_nccl(world, device, options.limit) : make_staged(world, device);
  };
  auto between = make();  // on every rank first, since ranks connect
  auto gradients = nccl && !nccl_orders_communicators() ? between : make();
  return {device, std::move(between), std::move(gradients),
          make_cuda_backend(device, {dtype, options.tf32, workspace_on(device, options)})};
}

}  // namespace partita
