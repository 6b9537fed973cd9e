#pragma once

#include "partita/train/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

/// Skips a test that saves checkpoints if this build lacks HDF5 (-Dhdf5=disabled).
#define PARTITA_NEED_HDF5() \
  if (hdf5_version().empty()) GTEST_SKIP() << "this build lacks HDF5"
