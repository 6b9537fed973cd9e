// The lines of `explain --why` add up to what is charged, for layers of drawn strategies on machines of the examples.
#include "partita/strategies/cost/explain_cost.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "src/base/plain_text.hpp"
#include "strategies/cost/piece_cost.hpp"
#include "strategies/plan/layer_ops.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/placed.hpp"

#include <map>
#include <regex>
#include <sstream>

namespace partita::test::explain_cost_test {

namespace {

/// Returns the seconds of the lines of an explanation, by pass, and those of transfers between stages. A line that
/// tells what is hidden counts as negative, and sums before a transfer toward the forward pass.
std::map<std::string, double> sums_of_lines(const std::string& text) {
  static const std::regex line(
      "    (forward|backward data|backward filter|stages|update) +[^ ].*? +([0-9.]+) (us|ms|s) (=|of) (.*)");
  static const std::regex messages("^(the slowest of )?[0-9]+ messages?");
  std::map<std::string, double> sums;
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) {
    std::smatch match;
    if (!std::regex_match(each, match, line)) continue;
    std::string pass = match[1];
    if (pass == "stages") pass = std::regex_search(match[5].str(), messages) ? "transfers" : "forward";
    const double unit = match[3] == "s" ? 1 : match[3] == "ms" ? 1e-3 : 1e-6;
    sums[pass] += *parse_number<double>(match[2].str()) * unit * (match[4] == "of" ? -1 : 1);
  }
  return sums;
}

struct Case {
  std::string grid, rule;
  int stages = 1;
  std::string kind = "1f1b";
  bool sharded = false;
};

/// Uneven axes, ranks that do not fill nodes, both replicas of a schedule, and norms over shared updates.
const std::vector<Case> all_cases{
    {"data=5", "N@data"},
    {"data=9", "N@data", 1, "1f1b", true},
    {"y=3 data=3", "N@data H@y"},
    {"y=5 x=2", "H@y W@x"},
    {"c=5", "C@c"},
    {"data=4 c=3", "N@data C@c", 1, "1f1b", true},
    {"data=3", "N@data", 2, "chimera"},
    {"data=2 y=3", "N@data H@y", 2, "zb-h1", true},
    {"c=3 y=2", "C@c H@y", 2, "1f1b"},
};

Plan planned(const Model& model, const Case& each) {
  Strategy strategy = all_as(each.grid, each.rule);
  if (each.stages > 1) strategy.stages(each.stages).schedule(each.kind, 2);
  if (each.sharded) strategy.optimizer_state(Strategy::OptimizerState::sharded);
  Workload workload{.batch = 14, .optimizer = {}};
  workload.optimizer.method = Method::lars;
  return bind_placed(model, strategy, workload);
}

TEST(ExplainCost, LinesAddUpToWhatIsCharged) {
  const Model model = builtin_model("lenet5", {});
  const KernelTimes none;
  for (const Machine& machine : {clustered_machine(4, 1), machine_of_racks(3, 2, 1), dgx_h100()})
    for (const Case& each : all_cases) {
      const Plan plan = planned(model, each);
      const auto transfers = estimate(plan, machine).transfers;
      const PieceCost price(plan, machine, none, splits_backward(plan.schedule));
      for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
        const std::string text = explain_cost(plan, machine, {}, i);
        auto sums = sums_of_lines(text);
        const LayerCost layer = price.layer(i, false);
        const GradReduceCost once = price.sums(i);
        const auto expect = [&](const std::string& pass, double charged) {
          EXPECT_NEAR(sums[pass], charged, 1e-9 + 2e-3 * charged)
              << pass << " of " << plan.layers[i].name << " on " << machine.name << ", " << each.grid << " "
              << each.rule << " in " << each.stages << " stages\n"
              << text;
        };
        expect("forward", layer.forward.total());
        expect("backward data", layer.backward_data.total());
        expect("backward filter", layer.backward_filter.total());
        const bool sends = !plan.layers[i].sends_to_stages.empty();  // one layer does, and its gradient returns
        expect("transfers", sends ? 2 * transfers.at(0) : 0);
        expect("update", once.seconds + once.replicas + once.after + once.loss);
      }
    }
}

}  // namespace

}  // namespace partita::test::explain_cost_test
