#include "strategies/plan/stage_layers.hpp"

#include <algorithm>

namespace partita {

namespace {

StageLayers::Replica replica_on(const Plan& plan, int stage, int number) {
  StageLayers::Replica replica;
  while (plan.stage_running(replica.first_group, number) != stage) ++replica.first_group;
  replica.microbatches = plan.microbatches_of(number);
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    replica.readers.push_back(plan.readers(i, stage, number));
    replica.needs_output.push_back(plan.needs_output(i, stage, number));
  }
  return replica;
}

}  // namespace

StageLayers::StageLayers(const Plan& plan, int stage)
    : groups_(plan.stage_of_group.size(), {plan.layers.size(), 0}), numbers_(plan.layers.size(), 0) {
  for (int number = 0; number < plan.replicas(); ++number) replicas_.push_back(replica_on(plan, stage, number));
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const int group = plan.layers[i].group;
    auto& [first, end] = groups_[group];
    first = std::min(first, i);
    end = i + 1;
    const auto reads = [&](const Replica& replica) { return !replica.readers[i].empty(); };
    if (plan.replica_on(group, stage) >= 0 || std::any_of(replicas_.begin(), replicas_.end(), reads))
      numbers_[i] = count_++;
  }
}

}  // namespace partita
