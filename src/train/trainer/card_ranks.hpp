#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/train/trainer/rank_device.hpp"

namespace partita {

// How ranks share the cards, and what they hold on them beside tensors.

/// Returns how many ranks before this one run on the same host. Collective: every rank of `world` calls it.
int local_rank(Communicator& world);

/// True if NCCL shall carry the messages between cards. Throws Error, alike on every rank, if it cannot. Collective:
/// every rank of `world` calls it.
bool uses_nccl(const CudaDevice& device, CardTransport transport, Communicator& world);

/// Returns how many ranks compute on the same card as this one. Collective: every rank of `world` calls it.
int ranks_on_card(const CudaDevice& device, Communicator& world);

/// What a rank holds beside the tensors of a run, in the memory where these lie.
struct BesideTensors {
  Index shared = 0;     ///< bytes of its communicators
  Index workspace = 0;  ///< bytes of its kernels
  bool data = true;     ///< the samples lie there; false on a device, to which each microbatch is copied
};

/// Returns the bytes of the workspace that the options mean on this card.
Index workspace_on(const CudaDevice& device, const DeviceOptions& options);

/// Returns what a rank holds on a card beside tensors, as far as it is ours: NCCL has buffers of its own.
BesideTensors beside_tensors(const CudaDevice& device, const DeviceOptions& options);

/// Returns how messages between cards use their memory. Collective: every rank of `world` calls it.
MessageMemory message_memory(const CudaDevice& device, const DeviceOptions& options, bool overlap, Communicator& world);

}  // namespace partita
