#include "strategies/plan/step.hpp"

#include "partita/base/error.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/stage_layers.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace partita {

DType moved_type(const Plan& plan, const StepOp& op) {
  if (op.layer < 0) return plan.workload.dtype;
  const LayerPlan& layer = plan.layers[op.layer];
  const bool reads = op.kind == StepOp::Kind::redistribute_input || op.kind == StepOp::Kind::redistribute_dx;
  return (reads ? plan.layers[layer.inputs[op.part]] : layer).op->output_type(plan.workload.dtype);
}

namespace {

using enum StepOp::Kind;

/// The approximate number of operations in one pass of one layer.
constexpr std::size_t ops_of_pass = 10;

/// Writes the operations of one action for one group of layers, in one replica and for one size of microbatch.
class GroupOps {
 public:
  GroupOps(const Plan& plan, const std::vector<LayerPlan>& layers, const StageLayers& stage_layers, int stage,
           const Action& action)
      : plan_(plan),
        layers_(layers),
        stage_layers_(stage_layers),
        replica_(stage_layers.replica(action.replica)),
        stage_(stage),
        action_(action),
        first_(static_cast<int>(stage_layers.of_group(action.group).first)),
        end_(static_cast<int>(stage_layers.of_group(action.group).second)) {}

  /// Returns a function that adds an operation.
  auto append() {
    return [this](const StepOp& op) { ops_.push_back(op); };
  }

  /// Returns the operations. `last` is true if no later action of the step computes gradients of the group's weights.
  std::vector<StepOp> write(bool last) && {
    if (action_.is_compute()) ops_.reserve(static_cast<std::size_t>(end_ - first_) * ops_of_pass);
    using Kind = Action::Kind;
    switch (action_.kind) {
      case Kind::forward: run_forward(); break;
      case Kind::backward:
      case Kind::backward_data:
      case Kind::backward_filter: run_backward(last); break;
      case Kind::recompute: broken("layers are recomputed inside their backward, not by an action of the schedule");
      case Kind::reduce:
      case Kind::step: each_group_op(plan_, action_.kind, replica_.microbatches == 0, append()); break;
      case Kind::send_output: cross(send_output, action_.group, action_.peer); break;
      case Kind::receive_input: cross(receive_input, action_.peer, action_.group); break;
      case Kind::send_gradient: cross(send_gradient, action_.peer, action_.group); break;
      case Kind::receive_gradient: cross(receive_gradient, action_.group, action_.peer); break;
    }
    gather_ahead();
    return std::move(ops_);
  }

 private:
  const LayerPlan& layer(int i) const { return layers_[i]; }
  const std::vector<int>& readers(int i) const { return replica_.readers[i]; }
  bool mine(int i) const { return i >= first_ && i < end_; }
  bool needs_output(int i) const { return replica_.needs_output[i]; }
  bool on_stage(int i) const { return plan_.stage_of(i, action_.replica) == stage_; }

  void add(StepOp::Kind kind, int layer = -1) { ops_.push_back({kind, false, 0, layer}); }

  /// Lets weights travel while the layer computes that used gathered weights before: moves each gather_weights to the
  /// one before it. So two layers' weights are gathered at a time. The first ones of an action are not hidden.
  void gather_ahead() {
    const auto gathers = [](const StepOp& op) { return op.kind == gather_weights; };
    const auto first = std::find_if(ops_.begin(), ops_.end(), gathers);
    if (first == ops_.end()) return;
    std::vector<StepOp> ahead(ops_.begin(), first + 1);
    ahead.reserve(ops_.size());
    auto next = first;
    for (auto op = first; op != ops_.end(); ++op) {
      if (op != first && op != next) ahead.push_back(*op);
      if (op != next) continue;
      next = std::find_if(op + 1, ops_.end(), gathers);
      if (next != ops_.end()) ahead.push_back(*next);
    }
    ops_ = std::move(ahead);
  }

  void run_forward() {
    const bool first = action_.group == replica_.first_group;
    if (first && !plan_.workload.training) add(release_previous);
    add(wait_inputs);
    if (first) add(read_batch);
    each_layer_of(action_.kind, first_, end_, [&](int i) {
      each_layer_op(layer(i), i, action_.kind, false, append());
      release_after_forward(i);
      add(progress, i);
    });
  }

