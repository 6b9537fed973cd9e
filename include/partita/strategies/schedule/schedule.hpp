#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// What a stage does next, with one of its groups of layers and one microbatch. An action is printed as its group, a
/// letter and its microbatch ("2F0"), as in PyTorch's pipelining. A mark for each replica beyond the first follows
/// ("2F0'"). A transfer to a group other than the neighboring one adds that group ("0SEND_F3>4").
struct Action {
  enum class Kind : unsigned char {
    forward,           ///< F: forward of all layers of the group, in order
    backward,          ///< B: gradients of inputs and weights together, in reverse order
    backward_data,     ///< I: gradients of inputs only
    backward_filter,   ///< W: gradients of weights only, from what backward_data kept
    recompute,         ///< R: forward again, if the first one kept only its inputs
    send_output,       ///< SEND_F: the input of group `peer`
    receive_input,     ///< RECV_F: from group `peer`
    send_gradient,     ///< SEND_B: the gradient of what came from group `peer`
    receive_gradient,  ///< RECV_B: the gradient of what went to group `peer`
    reduce,            ///< sum of weight gradients over the ranks that hold parts of them
    step,              ///< optimizer update
  };
  Kind kind = Kind::forward;
  int group = 0;
  int microbatch = 0;  ///< 0 for reduce and step, which are for all microbatches
  int replica = 0;     ///< copy of the group's weights (Chimera keeps two)
  int peer = -1;       ///< transfers: the group at the other end

  bool is_transfer() const { return kind >= Kind::send_output && kind <= Kind::receive_gradient; }
  /// Returns true for forward, recompute and all kinds of backward: the actions that each microbatch passes through.
  bool is_compute() const { return kind <= Kind::recompute; }
  std::string print() const;
  bool operator==(const Action&) const = default;
};

/// The time of an action on one rank, in seconds of its host's steady clock: on a device, when its stream did it. The
/// wait before the action is not included.
struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

/// Which groups of layers feed which. A value.
class GroupGraph {
 public:
  /// A chain: every group feeds the next one.
  explicit GroupGraph(int groups);
  /// `edges` are pairs (producer, consumer), each once. Throws Error for an edge that leads back, or to a group that
  /// does not exist.
  GroupGraph(int groups, const std::vector<std::pair<int, int>>& edges);

  int groups() const { return static_cast<int>(producers_.size()); }
  /// The groups that feed a group, and the groups that it feeds, in ascending order.
  const std::vector<int>& producers(int group) const { return producers_[group]; }
  const std::vector<int>& consumers(int group) const { return consumers_[group]; }
  /// The number of edges, and the index of one edge, from 0; -1 if there is no such edge.
  int edges() const { return static_cast<int>(edges_.size()); }
  int edge(int producer, int consumer) const;

  bool operator==(const GroupGraph&) const = default;

 private:
  std::vector<std::vector<int>> producers_, consumers_;
  std::vector<std::pair<int, int>> edges_;  // ascending by consumer, then producer
  std::vector<int> first_;                  // by consumer: its first edge
};

/// An ordered list of actions per stage. Dependencies are derived, never stored. A value.
struct Schedule {
  std::string kind = "single";  ///< the generator's name, or the file that it was read from
  std::vector<std::vector<Action>> stages;
  /// for a schedule that was read from a file: the cell of each action, from 1; line n is stage n-1
  std::vector<std::vector<int>> cells{};

  /// Numbers of groups, microbatches and replicas in its actions: one more than the highest index.
  int groups() const;
  int microbatches() const;
  int replicas() const;
  /// Returns the stage of every group by [replica][group]: the first stage that has an action of the group, -1 if none
  /// has.
  std::vector<std::vector<int>> stages_of_groups() const;
  /// One line per stage, e.g. "0F0 0B0 reduce step".
  std::string print() const;
  /// Returns the beginning of a message about a stage, or about its action at `position`: "pipeline.csv, line 3, cell
  /// 7: ". Returns "" if the schedule was not read from a file.
  std::string source(std::optional<std::size_t> stage = {}, std::optional<std::size_t> position = {}) const;
};

/// One stage and one microbatch: forward, and in training also backward, reduction and update.
Schedule single_stage(bool training);

/// Adds communication to a schedule: a pair of actions for each transfer, and in training a reduce after the last
/// gradient of a group's weights and a step at the end. Every stage lists these in one global order, the order in which
/// they would come if each action took one unit of time. Therefore no two stages ever wait for each other, even if a
/// send ends only when it is received. Adjacent transfers are posted together. `places` is as
/// Schedule::stages_of_groups(), its default; it matters for a replica that no microbatch passes through. Throws Error,
/// as check_order, for a schedule that cannot run.
Schedule with_communication(const Schedule& schedule, const GroupGraph& graph, bool training,
                            std::vector<std::vector<int>> places = {});

/// Prints a schedule in the format of PyTorch's pipelining: a line per stage, a cell per action. Empty cells (idle
/// time) are left out, except for a stage that idles throughout. Transfers and updates are not printed.
std::string print_csv(const Schedule& schedule);
/// Parses this format. Throws Error with file, line and cell for an invalid action, and for an empty line before other
/// lines: PyTorch takes it for a stage that idles, but it usually is a mistake.
Schedule parse_csv(std::string_view text, const std::string& file);

}  // namespace partita
