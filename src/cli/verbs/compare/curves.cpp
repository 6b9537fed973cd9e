#include "src/cli/verbs/compare/curves.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/memory_remedies.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/rank_patterns.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/output/compared.hpp"
#include "src/cli/output/plan_notes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace partita::cli {

namespace {

/// A strategy's predicted step on a number of ranks.
struct Point {
  std::string strategy;
  int ranks = 1;
  Index batch = 0;
  double seconds = 0, efficiency = 0, rate = 0;
  CostParts parts{};
  Index memory = 0;  ///< bytes of the rank that holds most
  bool fits = true;
  std::vector<std::string> notes{};
};

/// The points of all strategies, and what else there is to say.
struct Curves {
  std::vector<Point> points;  ///< by strategy, then by rank count
  std::vector<std::string> notes;
};

class CurvePrices {
 public:
  CurvePrices(const CompareOptions& options, const ModelFactory& factory)
      : options_(options), files_(load_machine(options)), model_(make_model(options, factory)) {}

  const MachineFiles& files() const { return files_; }
  const Model& model() const { return model_; }
  Index limit() const { return limit_of(options_, files_.machine); }

  Point price(const RankCase& of) {
    const Workload workload = workload_on(of.ranks);
    Point point{.strategy = of.name, .ranks = of.ranks, .batch = workload.batch};
    try {
      const Settled found = settle_strategy(options_, model_, of.strategy, workload, files_.machine, files_.times);
      const Plan plan = bind(model_, found.strategy, workload);
      if (auto note = short_choice_note(found.choices); !note.empty()) point.notes.push_back(std::move(note));
      const Cost cost = estimate(plan, files_.machine, files_.times);
      point.seconds = cost.seconds;
      point.rate = cost.samples_per_second;
      point.parts = cost.parts;
      point.memory = cost.memory.total;
      point.fits = most_held(cost, limit()).missing == 0;
      if (auto note = idle_ranks_note(plan); !note.empty()) point.notes.push_back(std::move(note));
    } catch (const Error& error) {
      fail("{} on {} ranks: {}", of.name, of.ranks, error.what());
    }
    point.efficiency = seconds_alone() / point.seconds / (options_.weak ? 1 : of.ranks);
    return point;
  }

 private:
  Workload workload_on(int ranks) const {
    Workload workload = make_workload(options_);
    if (options_.weak) workload.batch *= ranks;
    return workload;
  }
  /// Seconds of a step of the serial program with --batch.
  double seconds_alone() {
    if (alone_ == 0) alone_ = estimate(bind(model_, Strategy(), workload_on(1)), files_.machine, files_.times).seconds;
    return alone_;
  }

