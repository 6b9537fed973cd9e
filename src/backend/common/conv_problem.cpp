#include "partita/backend/conv_problem.hpp"

#include "src/backend/common/geometry.hpp"
#include "src/backend/common/hash_words.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita {

ConvProblem::ConvProblem(ConvPass what, std::span<const Window> slides, const Box& x, const Box& w, const Box& y,
                         bool bias)
    : pass(what), spatial(static_cast<Index>(slides.size())), with_bias(bias ? 1 : 0) {
  const ConvGeometry conv(slides, x, w.extent(1), y);
  channels = conv.channels;
  filters = conv.filters;
  groups = conv.groups;
  if (conv.empty()) return;
  batch = conv.in[0].extent();
  const auto in = sides_of(conv.reached), out = sides_of(conv.out);
  for (std::size_t d = 0; d < 3; ++d) {
    const Window& window = conv.windows[d];
    const Index first = out[d + 1].lo * window.stride - window.pad_lo;
    const Index last = (out[d + 1].hi - 1) * window.stride - window.pad_lo;
    sides[d] = {in[d + 1].extent(),
                out[d + 1].extent(),
                window.kernel,
                window.stride,
                window.dilation,
                in[d + 1].lo - first,
                std::max<Index>(last + window.reach() - in[d + 1].hi, 0)};
  }
}

void ConvProblem::apply(const std::optional<Activation>& f) { then = f ? static_cast<Index>(f->kind) + 1 : 0; }

std::optional<Activation> ConvProblem::activation() const {
  if (then == 0) return {};
  return Activation{.kind = static_cast<Activation::Kind>(then - 1)};
}

ConvProblem ConvProblem::trimmed() const {
  ConvProblem problem = *this;
  for (Side& side : problem.sides) {
    const Index reach = (side.kernel - 1) * side.dilation + 1;
    side.in = std::min(side.in, (side.out - 1) * side.stride + reach - side.pad_lo);
  }
  return problem;
}

bool ConvProblem::empty() const { return batch == 0 || channels == 0 || filters == 0; }

std::vector<ConvProblem> ConvProblem::halves() const {
  std::vector<ConvProblem> problems;
  for (const Index samples : {(batch + 1) / 2, batch / 2}) {
    if (batch < 2 || (!problems.empty() && problems.front().batch == samples)) continue;
    problems.push_back(*this);
    problems.back().batch = samples;
  }
  return problems;
}

std::string ConvProblem::print() const {
  static constexpr std::array passes{"forward", "backward_data", "backward_filter"};
  const auto each = [&](Index Side::*field) {
    std::vector<Index> values;
    for (auto d = static_cast<std::size_t>(3 - spatial); d < 3; ++d) values.push_back(sides[d].*field);
    return fmt::format("{}", fmt::join(values, "x"));
  };
  return fmt::format("{} N={} C={} F={}{}{}{} in {} out {} kernel {} stride {} dilation {} pad {},{}",
                     passes[static_cast<std::size_t>(pass)], batch, channels, filters,
                     groups == 1 ? "" : fmt::format(" groups {}", groups), with_bias != 0 ? " bias" : "",
                     then == 0 ? "" : fmt::format(" {}", name(activation()->kind)), each(&Side::in), each(&Side::out),
                     each(&Side::kernel), each(&Side::stride), each(&Side::dilation), each(&Side::pad_lo),
                     each(&Side::pad_hi));
}

std::size_t ConvProblemHash::operator()(const ConvProblem& problem) const { return hash_words(problem); }

}  // namespace partita
