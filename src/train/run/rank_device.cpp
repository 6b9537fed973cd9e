#include "partita/train/run/rank_device.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/device_threads.hpp"
#include "partita/comm/nccl.hpp"
#include "partita/comm/staged.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace partita {

namespace {

/// How many ranks before this one run on the same host. Collective.
int local_rank(Communicator& world) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto mine = static_cast<double>(hash_text(host.data()) >> 12U);  // fits into a double's mantissa
  std::vector<double> all(static_cast<std::size_t>(world.size()));
  const std::vector<Index> counts(all.size(), 1);
  world.all_gather(&mine, all.data(), counts, DType::f64, {}).wait();
  return static_cast<int>(std::count(all.begin(), all.begin() + world.rank(), mine));
}

/// Returns N of "cuda:N", -1 for "cuda". Throws Error for another name.
int card_of(const std::string& name) {
  if (name == "cuda") return -1;
  constexpr std::string_view prefix = "cuda:";
  int card = -1;
  if (name.starts_with(prefix)) {
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, card);
    if (error == std::errc() && rest == end && card >= 0) return card;
  }
  fail("there is no device '{}'; there are 'cpu', 'cuda' and, with the number of a card, e.g. 'cuda:0'", name);
}

}  // namespace

CardTransport parse_transport(const std::string& name) {
  if (name == "staged") return CardTransport::staged;
  if (name == "nccl") return CardTransport::nccl;
  if (name == "copies") return CardTransport::copies;
  fail("there is no transport '{}'; there are 'staged', 'nccl' and 'copies'", name);
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
  const auto between = [&] {
    switch (options.transport) {
      case CardTransport::staged: return make_staged(world, device);
      case CardTransport::nccl: return make_nccl(world, device);
      case CardTransport::copies: return make_device_threads(world, device, options.limit);
    }
    broken("unknown transport");
  };
  return {device, between(), make_cuda_backend(device, {dtype, options.tf32, options.workspace})};
}

}  // namespace partita
