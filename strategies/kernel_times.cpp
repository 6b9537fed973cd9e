#include "partita/strategies/kernel_times.hpp"

#include "partita/base/error.hpp"

#include <array>
#include <charconv>

namespace partita {

namespace {

constexpr std::string_view heading = "# seconds of kernels (forward, backward, its data half, its filter half) on ";

std::string extents(const Box& box) {
  std::string text;
  for (int d = 0; d < box.dims(); ++d) text += fmt::format("{}{}", d == 0 ? "" : "x", box.extent(d));
  return text;
}

/// The rank's blocks on the way of a redistribution: what it copies and adds.
std::string conversions(const LayerPlan::Steps& steps, int rank) {
  std::string text;
  for (const auto& step : steps) text += fmt::format(">{} {}", name(step.verb), extents(step.to.owned(rank)));
  return text;
}

std::string halo(const std::optional<Halo>& halo, int rank) {
  return halo ? fmt::format("+{}", extents(halo->needed(rank))) : "";
}

}  // namespace

std::string local_work(const LayerPlan& layer, int rank, const Workload& workload) {
  std::string text = fmt::format("{} {} {}{}:", layer.op->kind(), layer.op->describe(), name(workload.dtype),
                                 workload.training ? "" : " evaluation");
  const bool back = workload.training;
  for (std::size_t i = 0; i < layer->at.x.size(); ++i)
    text += fmt::format(" x {}{}{}{}", extents(layer->at.x[i].owned(rank)), conversions(layer->arrive[i], rank),
                        back && layer->needs_dx[i] ? " dx" : "",
                        back && layer->needs_dx[i] ? conversions(layer->leave[i], rank) : "");
  text += halo(layer->at.x_halo, rank);
  for (const auto& w : layer->at.w) text += fmt::format(" w {}", extents(w.owned(rank)));
  text += fmt::format(" y {}{}", extents(layer->at.y.owned(rank)), conversions(layer->finish, rank));
  if (back) text += conversions(layer->finish_back, rank) + halo(layer->at.dy_halo, rank);
  for (const auto& product : layer->at.products)
    text += fmt::format(" {}: {} {} {}", product.algorithm, extents(product.a_used.owned(rank)),
                        extents(product.b_used.owned(rank)), product.panels.size());
  for (const auto& boundary : layer.departs) text += conversions(boundary.settle, rank);
  return text;
}

std::string update_work(Index elements, const Workload& workload) {
  return fmt::format("update {} {}: {}", workload.optimizer.print(), name(workload.dtype), elements);
}

std::optional<LayerTimes> KernelTimes::find(const std::string& work) const {
  const auto found = layers_.find(key(work));
  return found == layers_.end() ? std::nullopt : std::optional(found->second);
}

std::string KernelTimes::print() const {
  std::string text = fmt::format("{}{}\n", heading, where_);
  for (const auto& [work, t] : layers_)
    text += fmt::format("{:.6g} {:.6g} {:.6g} {:.6g} {}\n", t.forward, t.backward, t.backward_data, t.backward_filter,
                        work);
  return text;
}

KernelTimes KernelTimes::parse(std::string_view text, const std::string& file) {
  KernelTimes times;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (number == 1 && line.substr(0, heading.size()) != heading)
      fail("{}, line 1: it holds no times of kernels; the first line begins with \"{}\"", file, heading);
    if (end == std::string_view::npos) fail("{}, line {}: the file is cut off here", file, number);
    text.remove_prefix(end + 1);
    if (number == 1) {
      times.where_ = line.substr(heading.size());
      continue;
    }
    std::array<double, 4> seconds{};
    for (double& each : seconds) {
      const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), each);
      if (error != std::errc{} || rest == line.data() + line.size() || *rest != ' ' || !(each >= 0 && each < 1e6))
        fail("{}, line {}: write four times in seconds and what they are of, with blanks between", file, number);
      line.remove_prefix(static_cast<std::size_t>(rest - line.data()) + 1);
    }
    if (line.empty()) fail("{}, line {}: what are these times of?", file, number);
    if (!times.layers_.emplace(line, LayerTimes{seconds[0], seconds[1], seconds[2], seconds[3]}).second)
      fail("{}, line {}: it is there twice: {}", file, number, line);
  }
  if (number == 0) fail("{}: the file is empty", file);
  return times;
}

}  // namespace partita
