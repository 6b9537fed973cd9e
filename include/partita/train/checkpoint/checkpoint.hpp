#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace partita {

/// Returns the version of the HDF5 library; "" if this build has none. Everything below then throws Error.
std::string hdf5_version();

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
/// Equal tensors, layouts and attributes give equal files, byte for byte. A file that is replaced keeps its
/// permissions. The time that rank 0 takes to write does not count as waiting of the other ranks. Throws Error, alike
/// on every rank, if `path` names a file that is neither empty nor a checkpoint.
///
/// The file appears under `path` only when it is complete: it is written beside `path`, synchronized and renamed. After
/// a crash, the old file is still there. If the file cannot be written, throws the same Error on every rank and leaves
/// no incomplete file.
///
/// If another run writes to `path` now, throws an Error that says so.
///
/// Rank 0 calls `check` after it has locked the file, so that no other run can write it from then on. If `check` throws
/// Error, nothing is written. Returns on rank 0 the identity() of the file.
std::uint64_t save_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& attributes, Communicator& world,
                              const std::function<void()>& check = {});

/// Throws Error if save_checkpoint() could not write to `path`, as far as that can be told before: it creates the file
/// beside `path` and removes it again. That another run is writing now is no error.
void check_saving(const std::string& path);

/// A checkpoint that is open for reading. Whatever is read from it comes from one file, even if another file takes its
/// name meanwhile.
class CheckpointFile {
 public:
  /// Opens a file and checks everything except the elements of its tensors. Throws Error, with the path, if it is
  /// missing, damaged or not a checkpoint.
  explicit CheckpointFile(const std::string& path);
  ~CheckpointFile();
  CheckpointFile(CheckpointFile&&) noexcept;
  CheckpointFile& operator=(CheckpointFile&&) noexcept;

  const std::string& path() const;
  /// The text attributes.
  const std::map<std::string, std::string>& attributes() const;
  /// The shape of each tensor, as Shape::print() gives it, by the tensor's name.
  const std::map<std::string, std::string>& tensors() const;
  /// A number that differs, almost surely, for checkpoints of other content.
  std::uint64_t identity() const;
  /// Reads the local part of each tensor, as load_checkpoint() does. Throws AgreedError also if the ranks opened
  /// different files. Collective: every rank of `world` calls it.
  void load(const std::vector<NamedTensor>& tensors, Communicator& world) const;

 private:
  struct Opened;
  std::unique_ptr<const Opened> opened_;
};

/// Reads the local part of each tensor. Each rank lists the tensors that it needs.
/// Collective: every rank of `world` calls it.
///
/// Throws the same Error on every rank if the file is missing or damaged, if it lacks a tensor, or if a tensor has
/// another shape (the error names both shapes). After an Error, the content of the local parts is undefined.
void load_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors, Communicator& world);

/// Returns the text attributes of a checkpoint. Throws Error as CheckpointFile does.
std::map<std::string, std::string> checkpoint_attributes(const std::string& path);

}  // namespace partita
