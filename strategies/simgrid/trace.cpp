#include "strategies/simgrid/trace.hpp"

#include "partita/base/error.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/collective_rounds.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/op_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace partita {

namespace {

constexpr double flops_per_second = 1e9;         // of a host of the platform
constexpr int in_stage = 0, between_stages = 1;  // tags
constexpr double most_bytes = 0x7fffffff;        // of a message: the replay keeps its size in an int

/// Returns the messages with each that is larger than a replay can send in equal pieces. Pieces travel at the same time
/// and share the links, so that together they take as long as the message.
std::vector<SizedMessage> in_pieces(const std::vector<SizedMessage>& messages) {
  std::vector<SizedMessage> pieces;
  for (const auto& [peer, bytes] : messages) {
    const double number = std::max(1., std::ceil(bytes / most_bytes));
    pieces.insert(pieces.end(), static_cast<std::size_t>(number), {peer, bytes / number});
  }
  return pieces;
}

/// Writes the trace of one rank.
class RankTrace {
 public:
  RankTrace(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank)
      : plan_(plan),
        machine_(machine),
        rank_(rank),
        stage_(plan.stage_of_rank(rank)),
        builder_(plan, machine, times, splits_backward(plan.schedule)),
        kernels_(plan, times, microbatch_actions(plan.workload.training, splits_backward(plan.schedule))) {}

  std::string write() && {
    add("init");
    const StepProgram program(plan_, stage_);
    for (const StepOp& op : program.first_ops()) run(op, {});
    for (std::size_t i = 0; i < program.actions().size(); ++i)
      for (const StepOp& op : program.ops(i)) run(op, program.actions()[i]);
    for (const StepOp& op : program.last_ops()) run(op, {});
    add("finalize");
    return fmt::to_string(text_);
  }

