#include "strategies/traces/simgrid_trace.hpp"

#include "partita/base/error.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/traces/step_walk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

namespace partita {

namespace {

constexpr double flops_per_second = 1e9;         // of a host of the platform
constexpr int in_stage = 0, between_stages = 1;  // tags
constexpr double most_bytes = 0x7fffffff;        // of a message: the replay keeps its size in an int

/// Returns the messages with each that is larger than a replay can send in equal pieces. Pieces travel at the same time
/// and share the links, so that together they take as long as the message.
std::vector<SizedMessage> in_pieces(std::span<const SizedMessage> messages) {
  std::vector<SizedMessage> pieces;
  for (const auto& [peer, bytes] : messages) {
    const double number = std::max(1., std::ceil(bytes / most_bytes));
    pieces.insert(pieces.end(), static_cast<std::size_t>(number), {peer, bytes / number});
  }
  return pieces;
}

/// Writes the trace of one rank.
class SimgridRank final : public StepSink {
 public:
  SimgridRank(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank)
      : plan_(plan), machine_(machine), rank_(rank), builder_(plan, machine, times, splits_backward(plan.schedule)) {
    add("init");
  }

  std::string end() && {
    add("finalize");
    return fmt::to_string(text_);
  }

  void compute(const StepLabel& /*label*/, const RankWork& work) override { compute(work.seconds); }
  void exchange(const StepLabel& /*label*/, std::span<const SizedMessage> sent,
                std::span<const SizedMessage> received) override {
    run_round(sent, received);
  }

  /// The ranks of a collective run the algorithm that is the cheapest for the first of them, so that all run the same.
  void collective(const StepLabel& /*label*/, const PlannedTraffic& item, std::span<const int> ranks) override {
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
          run_round(round.sent, round.received);
          compute(rates.combining_seconds(round.combined));
        }
  }

  void start_transfer(const StepLabel& /*label*/, bool sends, const SizedMessage& message) override {
    const auto pieces = in_pieces({&message, 1});
    for (const auto& piece : pieces) sends ? send(piece, between_stages) : receive(piece, between_stages);
    transfers_.push_back({sends ? rank_ : message.peer, sends ? message.peer : rank_, pieces.size()});
  }
  void wait_for_transfer(int transfer) override {
    const auto& [from, to, pieces] = transfers_[static_cast<std::size_t>(transfer)];
    for (std::size_t i = 0; i < pieces; ++i) wait(from, to, between_stages);
  }

 private:
  struct Transfer {
    int from, to;
    std::size_t pieces;
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

  void run_round(std::span<const SizedMessage> all_sent, std::span<const SizedMessage> all_received) {
    const auto received = in_pieces(all_received), sent = in_pieces(all_sent);
    for (const auto& message : received) receive(message, in_stage);
    for (const auto& message : sent) send(message, in_stage);
    for (const auto& message : received) wait(message.peer, rank_, in_stage);
    for (const auto& message : sent) wait(rank_, message.peer, in_stage);
  }

  const Plan& plan_;
  const Machine& machine_;
  int rank_;
  CostTermBuilder builder_;
  std::vector<Transfer> transfers_;
  fmt::memory_buffer text_;
};

}  // namespace

std::string simgrid_trace(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank) {
  SimgridRank trace(plan, machine, times, rank);
  walk_step(plan, machine, times, rank, trace);
  return std::move(trace).end();
}

}  // namespace partita
