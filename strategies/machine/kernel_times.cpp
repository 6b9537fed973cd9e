#include "partita/strategies/machine/kernel_times.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace partita {

namespace {

constexpr std::string_view heading =
    "# seconds of kernels (forward, backward, its data half, its filter half), microbatches and those in flight, on ";
constexpr std::string_view older = "# seconds of kernels (forward, backward, its data half, its filter half) on ";

}  // namespace

KernelTimes::All::const_iterator KernelTimes::look(const std::string& work, Loop loop) const {
  const std::string name = key(work);
  const auto distance = [&](const Loop& other) {
    return std::pair(std::abs(other.in_flight - loop.in_flight), std::abs(other.microbatches - loop.microbatches));
  };
  auto best = layers_.end();
  for (auto each = layers_.lower_bound({name, {}}); each != layers_.end() && each->first.first == name; ++each)
    if (best == layers_.end() || distance(each->first.second) < distance(best->first.second)) best = each;
  return best;
}

std::optional<LayerTimes> KernelTimes::find(const std::string& work, Loop loop) const {
  const auto found = look(work, loop);
  return found == layers_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Loop> KernelTimes::nearest(const std::string& work, Loop loop) const {
  const auto found = look(work, loop);
  return found == layers_.end() ? std::nullopt : std::optional(found->first.second);
}

std::string KernelTimes::print() const {
  std::string text = fmt::format("{}{}\n", heading, where_);
  for (const auto& [of, t] : layers_) {
    const auto& [work, loop] = of;
    text += fmt::format("{:.6g} {:.6g} {:.6g} {:.6g} {} {} {}\n", t.forward, t.backward, t.backward_data,
                        t.backward_filter, loop.microbatches, loop.in_flight, work);
  }
  return text;
}

namespace {

/// Takes a number and the blank after it from the line. Returns false for anything else.
template <class Number>
bool take(std::string_view& line, Number& number) {
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc{} || rest == line.data() + line.size() || *rest != ' ') return false;
  line.remove_prefix(static_cast<std::size_t>(rest - line.data()) + 1);
  return true;
}

bool take(std::string_view& line, LayerTimes& times) {
  for (double* each : {&times.forward, &times.backward, &times.backward_data, &times.backward_filter})
    if (!take(line, *each) || !(*each >= 0 && *each < 1e6)) return false;
  return true;
}

bool take(std::string_view& line, Loop& loop) {
  return take(line, loop.microbatches) && take(line, loop.in_flight) && loop.in_flight >= 1 &&
         loop.in_flight <= loop.microbatches;
}

void check_heading(std::string_view line, const std::string& file) {
  if (line.starts_with(heading)) return;
  if (line.starts_with(older))
    fail("{}, line 1: these times do not say how many microbatches were in flight; remove the file and calibrate again",
         file);
  fail("{}, line 1: this file has no kernel times; its first line must begin with \"{}\"", file, heading);
}

}  // namespace

KernelTimes KernelTimes::parse(std::string_view text, const std::string& file) {
  KernelTimes times;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (number == 1) check_heading(line, file);
    if (end == std::string_view::npos) fail("{}, line {}: the file is truncated here", file, number);
    text.remove_prefix(end + 1);
    if (number == 1) {
      times.where_ = line.substr(heading.size());
      continue;
    }
    LayerTimes seconds;
    Loop loop;
    if (!take(line, seconds) || !take(line, loop))
      fail(
          "{}, line {}: write four times in seconds, a step's microbatches, how many of them were in flight, and the "
          "work that was timed, separated by blanks",
          file, number);
    if (line.empty()) fail("{}, line {}: it does not say what these times belong to", file, number);
    if (!times.layers_.emplace(std::pair(line, loop), seconds).second)
      fail("{}, line {}: {} appears twice with {} of {} microbatches in flight", file, number, line, loop.in_flight,
           loop.microbatches);
  }
  if (number == 0) fail("{}: the file is empty", file);
  return times;
}

void KernelTimes::scale(double factor) {
  for (auto& [work, times] : layers_)
    for (double* each : {&times.forward, &times.backward, &times.backward_data, &times.backward_filter})
      *each *= factor;
}

}  // namespace partita
