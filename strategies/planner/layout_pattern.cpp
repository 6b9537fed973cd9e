#include "strategies/planner/layout_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace partita {

std::string Shares::grid() const {
  std::string text;
  for (const auto& [name, extent] : {std::pair("data", data), {"y", y}, {"x", x}, {"c", c}})
    if (extent > 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, extent);
  return text;
}

std::string LayoutPattern::rule() const {
  std::string text;
  for (const auto& [dim, axes] : entries) {
    const bool one = axes.size() == 1;
    text +=
        fmt::format("{}{}@{}{}{}", text.empty() ? "" : " ", dim, one ? "" : "(", fmt::join(axes, ","), one ? "" : ")");
  }
  return text;
}

LayoutPattern LayoutPattern::of(const Shape& shape) const {
  LayoutPattern fitting;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(fitting.entries),
               [&](const Entry& entry) { return shape.has(entry.dim); });
  return fitting;
}

std::vector<LayoutPattern> LayoutPattern::smaller() const {
  std::vector<LayoutPattern> all;
  for (std::size_t kept = 0; kept + 1 < std::size_t{1} << entries.size(); ++kept) {  // as sets of entries
    auto& some = all.emplace_back();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if ((kept >> i & 1U) != 0) some.entries.push_back(entries[i]);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.entries.size() > b.entries.size(); });
  return all;
}

bool LayoutPattern::splits_samples(std::string_view axis) const {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.dim != 'N' && std::find(entry.axes.begin(), entry.axes.end(), axis) != entry.axes.end();
  });
}

std::vector<LayoutPattern> layout_patterns(const Shares& shares, const std::string& spatial) {
  using Axis = std::pair<std::string, int>;
  const Axis data{"data", shares.data}, y{"y", shares.y}, x{"x", shares.x}, c{"c", shares.c};
  struct Asked {
    char dim;
    std::vector<Axis> axes;
  };
  const auto in_space = [&](std::vector<Asked> asked) {  // after the samples
    if (!spatial.empty()) asked.push_back({spatial[0], {y}});
    if (spatial.size() > 1) asked.push_back({spatial[1], {x}});
    return asked;
  };
  auto space_and_channels = in_space({{'N', {data}}});
  space_and_channels.push_back({'C', {c}});
  const std::vector<std::vector<Asked>> all{
      space_and_channels,       in_space({{'N', {data}}}),         {{'N', {data, y, x}}, {'C', {c}}},
      {{'N', {data, y, x, c}}}, {{'N', {data}}, {'C', {y, x, c}}}, {{'N', {data}}, {'C', {c}}}};
  std::vector<LayoutPattern> patterns;
  for (const auto& asked : all) {
    LayoutPattern pattern;
    for (const auto& [dim, axes] : asked) {
      LayoutPattern::Entry entry{dim, {}};
      for (const auto& [name, extent] : axes)
        if (extent > 1) entry.axes.push_back(name);
      if (!entry.axes.empty()) pattern.entries.push_back(std::move(entry));
    }
    if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(std::move(pattern));
  }
  return patterns;
}

}  // namespace partita
