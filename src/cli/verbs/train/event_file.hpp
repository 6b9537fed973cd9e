#pragma once

#include "partita/base/types.hpp"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::cli {

/// The Castagnoli cyclic redundancy check (CRC-32C) of the bytes of a text.
std::uint32_t crc32c(std::string_view text);

/// A named number of a step, e.g. "train/loss".
using Scalar = std::pair<std::string, double>;

/// An event file of TensorBoard: a sequence of records (length and content, each with its checksum), whose contents are
/// messages `Event` in the format of Protocol Buffers. Each event is in the file as soon as it is added. Only rank 0
/// has one.
class EventFile {
 public:
  /// Creates the folder if it is missing, and a new file in it; several files of one folder are one training for
  /// TensorBoard. With `steps_done` above 0 the file also says that the training resumes, so that TensorBoard drops
  /// what older files hold of later steps. Throws Error if the file cannot be written.
  EventFile(const std::string& folder, Index steps_done);
  /// Adds numbers of a step; those that are not a number (NaN) are left out. If that fails, prints a note once; the
  /// training goes on.
  void add(Index step, const std::vector<Scalar>& scalars);

 private:
  void write(const std::string& event);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace partita::cli
