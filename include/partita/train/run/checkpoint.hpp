#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <map>
#include <string>
#include <vector>

namespace partita {

/// A tensor with the name under which a checkpoint keeps it, e.g. "conv1/weight".
struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

/// Writes tensors and text attributes to one HDF5 file by global index, so that any other grid can load it: a data set
/// a tensor in logical order (F C H W), with its dimensions' names and layout as attributes. Collective: every rank of `world`
/// names all tensors, in one order, with an empty local part of those that lie on other ranks' grids.
/// The file appears under `path` only when it is whole (written beside it, synchronised, renamed): a crash leaves the
/// old one. Throws Error, alike on every rank, if the file cannot be written, and leaves nothing half-written behind.
void save_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors,
                     const std::map<std::string, std::string>& attributes, Communicator& world);

/// Reads each tensor's own box into its local part, which holds anything after an Error. Throws Error, alike on every
/// rank, if the file is missing or damaged or lacks a tensor, or holds one of another shape (both shapes named).
/// A rank names the tensors that it wants. Collective: every rank of `world` calls it.
void load_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors, Communicator& world);

/// The text attributes of a checkpoint.
std::map<std::string, std::string> checkpoint_attributes(const std::string& path);

}  // namespace partita
