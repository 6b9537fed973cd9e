#include "partita/base/error.hpp"
#include "partita/strategies/schedule/schedule.hpp"

#include <charconv>

namespace partita {

namespace {

using Kind = Action::Kind;

/// Reads one file. Every message names the line and the cell.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), schedule_{file, {}} {}

  Schedule read() && {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
    int empty = 0;  // the first of the empty lines since the last line with actions
    for (std::string_view rest = text_; !rest.empty();) {
      const auto end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      ++line_;
      if (trim(line).empty()) {
        if (empty == 0) empty = line_;
      } else if (empty > 0) {
        fail("{}, line {}: an empty line is a stage without actions; remove it, or write commas for a stage that idles",
             schedule_.kind, empty);
      }
      read_line(line);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    while (!schedule_.stages.empty() && schedule_.stages.back().empty()) {
      schedule_.stages.pop_back();
      schedule_.cells.pop_back();
    }
    if (schedule_.stages.empty()) fail("{}: it contains no actions", schedule_.kind);
    check_full();
    return std::move(schedule_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}, line {}, cell {}: {}", schedule_.kind, line_, cell_, fmt::format(text, std::forward<Args>(args)...));
  }

  void read_line(std::string_view line) {
    schedule_.stages.emplace_back();
    schedule_.cells.emplace_back();
    cell_ = 0;
    for (bool more = true; more;) {
      const auto comma = line.find(',');
      ++cell_;
      read_cell(trim(line.substr(0, comma)));
      more = comma != std::string_view::npos;
      if (more) line.remove_prefix(comma + 1);
    }
  }

  /// Reads an action, nothing, or "(0F1;3B0)OVERLAP_F_B", which is both actions in this order.
  void read_cell(std::string_view cell) {
    if (cell.empty()) return;
    if (cell.front() != '(') return add(read_action(cell));
    const auto middle = cell.find(';'), end = cell.find(')');
    if (middle == std::string_view::npos || end == std::string_view::npos || middle > end ||
        cell.substr(end + 1) != "OVERLAP_F_B")
      refuse("\"{}\" is not a pair; write it as \"(0F1;3B0)OVERLAP_F_B\"", cell);
    add(read_action(trim(cell.substr(1, middle - 1))));
    add(read_action(trim(cell.substr(middle + 1, end - middle - 1))));
  }

  void add(const Action& action) {
    schedule_.stages.back().push_back(action);
    schedule_.cells.back().push_back(cell_);
  }

  Action read_action(std::string_view text) const {
    Action action;
    const char *at = text.data(), *const end = at + text.size();
    const auto group = std::from_chars(at, end, action.group);
    const char* letter = group.ptr;
    while (letter != end && (*letter < '0' || *letter > '9') && *letter != '\'') ++letter;
    const std::string_view name(group.ptr, static_cast<std::size_t>(letter - group.ptr));
    const auto microbatch = std::from_chars(letter, end, action.microbatch);
    at = microbatch.ptr;
    while (at != end && *at == '\'') ++at, ++action.replica;
    if (group.ec != std::errc{} || name.empty())
      refuse("\"{}\" is not an action; write one as \"2F0\": group, what, microbatch", text);
    action.kind = kind(name, text);
    if (microbatch.ec != std::errc{} || at != end)
      refuse("\"{}\" has no microbatch; write an action as \"2F0\": group, what, microbatch", text);
    check_number("group", action.group, text);
    check_number("microbatch", action.microbatch, text);
    check_number("replica", action.replica, text);
    return action;
  }

  Kind kind(std::string_view name, std::string_view text) const {
    for (const Kind kind : {Kind::forward, Kind::backward, Kind::backward_data, Kind::backward_filter, Kind::recompute})
      if (const auto own = Action{kind}.print(); name == std::string_view(own).substr(1, own.size() - 2)) return kind;
    for (const std::string_view derived : {"SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B",
                                           "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"})
      if (name == derived) refuse("\"{}\" is derived from the schedule; remove it", text);
    refuse("\"{}\": there is no action {}; there are F, B, I, W and R", text, name);
  }

  void check_number(std::string_view what, int number, std::string_view text) const {
    constexpr int most = 1 << 20;
    if (number < 0) refuse("\"{}\": {} {}; the least is 0", text, what, number);
    if (number >= most) refuse("\"{}\": {} {}; the most is {}", text, what, number, most - 1);
  }

  /// A schedule has a forward for each of its groups and microbatches. One that lacks most of them is refused.
  void check_full() const {
    constexpr std::size_t share = 16;
    std::size_t actions = 0;
    for (const auto& list : schedule_.stages) actions += list.size();
    const auto groups = static_cast<std::size_t>(schedule_.groups()),
               m = static_cast<std::size_t>(schedule_.microbatches());
    if (groups * m > share * actions || static_cast<std::size_t>(schedule_.replicas()) > actions)
      fail("{}: {} groups and {} microbatches are named, which need {} forwards; there are {} actions in all",
           schedule_.kind, groups, m, groups * m, actions);
  }

  static std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\""), last = text.find_last_not_of(" \t\r\"");
    return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
  }

  std::string_view text_;
  Schedule schedule_;
  int line_ = 0, cell_ = 0;
};

}  // namespace

Schedule parse_csv(std::string_view text, const std::string& file) { return Reader(text, file).read(); }

std::string print_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.stages) {
    std::string line;
    for (const auto& action : actions)
      if (action.is_compute()) line += fmt::format("{}{}", line.empty() ? "" : ",", action.print());
    text += (line.empty() ? "," : line) + "\n";  // an empty line would be read as a mistake
  }
  return text;
}

}  // namespace partita
