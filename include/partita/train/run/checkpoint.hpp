#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <map>
#include <string>
#include <vector>

namespace partita {

/// A tensor with its name in a checkpoint, e.g. "conv1/weight".
struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

/// Writes tensors and text attributes to one HDF5 file by global index, so that any other grid can load it. The file
/// has one data set per tensor, in logical order (F C H W); the names of its dimensions and its layout are attributes.
///
/// Collective: every rank of `world` calls it. All ranks list all tensors in the same order. A tensor on a grid of
/// other ranks has an empty local part.
///
/// The file appears under `path` only when it is complete: it is written beside `path`, synchronized and renamed. After
/// a crash, the old file is still there. If the file cannot be written, throws the same Error on every rank and leaves
/// no incomplete file.
void save_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors,
                     const std::map<std::string, std::string>& attributes, Communicator& world);

/// Reads the local part of each tensor. Each rank lists the tensors that it needs.
/// Collective: every rank of `world` calls it.
///
/// Throws the same Error on every rank if the file is missing or damaged, if it lacks a tensor, or if a tensor has
/// another shape (the error names both shapes). After an Error, the content of the local parts is undefined.
void load_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors, Communicator& world);

/// Returns the text attributes of a checkpoint.
std::map<std::string, std::string> checkpoint_attributes(const std::string& path);

}  // namespace partita