 private:
  /// A message between stages that is under way.
  struct Pending {
    StepOp::Kind kind;
    int group, microbatch;  // of the action that started it
    int from, to;
  };

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "{} ", rank_);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_.push_back('\n');
  }
  void compute(double seconds) {
    if (seconds > 0) add("compute {:.0f}", std::ceil(seconds * flops_per_second));
  }
  void send(const SizedMessage& message, int tag) { add("isend {} {} {:.0f}", message.peer, tag, message.bytes); }
  void receive(const SizedMessage& message, int tag) { add("irecv {} {} {:.0f}", message.peer, tag, message.bytes); }
  void wait(int from, int to, int tag) { add("wait {} {} {}", from, to, tag); }

  void run(const StepOp& op, const Action& action) {
    using enum StepOp::Kind;
    const auto& layers = plan_.layers_of(action.microbatch);
    switch (op.kind) {
      case wait_inputs: return wait_for([&](const Pending& each) { return arrives(each, receive_input, action); });
      case wait_gradients:
        return wait_for([&](const Pending& each) {
          return arrives(each, receive_gradient, action) || each.kind == send_gradient ||
                 (each.kind == send_output && each.microbatch == action.microbatch);
        });
      case wait_sent_gradients: return wait_for([](const Pending& each) { return each.kind == send_gradient; });
      case finish_outputs: return wait_for([](const Pending& each) { return each.kind == send_output; });
      case receive_input:
      case receive_gradient:
      case send_output:
      case send_gradient: return start_transfer(op, action, layers);
      case sum_gradients:
      case sum_zero_gradients: return sums_.emplace_back(op, action), void();
      case finish_sums: return run_sums();
      default: break;
    }
    if (pass_of(op) == Pass::update)
      run_once(op, action);
    else if (op.layer >= 0)
      run_layer(op, action, layers[op.layer]);
  }

  void run_layer(const StepOp& op, const Action& action, const LayerPlan& layer) {
    if (pass_of(op) && !is_silent(layer, op)) run_messages(op, layer, op.layer, action.replica);
    compute(seconds_of(op, layer));
  }

  /// Runs the gradient sums that have started. They end when the rank waits for them, as in the executor: what the
  /// backward pass sends to other stages does not wait for them.
  void run_sums() {
    for (const auto& [op, action] : std::exchange(sums_, {})) run_once(op, action);
  }

  /// Runs an operation that occurs once per step, for its layer or for all layers of its group.
  void run_once(const StepOp& op, const Action& action) {
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) {
      const LayerPlan& layer = plan_.layers[i];
      if (op.layer >= 0 ? i == op.layer : layer.group == action.group) run_messages(op, layer, i, action.replica);
    }
    if (op.kind == StepOp::Kind::update)
      compute(MachineRates(builder_.terms(), machine_).update(builder_.update(action.group)));
  }

  /// Returns the seconds that an operation computes.
  double seconds_of(const StepOp& op, const LayerPlan& layer) {
    using enum StepOp::Kind;
    if (op.kind != forward && op.kind != backward_data && op.kind != backward_filter) return 0;
    const auto [known, fresh] = computing_.try_emplace(&layer);
    if (fresh) {
      LayerKernels kernels = kernels_.of(layer);
      const RankTerms terms{grid_rank(), kernels_.on_rank(kernels, grid_rank()), {}};
      const LayerCost cost = MachineRates(builder_.terms(), machine_).layer(terms);
      const double recomputed = terms.kernel.recomputes ? cost.forward.compute : 0;
      known->second = {cost.forward.compute, cost.backward_data.compute - recomputed, cost.backward_filter.compute};
    }
    const auto& [forward_seconds, data_seconds, filter_seconds] = known->second;
    return op.kind == forward ? forward_seconds : op.kind == backward_data ? data_seconds : filter_seconds;
  }
  int grid_rank() const { return rank_ - plan_.grids[stage_].first_rank(); }

  void run_messages(const StepOp& op, const LayerPlan& layer, int index, int replica) {
    OpTraffic traffic(plan_, layer, index, replica, rank_);
    traffic.keep_received();
    traffic.add(op);
    for (const PlannedTraffic& item : traffic.list()) run_messages(item);
  }

  void run_messages(const PlannedTraffic& item) {
    if (item.verb != Verb::exchange) return run_collective(item);
    for (int turn = 0; turn < item.turns; ++turn) {
      const auto in_turn = [&](const Traffic& all) {
        return balanced_block({0, all.messages}, item.turns, turn).extent();
      };
      CollectiveRound round;
      for (const PeerTraffic& peer : item.peers) {
        append(round.sent, rank_ + peer.peer, peer.sent, in_turn(peer.sent));
        append(round.received, rank_ + peer.peer, peer.received, in_turn(peer.received));
      }
      run_round(round);
    }
  }
  /// Appends some of the messages to or from a peer, which count as equally large.
  static void append(std::vector<SizedMessage>& messages, int peer, const Traffic& traffic, Index number) {
    for (Index i = 0; i < number; ++i)
      messages.push_back({peer, static_cast<double>(traffic.bytes) / static_cast<double>(traffic.messages)});
  }
  void run_round(const CollectiveRound& round) {
    const auto received = in_pieces(round.received), sent = in_pieces(round.sent);
    for (const auto& message : received) receive(message, in_stage);
    for (const auto& message : sent) send(message, in_stage);
    for (const auto& message : received) wait(message.peer, rank_, in_stage);
    for (const auto& message : sent) wait(rank_, message.peer, in_stage);
  }

  /// The ranks of a collective run the algorithm that is the cheapest for the first of them, so that all run the same.
  void run_collective(const PlannedTraffic& item) {
    const auto ranks = ranks_of(item);
    const Grid& grid = plan_.grids[plan_.stage_of_rank(ranks.front())];
    const Movement movement = builder_.movement(item, grid, ranks.front() - grid.first_rank());
    const MachineRates rates(builder_.terms(), machine_);
    const auto me = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    const auto bytes = static_cast<double>(item.traffic.bytes) / static_cast<double>(item.traffic.messages);
    const CollectiveOption& option = *rates.cheapest(movement).option;
    if (option.levels == LevelUse::in_network) broken("switches that add are no part of simgrid_machine()");
    for (Index call = 0; call < item.traffic.messages; ++call)
      for (const auto& round : CollectiveRounds(item.verb, option, machine_, ranks, bytes).of(me))
        for (double time = 0; time < round.times; ++time) {
          run_round(round);
          compute(rates.combining_seconds(round.combined));
        }
  }

  /// Returns the ranks of the world that take part in a collective.
  std::vector<int> ranks_of(const PlannedTraffic& item) const {
    const Grid& grid = plan_.grids[stage_];
    std::vector<int> ranks;
    if (item.axes != 0) {
      ranks = grid.group(grid_rank(), item.axes);
      for (int& rank : ranks) rank += grid.first_rank();
    } else if (const auto other = other_rank(plan_, item, rank_)) {
      const auto [first, last] = std::minmax({rank_, *other});
      ranks = {first, last};
    } else {
      ranks.resize(static_cast<std::size_t>(plan_.ranks()));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
    return ranks;
  }

  void start_transfer(const StepOp& op, const Action& action, const std::vector<LayerPlan>& layers) {
    using enum StepOp::Kind;
    const LayerPlan& layer = layers[op.layer];
    const bool sends = op.kind == send_output || op.kind == send_gradient;
    OpTraffic sums(plan_, layer, op.layer, action.replica, rank_);
    if (op.kind == send_output) sums.add_sums(op);
    for (const PlannedTraffic& item : sums.list()) run_messages(item);
    OpTraffic transfer(plan_, layer, op.layer, action.replica, rank_);
    transfer.add_transfer(op);
    for (const PlannedTraffic& item : transfer.list())
      for (const PeerTraffic& peer : item.peers) {
        std::vector<SizedMessage> messages;
        append(messages, rank_ + peer.peer, peer.sent, peer.sent.messages);
        for (const SizedMessage& each : in_pieces(messages)) {
          sends ? send(each, between_stages) : receive(each, between_stages);
          pending_.push_back(
              {op.kind, action.group, action.microbatch, sends ? rank_ : each.peer, sends ? each.peer : rank_});
        }
      }
  }

  static bool arrives(const Pending& each, StepOp::Kind kind, const Action& action) {
    return each.kind == kind && each.group == action.group && each.microbatch == action.microbatch;
  }
  template <class Waits>
  void wait_for(const Waits& waits) {
    for (const Pending& each : pending_)
      if (waits(each)) wait(each.from, each.to, between_stages);
    std::erase_if(pending_, waits);
  }

  const Plan& plan_;
  const Machine& machine_;
  int rank_, stage_;
  CostTermBuilder builder_;
  KernelTerms kernels_;
  std::map<const LayerPlan*, std::array<double, 3>> computing_;  // seconds of forward, backward data and filter
  std::vector<Pending> pending_;
  std::vector<std::pair<StepOp, Action>> sums_;  // that have started
  fmt::memory_buffer text_;
};

}  // namespace

std::string simgrid_trace(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank) {
  return RankTrace(plan, machine, times, rank).write();
}

}  // namespace partita
