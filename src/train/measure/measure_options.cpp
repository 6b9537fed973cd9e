#include "src/train/measure/measure_options.hpp"

#include "src/train/trainer/card_ranks.hpp"

namespace partita {

std::shared_ptr<MeasuredDevice> make_measured_device(const DeviceOptions& options, Communicator& world) {
  const std::shared_ptr<CudaDevice> device = make_rank_device(options, world);
  if (!device) return nullptr;
  const CudaCard card = cuda_cards().at(static_cast<std::size_t>(device->card()));
  return std::make_shared<MeasuredDevice>(
      card.name, card.memory / ranks_on_card(*device, world),
      [device, options, &world](DType dtype) { return make_processor(*device, options, dtype, world); });
}

}  // namespace partita
