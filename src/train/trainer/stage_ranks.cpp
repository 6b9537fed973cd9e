#include "src/train/trainer/stage_ranks.hpp"

#include <algorithm>
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
  return of(*between, *grid) + (replica_pair ? replica_pair->shared_bytes() : 0) +
         (gradients == between ? 0 : of(*gradients, *gradient_grid));
}

}  // namespace partita
