#include "partita/strategies/schedule/schedule.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>

namespace partita {

namespace {

constexpr std::array<std::string_view, 11> names{"F",      "B",      "I",      "W",      "R",   "SEND_F",
                                                 "RECV_F", "SEND_B", "RECV_B", "reduce", "step"};

template <class Number>
int one_more_than_highest(const Schedule& schedule, Number&& number) {
  int highest = -1;
  for (const auto& actions : schedule.stages)
    for (const auto& action : actions) highest = std::max(highest, number(action));
  return highest + 1;
}

}  // namespace

std::string Action::print() const {
  const std::string_view name = names[static_cast<std::size_t>(kind)];
  const std::string marks(static_cast<std::size_t>(replica), '\'');
  if (kind == Kind::reduce || kind == Kind::step) return fmt::format("{}{}{}", group, name, marks);
  const bool down = kind == Kind::send_output || kind == Kind::receive_gradient;
  const bool far = is_transfer() && peer != (down ? group + 1 : group - 1);
  return fmt::format("{}{}{}{}{}", group, name, microbatch, marks, far ? fmt::format(">{}", peer) : "");
}

GroupGraph::GroupGraph(int groups) : GroupGraph(groups, {}) {
  for (int group = 1; group < groups; ++group) {
    first_[group] = static_cast<int>(edges_.size());
    edges_.emplace_back(group - 1, group);
    producers_[group].push_back(group - 1);
    consumers_[group - 1].push_back(group);
  }
}

GroupGraph::GroupGraph(int groups, const std::vector<std::pair<int, int>>& edges)
    : producers_(static_cast<std::size_t>(groups)),
      consumers_(static_cast<std::size_t>(groups)),
      edges_(edges),
      first_(static_cast<std::size_t>(groups), 0) {
  std::sort(edges_.begin(), edges_.end(),
            [](auto a, auto b) { return std::pair(a.second, a.first) < std::pair(b.second, b.first); });
  for (std::size_t i = edges_.size(); i-- > 0;) {
    const auto [producer, consumer] = edges_[i];
    if (producer < 0 || producer >= consumer || consumer >= groups)
      fail("group {} cannot feed group {}: groups are numbered 0 to {} in the order in which they run", producer,
           consumer, groups - 1);
    first_[consumer] = static_cast<int>(i);
  }
  for (const auto& [producer, consumer] : edges_) {
    producers_[consumer].push_back(producer);
    consumers_[producer].push_back(consumer);
  }
}

int GroupGraph::edge(int producer, int consumer) const {
  const auto& from = producers(consumer);
  const auto found = std::find(from.begin(), from.end(), producer);
  return found == from.end() ? -1 : first_[consumer] + static_cast<int>(found - from.begin());
}

int Schedule::groups() const {
  return one_more_than_highest(*this, [](const Action& a) { return a.group; });
}
int Schedule::microbatches() const {
  return one_more_than_highest(*this, [](const Action& a) { return a.microbatch; });
}
int Schedule::replicas() const {
  return one_more_than_highest(*this, [](const Action& a) { return a.replica; });
}

std::vector<std::vector<int>> Schedule::stages_of_groups() const {
  std::vector<std::vector<int>> places(static_cast<std::size_t>(replicas()),
                                       std::vector<int>(static_cast<std::size_t>(groups()), -1));
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (const auto& action : stages[stage]) {
      int& place = places[action.replica][action.group];
      if (place < 0) place = static_cast<int>(stage);
    }
  return places;
}

std::string Schedule::print() const {
  std::string text;
  for (const auto& actions : stages) {
    for (std::size_t i = 0; i < actions.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : " ", actions[i].print());
    text += '\n';
  }
  return text;
}

std::string Schedule::source(std::optional<std::size_t> stage, std::optional<std::size_t> position) const {
  if (cells.empty()) return "";
  if (!stage) return kind + ": ";
  const bool known = position && *stage < cells.size() && *position < cells[*stage].size();
  return fmt::format("{}, line {}{}: ", kind, *stage + 1,
                     known ? fmt::format(", cell {}", cells[*stage][*position]) : "");
}

Schedule single_stage(bool training) {
  using enum Action::Kind;
  if (!training) return {"single", {{{forward, 0, 0}}}};
  return {"single", {{{forward, 0, 0}, {backward, 0, 0}, {reduce, 0, 0}, {step, 0, 0}}}};
}

}  // namespace partita
