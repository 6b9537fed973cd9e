#include "src/cli/support/watch_options.hpp"

#include "partita/base/error.hpp"
#include "partita/base/plain_text.hpp"
#include "src/cli/support/number_option.hpp"

namespace partita::cli {

namespace po = boost::program_options;

double WatchOptions::held_out() const {
  if (!validates() || validates_on_test()) return 0;
  const double fraction = parse_number<double>(validate).value_or(0);
  if (!(fraction > 0 && fraction < 1))
    fail(
        "--validate {}: give the fraction of the training set to hold out, between 0 and 1 (e.g. 0.1), or \"test\" for "
        "the test set",
        validate);
  return fraction;
}

po::options_description watch_options(WatchOptions& o) {
  po::options_description group("Validation, curves and checks");
  auto add = group.add_options();
  add("validate", po::value(&o.validate)->value_name("PART"),
      "validate after every epoch: on a fraction of the training set, e.g. 0.1, which is then never trained on, or on "
      "the test set (\"test\")");
  add("best", po::value(&o.best)->value_name("FILE"),
      "write a checkpoint to FILE whenever the validation loss is the lowest so far");
  add("patience", number(&o.patience)->value_name("N"),
      "stop after N epochs in a row without a new lowest validation loss");
  add("log", po::value(&o.log)->value_name("FILE"),
      "write a row per step to FILE as CSV, at once; a training that resumes appends to it");
  add("tensorboard", po::value(&o.tensorboard)->value_name("DIR"),
      "write the curves to an event file in DIR, which TensorBoard shows");
  add("check-replicas", number(&o.check_replicas)->value_name("N"),
      "compare all replicas of weights and optimizer states, bit for bit, after every N steps and at the end; default: "
      "at the end only; 0: never");
  return group;
}

void check(const WatchOptions& o) {
  o.held_out();
  if (o.check_replicas < 0) fail("--check-replicas {}: it must be 0 or more", o.check_replicas);
  if (o.patience < 0) fail("--patience {}: it must be 1 or more", o.patience);
  for (const auto& [option, given] : {std::pair("--best", !o.best.empty()), std::pair("--patience", o.patience > 0)})
    if (given && !o.validates()) fail("{} needs a validation: add --validate 0.1, or --validate test", option);
}

}  // namespace partita::cli
