#include "partita/strategies/schedule/validate.hpp"

#include "partita/base/error.hpp"
#include "strategies/schedule/stuck.hpp"

#include <algorithm>
#include <optional>

namespace partita {

namespace {

using Kind = Action::Kind;

[[noreturn]] void refuse(const Schedule& schedule, std::size_t stage, std::size_t position, const std::string& why) {
  Heads heads;
  for (const auto& actions : schedule.stages) heads.push_back(actions.size());
  heads[stage] = position;
  fail("{}stage {}: {} {}{}", schedule.source(stage, position), stage, schedule.stages[stage][position].print(), why,
       draw_heads(schedule, heads));
}

/// Returns why an action cannot be where it is; "" if it can.
std::string wrong_with(const Action& action, std::size_t stage, const Dependencies& dependencies, bool training) {
  const int place = dependencies.stage(action.replica, action.group);
  if (place != static_cast<int>(stage))
    return fmt::format("belongs to a group that stage {} runs; a group must be on one stage", place);
  if (!action.is_compute()) return "";
  if (action.replica != dependencies.replica_of(action.microbatch))
    return fmt::format("is on another replica than earlier actions of microbatch {}", action.microbatch);
  if (!training && action.kind != Kind::forward) return "must not be in a schedule without training";
  return "";
}

[[noreturn]] void refuse_missing(const Schedule& schedule, int stage, const Action& action) {
  fail("{}stage {}: {} is missing", schedule.source(static_cast<std::size_t>(stage)), stage, action.print());
}

void check_there(int group, int microbatch, const Schedule& schedule, const Dependencies& dependencies, bool training) {
  const int replica = dependencies.replica_of(microbatch), stage = dependencies.stage(replica, group);
  if (stage < 0) fail("{}group {}: no stage runs it", schedule.source(), group);
  const auto there = [&](Kind kind) { return dependencies.has({kind, group, microbatch, replica}); };
  const auto need = [&](Kind kind) {
    if (!there(kind)) refuse_missing(schedule, stage, {kind, group, microbatch, replica});
  };
  need(Kind::forward);
  if (!training) return;
  const bool data = there(Kind::backward_data), filter = there(Kind::backward_filter);
  if (!data && !filter) return need(Kind::backward);
  need(Kind::backward_data);
  need(Kind::backward_filter);
  if (const Action whole{Kind::backward, group, microbatch, replica}; there(Kind::backward))
    fail("{}stage {}: there are {} and {}, which is half of it",
         schedule.source(static_cast<std::size_t>(stage), find_action(schedule, whole).second), stage, whole.print(),
         Action{Kind::backward_data, group, microbatch, replica}.print());
}

/// If one group is updated, all groups must be, on every replica.
void check_updates(const Schedule& schedule, const Dependencies& dependencies) {
  const auto is_update = [](const Action& a) { return a.kind == Kind::reduce || a.kind == Kind::step; };
  if (std::none_of(schedule.stages.begin(), schedule.stages.end(),
                   [&](const auto& list) { return std::any_of(list.begin(), list.end(), is_update); }))
    return;
  for (int replica = 0; replica < schedule.replicas(); ++replica)
    for (int group = 0; group < dependencies.graph().groups(); ++group)
      for (const Kind kind : {Kind::reduce, Kind::step})
        if (const Action action{kind, group, 0, replica}; !dependencies.has(action))
          refuse_missing(schedule, dependencies.stage(replica, group), action);
}

}  // namespace

void check_complete(const Schedule& schedule, const GroupGraph& graph, bool training) {
  const Dependencies dependencies(schedule, graph);
  std::vector<bool> seen(dependencies.size(), false);
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    for (std::size_t i = 0; i < schedule.stages[stage].size(); ++i) {
      const Action& action = schedule.stages[stage][i];
      if (const std::string why = wrong_with(action, stage, dependencies, training); !why.empty())
        refuse(schedule, stage, i, why);
      if (seen[dependencies.index(action)]) refuse(schedule, stage, i, "comes twice");
      seen[dependencies.index(action)] = true;
    }
  for (int m = 0; m < schedule.microbatches(); ++m)
    for (int group = 0; group < graph.groups(); ++group) check_there(group, m, schedule, dependencies, training);
  check_updates(schedule, dependencies);
}

void check_order(const Schedule& schedule, const GroupGraph& graph) {
  static_cast<void>(simulate(schedule, graph, equal_times(graph.groups(), 1, {}, 0)));
}

namespace {

/// The actions on other stages that an action meets: a transfer's counterpart, or the reduces of the other replicas.
std::vector<Action> others(const Action& a, int replicas) {
  if (a.kind == Kind::reduce) {
    std::vector<Action> all;
    for (int r = 0; r < replicas; ++r)
      if (r != a.replica) all.push_back({Kind::reduce, a.group, a.microbatch, r});
    return all;
  }
  const auto pair = [&](Kind kind) { return std::vector{Action{kind, a.peer, a.microbatch, a.replica, a.group}}; };
  switch (a.kind) {
    case Kind::send_output: return pair(Kind::receive_input);
    case Kind::receive_input: return pair(Kind::send_output);
    case Kind::send_gradient: return pair(Kind::receive_gradient);
    case Kind::receive_gradient: return pair(Kind::send_gradient);
    default: return {};
  }
}

/// Runs a schedule in which a send ends only when it is received. Adjacent transfers are posted together.
class Rendezvous {
 public:
  Rendezvous(const Schedule& schedule, const GroupGraph& graph)
      : schedule_(schedule),
        replicas_(schedule.replicas()),
        dependencies_(schedule, graph),
        posted_(dependencies_.size(), false),
        heads_(schedule.stages.size(), 0) {}

