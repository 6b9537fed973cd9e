#pragma once

#include "partita/base/types.hpp"

#include <boost/program_options.hpp>

#include <limits>
#include <string>

namespace partita::cli {

/// What a training records and validates while it runs.
struct WatchOptions {
  std::string log;          ///< CSV file with a row per step; "" for none
  std::string tensorboard;  ///< folder for TensorBoard's event files; "" for none
  std::string validate;     ///< "test", or the fraction of the training set to hold out; "" for none
  std::string best;         ///< checkpoint of the epoch with the lowest validation loss; "" for none
  Index patience = 0;       ///< stop after so many epochs without a lower validation loss; 0: never
  /// Compare the replicas of all weights after each so many steps, and at the end; 0: never.
  Index check_replicas = std::numeric_limits<Index>::max();

  bool validates() const { return !validate.empty(); }
  bool validates_on_test() const { return validate == "test"; }
  /// The fraction of the training set that is held out; 0 for none. Throws Error if `validate` is neither "test" nor a
  /// number between 0 and 1.
  double held_out() const;
};

/// Describes the options for the help and the parser.
/// @pre `o` outlives the description.
boost::program_options::options_description watch_options(WatchOptions& o);
/// Throws Error for a bad value, and for an option that has no effect without --validate.
void check(const WatchOptions& o);

}  // namespace partita::cli
