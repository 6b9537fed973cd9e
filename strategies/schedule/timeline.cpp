#include "partita/strategies/schedule/timeline.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace partita {

namespace {

using Kind = Action::Kind;

struct Look {
  char letter;
  const char* color;
  const char* what;
};

Look look(Kind kind) {
  switch (kind) {
    case Kind::forward: return {'F', "#6baed6", "forward"};
    case Kind::backward: return {'B', "#74c476", "backward"};
    case Kind::backward_data: return {'I', "#74c476", "backward of inputs"};
    case Kind::backward_filter: return {'W', "#fdae6b", "backward of weights"};
    case Kind::recompute: return {'R', "#bdbdbd", "recompute"};
    case Kind::reduce: return {'r', "#9e9ac8", "reduce"};
    case Kind::step: return {'s', "#dd99bb", "step"};
    default: return {'t', "#d9d9d9", "transfer"};
  }
}

/// The lowest group of each stage, which is drawn lighter than the others.
std::vector<int> lowest_groups(const Simulation& simulation) {
  std::vector<int> lowest;
  for (const auto& spans : simulation.stages) {
    int group = spans.empty() ? 0 : spans.front().action.group;
    for (const auto& span : spans) group = std::min(group, span.action.group);
    lowest.push_back(group);
  }
  return lowest;
}

/// Escapes a text for use between tags.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string draw_timeline(const Simulation& simulation, int columns) {
  double shortest = simulation.makespan;
  for (const auto& spans : simulation.stages)
    for (const auto& span : spans)
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
  const double slices = shortest > 0 ? std::min<double>(columns, std::ceil(simulation.makespan / shortest - 1e-9)) : 0;
  const auto width = static_cast<int>(slices);
  std::string text;
  for (std::size_t stage = 0; stage < simulation.stages.size(); ++stage) {
    std::string line(static_cast<std::size_t>(width), '.');
    for (const auto& span : simulation.stages[stage])
      for (int i = std::max(0, static_cast<int>(std::ceil(span.start / simulation.makespan * width - 0.5))); i < width;
           ++i) {
        if ((i + 0.5) / width * simulation.makespan >= span.end) break;
        line[i] = look(span.action.kind).letter;
      }
    text += fmt::format("{:>5} |{}|\n", stage, line);
  }
  return text;
}

std::string timeline_svg(const Simulation& simulation, const std::string& title) {
  constexpr double left = 70, top = 60, row = 28, width = 1400, bottom = 30;
  const double scale = simulation.makespan > 0 ? width / simulation.makespan : 0;
  const double height = top + row * static_cast<double>(simulation.stages.size()) + bottom;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{}\" y=\"20\" font-size=\"15\">{}</text>\n",
      left + width + 20, height, left, escaped(title));
  std::array<bool, 256> shown{};
  double key = left;
  const auto lowest = lowest_groups(simulation);
  std::string bars;
  for (std::size_t stage = 0; stage < simulation.stages.size(); ++stage) {
    const double y = top + row * static_cast<double>(stage);
    bars += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">stage {}</text>\n", left - 8, y + row * 0.6,
                        stage);
    for (const auto& [action, start, end] : simulation.stages[stage]) {
      if (end <= start) continue;
      const Look l = look(action.kind);
      const bool later = action.group != lowest[stage];
      const double x = left + start * scale, w = (end - start) * scale;
      bars += fmt::format(
          "<g><title>{} {} to {}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
          "fill-opacity=\"{}\" stroke=\"white\" stroke-width=\"0.5\"/>",
          escaped(action.print()), start, end, x, y, w, row - 4, l.color, later ? 1 : 0.65);
      if (w > 14 && action.is_compute())
        bars += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x + w / 2,
                            y + row * 0.55, action.microbatch);
      bars += "</g>\n";
      if (shown[static_cast<unsigned char>(l.letter)]) continue;
      shown[static_cast<unsigned char>(l.letter)] = true;
      out += fmt::format(
          "<rect x=\"{0}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{1}\"/><text x=\"{2}\" y=\"42\">{3}</text>\n",
          key, l.color, key + 17, l.what);
      key += 150;
    }
  }
  out += fmt::format(
      "<text x=\"{}\" y=\"42\">number in a bar: its microbatch; darker: a later group of the stage</text>\n", key);
  out += bars;
  out += fmt::format(
      "<text x=\"{}\" y=\"{:.1f}\">0</text><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n</svg>\n",
      left, height - 10, left + width, height - 10, simulation.makespan);
  return out;
}

}  // namespace partita
