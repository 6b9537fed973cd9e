#pragma once

#include "partita/base/optimizer.hpp"
#include "partita/train/trainer/trainer.hpp"

#include <boost/program_options.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

// Options that only some optimizers use.

/// Returns which optimizers use an option of this table, e.g. "used by adam, adamw and lamb".
std::string used_by(std::string_view option);
/// The options that this optimizer does not use.
std::vector<std::string> unused_options(Method method);
/// Throws Error if an option is given that the chosen optimizer does not use.
void check_used(const boost::program_options::variables_map& values, Method method);

/// Returns notes on a learning rate that does not do what its options seem to say in a training of `steps` steps.
/// Throws Error if the rate would be 0 in some of them.
std::vector<std::string> check_rates(const TrainerOptions& o, Index steps);

}  // namespace partita::cli