  const CompareOptions& options_;
  MachineFiles files_;
  Model model_;
  double alone_ = 0;
};

/// Prices every strategy on the numbers of ranks that it divides.
Curves priced(const CompareOptions& options, CurvePrices& prices) {
  Curves curves;
  for (const auto& pattern : rank_patterns(options.strategies, options.grids, options)) {
    std::vector<int> left_out;
    for (const int ranks : options.rank_counts) {
      const auto one = on_ranks(pattern, ranks, options);
      one ? curves.points.push_back(prices.price(*one)) : left_out.push_back(ranks);
      if (!one) continue;
      for (const auto& note : curves.points.back().notes)
        curves.notes.push_back(fmt::format("{} on {} ranks: {}", pattern.name(), ranks, note));
    }
    if (!left_out.empty())
      curves.notes.push_back(
          fmt::format("{} does not divide {} ranks; left out", pattern.name(), fmt::join(left_out, ", ")));
  }
  if (curves.points.empty()) fail("{}; add a number of ranks that a grid divides", fmt::join(curves.notes, "; "));
  return curves;
}

/// The fastest point that fits on each number of ranks, ascending.
std::map<int, const Point*> fastest(const std::vector<Point>& points) {
  std::map<int, const Point*> best;
  for (const Point& point : points)
    if (point.fits)
      if (const auto [at, added] = best.try_emplace(point.ranks, &point); !added && point.seconds < at->second->seconds)
        at->second = &point;
  return best;
}

void print_points(const std::vector<Point>& points) {
  std::string before;
  for (const Point& point : points) {
    if (point.strategy != before)
      fmt::print("{}strategy {}\n{:>7} {:>8} {:>10} {:>6} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9}\n",
                 before.empty() ? "" : "\n", point.strategy, "ranks", "batch", "ms/step", "effic.", "samples/s",
                 "compute", "comm.", "gradients", "update", "bubble", "(hidden)", "MiB held");
    before = point.strategy;
    const CostParts& p = point.parts;
    fmt::print(
        "{:>7} {:>8} {:>10.3f} {:>5.0f}% {:>10} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>9.1f}{}\n",
        point.ranks, point.batch, point.seconds * ms, 100 * point.efficiency, print_rate(point.rate),
        p.passes.compute * ms, (p.passes.communication() + p.transfers) * ms, p.grad_reduce * ms, p.update * ms,
        p.bubble * ms, p.hidden * ms, static_cast<double>(point.memory) / mib, point.fits ? "" : "  does not fit");
  }
}

/// Prints where the fastest strategy changes: "fastest: data={} on 1 to 64 ranks, data={} y=4 on 128 to 4096 ranks".
void print_crossings(const std::vector<Point>& points) {
  std::vector<std::string> spans;
  const auto best = fastest(points);
  for (auto from = best.begin(); from != best.end();) {
    auto to = from;
    while (std::next(to) != best.end() && std::next(to)->second->strategy == from->second->strategy) ++to;
    spans.push_back(from == to ? fmt::format("{} on {} ranks", from->second->strategy, from->first)
                               : fmt::format("{} on {} to {} ranks", from->second->strategy, from->first, to->first));
    from = std::next(to);
  }
  if (!spans.empty()) fmt::print("\nfastest: {}\n", fmt::join(spans, ", "));
}

std::string print_csv(const std::vector<Point>& points) {
  std::string text = "strategy,ranks,seconds,efficiency";
  for (const auto& [part, seconds] : named_parts(points.front().parts)) text += "," + part;
  text += ",hidden,memory,fits\n";
  for (const Point& point : points) {
    text += fmt::format("\"{}\",{},{},{}", point.strategy, point.ranks, point.seconds, point.efficiency);
    for (const auto& [part, seconds] : named_parts(point.parts)) text += fmt::format(",{}", seconds);
    text += fmt::format(",{},{},{}\n", point.parts.hidden, point.memory, point.fits);
  }
  return text;
}

Json curves_json(const CompareOptions& options, const CurvePrices& prices, const Curves& curves) {
  Json json{{"subject", "curves"},
            {"machine", prices.files().machine.name},
            {"model", prices.model().name()},
            {"batch", options.trainer.batch},
            {"dtype", name(options.trainer.dtype)},
            {"scaling", options.weak ? "weak" : "strong"},
            {"notes", curves.notes},
            {"points", Json::array()},
            {"fastest", Json::array()}};
  for (const Point& point : curves.points) {
    Json parts;
    for (const auto& [part, seconds] : named_parts(point.parts)) parts[part] = seconds;
    json["points"].push_back({{"strategy", point.strategy},
                              {"ranks", point.ranks},
                              {"batch", point.batch},
                              {"seconds", point.seconds},
                              {"efficiency", point.efficiency},
                              {"images_per_second", point.rate},
                              {"parts", parts},
                              {"hidden", point.parts.hidden},
                              {"memory", point.memory},
                              {"fits", point.fits}});
  }
  for (const auto& [ranks, point] : fastest(curves.points))
    json["fastest"].push_back({{"ranks", ranks}, {"strategy", point->strategy}});
  return json;
}

}  // namespace

int compare_curves(const CompareOptions& options, const ModelFactory& factory) {
  check_writable({{"--json", options.json, FileKind::json}, {"--csv", options.csv}}, strategy_files(options));
  CurvePrices prices(options, factory);
  const Curves curves = priced(options, prices);
  fmt::print("machine  {}\n", prices.files().machine.name);
  if (!prices.files().note.empty()) fmt::print("note     {}\n", prices.files().note);
  for (const auto& note : curves.notes) fmt::print("note     {}\n", note);
  fmt::print("{} scaling: batch {} {}\n\n", options.weak ? "weak" : "strong", options.trainer.batch,
             options.weak ? "per rank" : "over all ranks");
  print_points(curves.points);
  print_crossings(curves.points);
  if (!options.csv.empty()) write_text("--csv", options.csv, print_csv(curves.points));
  if (!options.json.empty()) write_text("--json", options.json, print_json(curves_json(options, prices, curves)));
  std::fflush(stdout);
  if (std::none_of(curves.points.begin(), curves.points.end(), [](const Point& point) { return point.fits; }))
    throw AgreedError(fmt::format("no strategy fits in {} per rank", print_bytes(prices.limit())));
  return 0;
}

}  // namespace partita::cli
