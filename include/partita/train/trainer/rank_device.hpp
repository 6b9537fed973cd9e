#pragma once

#include "partita/backend/cuda.hpp"
#include "partita/train/trainer/processor.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace partita {

/// How tensors travel between the cards of different ranks.
enum class CardTransport : std::uint8_t {
  automatic,  ///< NCCL if this build has it and each rank has a card of its own, else staged
  staged,     ///< through the memory of the CPU, by the transport of the CPUs
  nccl,       ///< by NCCL; each rank has a card of its own
  copies,     ///< from card to card; the ranks are threads of one process
};

/// Where ranks compute.
struct DeviceOptions {
  std::string name = "cpu";  ///< "cpu", "cuda" (the ranks of a host take its cards in turns) or "cuda:N" (all: card N)
  bool tf32 = false;         ///< CudaOptions::tf32
  Index workspace = 0;       ///< CudaOptions::workspace; 0: default_workspace() of the card
  std::string properties{};  ///< for `explain`: a JSON file that describes a card; "": the first card of this machine
  CardTransport transport = CardTransport::automatic;
  std::chrono::milliseconds limit{};  ///< how long a message between cards may take; 0: no limit
};

/// Returns the transport of this name: "auto", "staged", "nccl" or "copies". Throws Error for another name.
CardTransport parse_transport(const std::string& name);

/// Throws Error if the name is none of those that DeviceOptions has.
void check_device_name(const std::string& name);

/// Makes the device on which a rank computes; null for the CPU. Throws Error, alike on every rank, if a rank finds no
/// such card. Collective: every rank of `world` calls it.
std::unique_ptr<CudaDevice> make_rank_device(const DeviceOptions& options, Communicator& world);

/// Returns what a trainer needs to compute on a card. Throws Error as make_cuda_backend() does and if this build lacks
/// NCCL, DeviceError if NCCL cannot start. Collective: every rank of `world` calls it.
/// @pre `device` and `world` outlive the processor.
Processor make_processor(CudaDevice& device, const DeviceOptions& options, DType dtype, Communicator& world);

}  // namespace partita
