#include "partita/strategies/schedule.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string Schedule::print() const {
  std::string text;
  for (const auto& actions : stages) {
    std::string line;
    for (const auto& action : actions) {
      if (!line.empty()) line += ' ';
      switch (action.kind) {
        case Action::Kind::forward: line += fmt::format("F{}", action.microbatch); break;
        case Action::Kind::backward: line += fmt::format("B{}", action.microbatch); break;
        case Action::Kind::reduce: line += "reduce"; break;
        case Action::Kind::step: line += "step"; break;
      }
    }
    text += line + "\n";
  }
  return text;
}

Schedule single_stage(bool training) {
  using enum Action::Kind;
  if (!training) return {{{{forward, 0, 0}}}};
  return {{{{forward, 0, 0}, {backward, 0, 0}, {reduce, 0, 0}, {step, 0, 0}}}};
}

}  // namespace partita
