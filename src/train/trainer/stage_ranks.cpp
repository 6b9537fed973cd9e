#include "src/train/trainer/stage_ranks.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace partita {

StageRanks::StageRanks(const Plan& plan, Communicator& world, Processor& processor)
    : stage(plan.stage_of_rank(world.rank())), counter(std::make_shared<TrafficCounter>()) {
  control = counting(world, counter);
  const bool one_stream = processor.gradients == processor.between;
  between = counting(std::move(processor.between), counter);
  gradients = one_stream ? between : counting(std::move(processor.gradients), counter);
  const auto grid_of = [&](const std::shared_ptr<Communicator>& ranks) {
    return std::make_shared<ProcessGrid>(
        plan.grids[stage], plan.grids.size() == 1 ? ranks : ranks->split(stage, world.rank()), std::vector<AxisSet>());
  };
  grid = grid_of(between);
  gradient_grid = one_stream ? grid : grid_of(gradients);
  add(plan);
  if (plan.second_replica) {  // stages s and p-1-s, rank by rank
    const auto last = static_cast<int>(plan.grids.size()) - 1, pair = std::min(stage, last - stage);
    const int first = plan.grids[pair].first_rank();
    replica_pair = between->split(first + plan.rank_in_stage(world.rank()), world.rank());
  }
  copy_pairs.resize(plan.buckets.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const int other = plan.buckets[b].other_copy;
    if (other < static_cast<int>(b) || plan.holds_both_copies(plan.buckets[b], plan.stage_of(plan.buckets[b].last())))
      continue;
    const std::array pair{static_cast<int>(b), other};
    const auto of = std::find_if(pair.begin(), pair.end(),
                                 [&](int copy) { return plan.stage_of(plan.buckets[copy].last()) == stage; });
    const int mine = of == pair.end() ? plan.ranks() : plan.rank_in_stage(world.rank());
    auto ranks = between->split(mine, world.rank());
    if (of != pair.end()) copy_pairs[b] = copy_pairs[other] = std::move(ranks);
  }
}

void StageRanks::add(const Plan& plan) {
  grid->add(plan.axis_sets(stage));
  gradient_grid->add(plan.gradient_axis_sets(stage));
}

Index StageRanks::shared_bytes() const {
  const auto of = [](const Communicator& job, const ProcessGrid& stage_grid) {
    const Communicator& ranks = stage_grid.world();
    return job.shared_bytes() + stage_grid.shared_bytes() + (ranks.size() < job.size() ? ranks.shared_bytes() : 0);
  };
  std::set<std::shared_ptr<Communicator>> pairs(copy_pairs.begin(), copy_pairs.end());
  pairs.insert(replica_pair);
  Index bytes = 0;
  for (const auto& pair : pairs) bytes += pair ? pair->shared_bytes() : 0;
  return of(*between, *grid) + bytes + (gradients == between ? 0 : of(*gradients, *gradient_grid));
}

}  // namespace partita
