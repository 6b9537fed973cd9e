#pragma once

#include "partita/train/trainer/rank_device.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace partita {

/// A device on which each rank of a measurement computes. Collective: every rank calls each method with equal
/// arguments.
class MeasuredDevice {
 public:
  /// `name` is the device's, `memory` the bytes of it that a rank may use. `make` returns what the rank needs to
  /// compute in a type.
  MeasuredDevice(std::string name, Index memory, std::function<Processor(DType)> make)
      : name_(std::move(name)), memory_(memory), make_(std::move(make)) {}

  const std::string& name() const { return name_; }
  Index memory() const { return memory_; }
  Processor make(DType dtype) const { return make_(dtype); }
  /// The same, made once for each type.
  const Processor& processor(DType dtype) {
    const auto known = made_.find(dtype);
    return known != made_.end() ? known->second : made_.emplace(dtype, make_(dtype)).first->second;
  }

 private:
  std::string name_;
  Index memory_;
  std::function<Processor(DType)> make_;
  std::map<DType, Processor> made_;
};

/// Returns the cards on which ranks compute, shared equally by the ranks that have the same one; null for the CPU.
/// Throws Error as make_rank_device() does. Collective: every rank of `world` calls it.
/// @pre `world` outlives the result.
std::shared_ptr<MeasuredDevice> make_measured_device(const DeviceOptions& options, Communicator& world);

/// How to measure local work.
struct MeasureOptions {
  std::string backend = "auto";
  int threads = 1;
  std::string kernel_folder{};  ///< folder for measured kernel choices; "": the default folder
  int most = 15;                ///< maximum number of runs
  /// seconds after which no further run begins; one half each for the whole and the split backward pass. At least three
  /// runs of each are made
  double budget = 10;
  std::shared_ptr<MeasuredDevice> device{};  ///< where the ranks compute; null: the CPU, with `backend` and `threads`
  bool tf32 = false;                         ///< the device computes products of f32 in TF32
};

}  // namespace partita