  /// Frees the tensors that backward does not need or recomputes, and inputs that no later layer of the stage reads.
  void release_after_forward(int i) {
    if (!keeps(i)) add(release_kept, i);
    for (const int input : layer(i).inputs)
      if (readers(input).back() == i && !needs_output(input)) add(release_output, input);
  }
  bool keeps(int i) const { return plan_.workload.training && !layer(i).recompute && layer(i).has_backward(); }

  /// Runs a whole backward or one of its halves.
  void run_backward(bool last) {
    const bool data = action_.kind != Action::Kind::backward_filter;
    if (data) {
      add(wait_gradients);
      begin_backward();
    }
    each_layer_of(action_.kind, first_, end_, [&](int i) {
      if (data && layer(i).has_backward()) recompute(i);
      each_backward_op(layer(i), i, action_.kind, last, append());
    });
    if (data) release_arrived();
    if (action_.kind != Action::Kind::backward_data) release_ends();
  }

  /// Sets the state after all forwards of the microbatch: which layers kept the tensors for backward, and which outputs
  /// still exist.
  void begin_backward() {
    for (int i = first_; i < end_; ++i) {
      live_.push_back(keeps(i));
      has_output_.push_back(readers(i).empty() || needs_output(i));
    }
  }
  std::vector<bool>::reference live(int i) { return live_[i - first_]; }
  std::vector<bool>::reference has_output(int i) { return has_output_[i - first_]; }

  /// Runs the forward of a layer again if it kept nothing.
  void recompute(int i) {
    if (live(i)) return;
    restore(i);
    release_restored(i);
  }

  /// Runs the forward of a layer again, after the forwards in the group whose outputs it needs.
  void restore(int i) {
    for (const int input : layer(i).inputs)
      if (mine(input) && (!has_output(input) || (layer(input).recompute && !live(input)))) restore(input);
    add(release_output, i);  // it may still exist because it was sent to another stage
    each_forward_op(layer(i), i, true, append());
    live(i) = has_output(i) = true;
    for (const int input : layer(i).inputs)
      if (mine(input)) release_restored(input);
  }

  /// Frees the output of a restored layer when every recomputed reader has run. Readers in later groups have run by
  /// then.
  void release_restored(int i) {
    const auto waits = [&](int reader) { return mine(reader) && layer(reader).recompute && !live(reader); };
    if (!layer(i).recompute || std::any_of(readers(i).begin(), readers(i).end(), waits)) return;
    add(release_output, i);
    has_output(i) = false;
  }

  /// Frees outputs of other stages that were kept for recomputed layers. The first group that reads them frees them.
  void release_arrived() {
    std::vector<int> arrived;
    for (int i = first_; i < end_; ++i)
      for (const int input : layer(i).inputs)
        if (!on_stage(input) && readers(input).front() == i) arrived.push_back(input);
    for (const int input : arrived) add(release_output, input);
  }

  void release_ends() {
    for (int i = first_; i < end_; ++i)
      if (layer(i).inputs.empty()) add(release_images, i);
    if (mine(static_cast<int>(layers_.size()) - 1)) add(release_target);
  }

  /// Adds the transfers from layers of the group `producer` to the group `consumer`, or those of gradients back.
  void cross(StepOp::Kind kind, int producer, int consumer) {
    const auto [first, end] = stage_layers_.of_group(producer);
    for (std::size_t i = first; i < end; ++i)
      each_transfer_op(layers_[i], static_cast<int>(i), kind, consumer, append());
  }

  const Plan& plan_;
  const std::vector<LayerPlan>& layers_;
  const StageLayers& stage_layers_;
  const StageLayers::Replica& replica_;
  int stage_;
  Action action_;
  int first_, end_;  // the layers [first, end) of the group
  std::vector<bool> live_, has_output_;
  std::vector<StepOp> ops_;
};

/// Adds the sums over both copies of tables to a stage's last action `reduce`. They wait for another stage, which may
/// wait for gradients of this one.
void add_copy_ops(const Plan& plan, int stage, std::vector<StepOp>& ops) {
  const std::size_t before = ops.size();
  each_copy_op(plan, stage, [&](const StepOp& op) { ops.push_back(op); });
  if (ops.size() > before && ops.front().kind != wait_sent_gradients)
    ops.insert(ops.begin(), {wait_sent_gradients, false, 0, -1});
}

/// The operations before the first action.
std::vector<StepOp> ops_before_actions(const Plan& plan, int stage) {
  std::vector<StepOp> ops;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const LayerPlan& layer = plan.layers[i];
    const auto is_statistic = [](const WeightSpec& w) { return !w.trained; };
    if (plan.replica_on(layer.group, stage) > 0 &&
        std::any_of(layer->weights.begin(), layer->weights.end(), is_statistic))
      ops.push_back({clear_statistics, false, 0, i});
  }
  return ops;
}

}  // namespace

