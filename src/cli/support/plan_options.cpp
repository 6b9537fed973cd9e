#include "src/cli/support/plan_options.hpp"

#include "partita/base/error.hpp"
#include "src/cli/support/number_option.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace po = boost::program_options;

po::options_description plan_options(Options& o) {
  po::options_description group("Plan");
  auto add = group.add_options();
  add("ranks", number(&o.rank_counts)->multitoken()->required()->value_name("N..."),
      "number of ranks to plan for; several numbers, ascending, give a line for the best strategy on each");
  add("best", number(&o.best)->default_value(o.best)->value_name("K"), "number of strategies to write");
  add("examine", number(&o.examined)->default_value(o.examined)->value_name("N"),
      "number of candidates to bind and price exactly; a rough estimate ranks the others");
  add("out", po::value(&o.out)->value_name("PREFIX"),
      "write the strategies to PREFIX-1.toml (the best) to PREFIX-K.toml, or with several numbers of ranks to "
      "PREFIX-RANKS-1.toml and so on, and replace older files; default: plan, without replacing any file");
  add("kinds", po::value(&o.kinds)->multitoken()->value_name("KIND..."),
      "pipeline schedules to try (default 1f1b zb-h1 chimera); \"none\": only strategies of one stage");
  add("keep-batch-norm", po::bool_switch(&o.keep_batch_norm),
      "find only strategies whose batch normalization computes its statistics over the whole batch, as on one rank: "
      "those with one microbatch, if the model has any");
  add("time-limit", number(&o.time_limit)->default_value(0, "none")->value_name("SECONDS"),
      "end the search after this time with the best that was found, and say what was left out");
  add("why-not", po::value(&o.why_not)->composing()->value_name("RULE"),
      "also print what the best strategy would cost with this rule added, e.g. \"conv1: N C\"; may be repeated");
  return group;
}

void check_plan(const Options& o) {
  if (!(o.time_limit >= 0)) fail("--time-limit {}: it must be 0 (none) or more seconds", o.time_limit);
  if (o.verb == "plan" && o.rank_counts.size() > 1 && !o.why_not.empty())
    fail("--why-not prices one strategy, so it needs one number of --ranks");
  if (o.kinds.size() > 1 && std::count(o.kinds.begin(), o.kinds.end(), "none") > 0)
    fail("--kinds {}: \"none\" means one stage and cannot be combined with other kinds", fmt::join(o.kinds, " "));
}

}  // namespace partita::cli
