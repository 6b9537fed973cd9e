#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// What a stage does next with one of its groups of layers and one microbatch. In texts an action is its group, a letter
/// and its microbatch ("2F0"), as PyTorch's pipelining writes it; of another replica than the first with a mark for each
/// ("2F0'"), a transfer to another than the neighbouring group with that one ("0SEND_F3>4").
struct Action {
  enum class Kind : unsigned char {
    forward,           ///< F: all layers of the group, in order
    backward,          ///< B: their gradients, in reverse order: of inputs and weights together
    backward_data,     ///< I: of inputs alone
    backward_filter,   ///< W: of weights alone, from what backward_data kept
    recompute,         ///< R: forward once more, where it kept nothing but its inputs
    send_output,       ///< SEND_F: what the group `peer` takes in
    receive_input,     ///< RECV_F: from the group `peer`
    send_gradient,     ///< SEND_B: of what came from the group `peer`
    receive_gradient,  ///< RECV_B: of what went to the group `peer`
    reduce,            ///< sums of weight gradients over the ranks that formed parts of them
    step,              ///< the optimizer's update
  };
  Kind kind = Kind::forward;
  int group = 0;
  int microbatch = 0;  ///< 0 for reduce and step, which are of all
  int replica = 0;     ///< which copy of the group's weights (Chimera keeps two)
  int peer = -1;       ///< transfers: the group at the other end

  bool is_transfer() const { return kind >= Kind::send_output && kind <= Kind::receive_gradient; }
  /// True for forward, recompute and the backwards: what a microbatch goes through.
  bool is_compute() const { return kind <= Kind::recompute; }
  std::string print() const;
  bool operator==(const Action&) const = default;
};

/// Which groups of layers feed which. A value.
class GroupGraph {
 public:
  /// A chain: every group feeds the next one.
  explicit GroupGraph(int groups);
  /// `edges` are (producer, consumer), each once. Throws Error for one that leads back or out of the groups.
  GroupGraph(int groups, const std::vector<std::pair<int, int>>& edges);

  int groups() const { return static_cast<int>(producers_.size()); }
  /// What a group takes in, in ascending order, and what takes in its output.
  const std::vector<int>& producers(int group) const { return producers_[static_cast<std::size_t>(group)]; }
  const std::vector<int>& consumers(int group) const { return consumers_[static_cast<std::size_t>(group)]; }
  /// How many edges there are, and the number of one of them, from 0; -1 if it is none.
  int edges() const { return static_cast<int>(edges_.size()); }
  int edge(int producer, int consumer) const;

  bool operator==(const GroupGraph&) const = default;

 private:
  std::vector<std::vector<int>> producers_, consumers_;
  std::vector<std::pair<int, int>> edges_;  // ascending by consumer, then producer
  std::vector<int> first_;                  // by consumer: its first edge
};

/// An ordered list of actions a stage; dependencies are derived, never stored. A value.
struct Schedule {
  std::string kind = "single";  ///< the generator's name, or the file that it was read from
  std::vector<std::vector<Action>> stages;
  std::vector<std::vector<int>>
      cells{};  ///< of one that was read: the cell of each action, from 1; line n is stage n-1

  /// Groups, microbatches and replicas of its actions: one more than the highest number.
  int groups() const;
  int microbatches() const;
  int replicas() const;
  /// The stage of every group by replica, [replica][group]: the first that has an action of it, -1 for none.
  std::vector<std::vector<int>> stages_of_groups() const;
  /// One line a stage, e.g. "0F0 0B0 reduce step".
  std::string print() const;
  /// How a message about a stage, or about its action at `position`, begins: "pipeline.csv, line 3, cell 7: "; "" if the
  /// schedule was not read.
  std::string source(std::optional<std::size_t> stage = {}, std::optional<std::size_t> position = {}) const;
};

/// One stage, one microbatch: forward, and for training backward, reduction and update.
Schedule single_stage(bool training);

/// The schedule with what stages say to each other: a pair of actions for each transfer, and for training a reduce after
/// the last gradient of a group's weights and, at the end, a step. Every stage lists them in one global order, in which
/// they would come if each action took one unit of time: so no two stages ever wait for each other, even if a send ends
/// only when it is received. Adjacent transfers are posted together. `places` as Schedule::places(), which it defaults to:
/// for a replica that no microbatch goes through. Throws Error, as check_order, for what cannot run.
Schedule with_communication(const Schedule& schedule, const GroupGraph& graph, bool training,
                            std::vector<std::vector<int>> places = {});

/// As PyTorch's pipelining reads and writes it: a line a stage, a cell an action, empty cells (idle time) are left out, but for those of
/// a stage that idles throughout. Without transfers and updates.
std::string print_csv(const Schedule& schedule);
/// Throws Error with file, line and cell for what is no action, and for an empty line before others: PyTorch takes it for a stage that
/// idles, and mostly it is a slip.
Schedule parse_csv(std::string_view text, const std::string& file);

}  // namespace partita
