#pragma once

#include "partita/device/device.hpp"
#include "src/comm/device/nccl_library.hpp"

#include <chrono>
#include <memory>

namespace partita {

/// As make_nccl() (nccl.hpp), with this library, which outlives the result.
std::shared_ptr<Communicator> make_nccl(Communicator& host, Device& device, NcclLibrary& library,
                                        std::chrono::milliseconds limit = {});

}  // namespace partita