  void run() {
    run_all_stages(
        schedule_, heads_, [&](std::size_t stage) { return advance(stage); },
        [&](int waiting) { return wait(waiting); });
  }

 private:
  bool posted(const Action& action) const { return posted_[dependencies_.index(action)]; }

  /// Returns what the first unmet action waits for, among the actions posted together at the stage's head. Nothing if
  /// all are met.
  std::optional<Wait> unmet(std::size_t stage, std::size_t end) const {
    for (std::size_t i = heads_[stage]; i < end; ++i)
      for (const Action& other : others(schedule_.stages[stage][i], replicas_))
        if (!posted(other)) return Wait{static_cast<int>(stage), schedule_.stages[stage][i], other};
    return std::nullopt;
  }

  std::size_t end_of_group(std::size_t stage) const {
    const auto& actions = schedule_.stages[stage];
    std::size_t end = heads_[stage];
    while (end < actions.size() && !others(actions[end], replicas_).empty()) ++end;
    return std::max(end, heads_[stage] + 1);
  }

  bool advance(std::size_t stage) {
    const auto& actions = schedule_.stages[stage];
    if (heads_[stage] == actions.size()) return false;
    const std::size_t end = end_of_group(stage);
    bool news = false;
    for (std::size_t i = heads_[stage]; i < end; ++i) {
      news = news || !posted(actions[i]);
      posted_[dependencies_.index(actions[i])] = true;
    }
    if (unmet(stage, end)) return news;
    heads_[stage] = end;
    return true;
  }

  Wait wait(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    return *unmet(s, end_of_group(s));
  }

  const Schedule& schedule_;
  int replicas_;
  Dependencies dependencies_;
  std::vector<bool> posted_;
  Heads heads_;
};

/// Checks that messages between two stages are received in the order in which they are sent.
void check_same_order(const Schedule& schedule, const GroupGraph& graph) {
  const Dependencies dependencies(schedule, graph);
  const auto stages = schedule.stages.size();
  std::vector<std::vector<Action>> sent(stages * stages),
      received(stages * stages);  // by sender and receiver, as sends
  for (std::size_t stage = 0; stage < stages; ++stage)
    for (const auto& a : schedule.stages[stage]) {
      if (!a.is_transfer()) continue;
      const auto peer = static_cast<std::size_t>(dependencies.stage(a.replica, a.peer));
      if (a.kind == Kind::send_output || a.kind == Kind::send_gradient)
        sent[stage * stages + peer].push_back(a);
      else
        received[peer * stages + stage].push_back(others(a, 1).front());
    }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto [s, r] = std::mismatch(sent[i].begin(), sent[i].end(), received[i].begin(), received[i].end());
    const auto named = [](auto at, auto end) { return at == end ? "nothing more" : at->print(); };
    if (s != sent[i].end() || r != received[i].end())
      fail("stage {} sends {} to stage {}, which expects to receive {}", i / stages, named(s, sent[i].end()),
           i % stages, named(r, received[i].end()));
  }
}

}  // namespace

void check_rendezvous(const Schedule& schedule, const GroupGraph& graph) {
  check_same_order(schedule, graph);
  Rendezvous(schedule, graph).run();
}

void check_peak(const Schedule& schedule, const std::vector<GroupMemory>& memory, double limit) {
  const auto peaks = peak_memory(schedule, memory);
  for (std::size_t stage = 0; stage < peaks.size(); ++stage)
    if (peaks[stage] > limit * (1 + 1e-12))
      fail("{}stage {}: it holds up to {:.6g}, more than the limit of {:.6g}", schedule.source(stage), stage,
           peaks[stage], limit);
}

void check_schedule(const Schedule& schedule, const GroupGraph& graph, bool training,
                    const std::vector<GroupMemory>& memory, double limit) {
  check_complete(schedule, graph, training);
  const Schedule whole = with_communication(schedule, graph, training);
  check_complete(whole, graph, training);
  check_order(whole, graph);
  check_rendezvous(whole, graph);
  if (limit > 0) check_peak(schedule, memory, limit);
}

}  // namespace partita
