#include "src/cli/verbs/train/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace partita::cli {

namespace {

using Seconds = Profile::Seconds;

void print_row(std::string_view what, const Seconds& seconds, double steps, double delayed = 0) {
  double sum = 0;
  fmt::print("  {:<20}", what);
  for (const auto part :
       {Profile::Part::compute, Profile::Part::exchange, Profile::Part::wait, Profile::Part::framework}) {
    const double value = seconds[static_cast<std::size_t>(part)] / steps * 1e3;
    fmt::print(" {:>10.3f}", value);
    sum += value;
  }
  fmt::print(" {:>10.3f}{}\n", sum, delayed > 0 ? fmt::format(" + {:.3f} delayed", delayed / steps * 1e3) : "");
}

void add(const Seconds& from, Seconds& to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

}  // namespace

void print_profile(Profile& profile, Index steps, const std::vector<LayerPlan>& layers, Communicator& world) {
  const auto by_layer = profile.by_layer();  // a copy, because the calls below are profiled too
  Seconds all{}, delay{};
  for (const auto& [layer, seconds] : by_layer) add(seconds, layer == delay_layer ? delay : all);
  const std::vector<double> delayed = gather_numbers(world, std::accumulate(delay.begin(), delay.end(), 0.));
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<Seconds> by_rank(ranks);
  const std::vector<Index> counts(ranks, static_cast<Index>(all.size()));
  world.all_gather(all.data(), by_rank.data(), counts, DType::f64, {}).wait();
  if (world.rank() != 0 || steps == 0) return;

  const auto count = static_cast<double>(steps);
  fmt::print("\nmilliseconds per step ({} steps)\n  {:<20} {:>10} {:>10} {:>10} {:>10} {:>10}\n", steps,
             "layer, on rank 0", "compute", "exchange", "wait", "framework", "total");
  const auto row = [&](std::string_view name, std::string_view shown) {
    if (const auto found = by_layer.find(name); found != by_layer.end()) print_row(shown, found->second, count);
  };
  row("data", "data");
  for (const auto& layer : layers) row(layer.name, layer.name);
  for (const char* name : {"gradients", "optimizer"}) row(name, name);
  row("", "between layers");
  print_row("total", all, count, delayed[0]);
  constexpr std::size_t shown = 16;
  for (std::size_t rank = 0; rank < ranks && rank < shown && ranks > 1; ++rank)
    print_row(fmt::format("rank {}", rank), by_rank[rank], count, delayed[rank]);
  const auto compute = [](const Seconds& seconds) { return seconds[static_cast<std::size_t>(Profile::Part::compute)]; };
  double most = 0, sum = 0;
  for (const auto& seconds : by_rank) {
    most = std::max(most, compute(seconds));
    sum += compute(seconds);
  }
  if (sum > 0)
    fmt::print("  imbalance {:.3f} (largest compute time of a rank, divided by the mean over ranks)\n",
               most * static_cast<double>(ranks) / sum);
}

}  // namespace partita::cli