StepProgram::StepProgram(const Plan& plan, int stage)
    : plan_(plan),
      stage_(stage),
      stage_layers_(std::make_shared<const StageLayers>(plan, stage)),
      first_ops_(ops_before_actions(plan, stage)) {
  const StageLayers& stage_layers = *stage_layers_;
  std::map<std::pair<int, int>, int> formed;  // (replica, group) -> number of microbatches whose dw is computed so far
  std::map<std::tuple<Action::Kind, int, int, int, const void*, bool>, std::size_t> known;
  const auto reduces = [](const Action& action) { return action.kind == Action::Kind::reduce; };
  const auto last_reduce = std::find_if(actions().rbegin(), actions().rend(), reduces);
  for (const Action& action : actions()) {
    const auto& layers = plan.layers_of(action.microbatch);
    const bool last = forms_gradients(action.kind) &&
                      ++formed[{action.replica, action.group}] == stage_layers.replica(action.replica).microbatches;
    const auto [found, fresh] =
        known.try_emplace({action.kind, action.group, action.replica, action.peer, &layers, last}, lists_.size());
    if (fresh) lists_.push_back({action, GroupOps(plan, layers, stage_layers, stage, action).write(last), 0});
    if (fresh && last_reduce != actions().rend() && &action == &*last_reduce)
      add_copy_ops(plan, stage, lists_.back().ops);
    ++lists_[found->second].times;
    list_of_action_.push_back(found->second);
  }
  each_last_op(plan, [&](const StepOp& op) { last_ops_.push_back(op); });
}

RepeatedActions StepProgram::repeated() const {
  const auto& all = actions();
  const std::size_t count = all.size(), middle = count / 2;
  RepeatedActions best;
  for (std::size_t period = 1; period <= count / 8; ++period) {
    if (list_of_action_[middle] != list_of_action_[middle + period]) continue;
    const int later = all[middle + period].microbatch - all[middle].microbatch;
    const auto repeats = [&](std::size_t i) {  // what is done a period later
      return list_of_action_[i] == list_of_action_[i + period] &&
             all[i + period].microbatch - all[i].microbatch == later;
    };
    std::size_t begin = middle, end = middle;  // of the actions that repeat
    while (begin > 0 && repeats(begin - 1)) --begin;
    while (end + period < count && repeats(end)) ++end;
    const std::size_t first = first_steady(begin, period);
    // One more period follows, so that it is known what it holds.
    if (later < 1 || first + 2 * period > end || !ends_what_it_begins(first, period, later)) continue;
    const std::size_t periods = (end - first) / period - 1;
    if (periods * period > best.count) best = {first, periods * period, static_cast<int>(periods) * later};
  }
  return best;
}

bool StepProgram::ends_what_it_begins(std::size_t first, std::size_t period, int microbatches) const {
  const auto& all = actions();
  const auto of_microbatch = [&](std::size_t i) { return all[i].is_compute() || all[i].is_transfer(); };
  std::vector<std::size_t> begins(static_cast<std::size_t>(plan_.microbatches), all.size()), ends(begins.size(), 0);
  for (std::size_t i = all.size(); i-- > 0;)
    if (of_microbatch(i)) begins[all[i].microbatch] = i;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (of_microbatch(i)) ends[all[i].microbatch] = i;
  const auto inside = [&](std::size_t i) { return i >= first && i < first + period; };
  return std::count_if(begins.begin(), begins.end(), inside) == microbatches &&
         std::count_if(ends.begin(), ends.end(), inside) == microbatches;
}

std::size_t StepProgram::first_steady(std::size_t begin, std::size_t period) const {
  const auto& all = actions();
  std::vector<std::size_t> ends(static_cast<std::size_t>(plan_.microbatches), 0);
  std::size_t first = begin;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].is_compute() || all[i].is_transfer()) ends[all[i].microbatch] = i;
  for (std::size_t i = 0; i < begin; ++i) first = std::max(first, ends[all[i].microbatch]);
  return first + 2 * period;
}

}  // namespace partita
