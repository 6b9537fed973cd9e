#pragma once

#include "partita/base/error.hpp"

#include <string_view>

namespace partita {

/// Throws Error: this build cannot handle `what`, which is in an HDF5 file.
[[noreturn]] inline void refuse_without_hdf5(std::string_view what) {
  fail("{}: this build has no HDF5; install HDF5 (libhdf5-dev) and configure again with -Dhdf5=enabled", what);
}

}  // namespace partita
