#pragma once

#include "partita/train/trainer/rank_device.hpp"

#include <boost/program_options.hpp>

namespace partita::cli {

/// Adds the options that say where ranks compute. A notification stores them in `device`.
void add_device_options(boost::program_options::options_description& group, DeviceOptions& device);

/// Adds the option that forbids graphs (TrainerOptions::graphs).
void add_graph_option(boost::program_options::options_description& group, bool& graphs);

/// Adds those of `explain`, which describe a card but run nothing on it.
void add_explained_device(boost::program_options::options_description& group, DeviceOptions& device);

}  // namespace partita::cli
