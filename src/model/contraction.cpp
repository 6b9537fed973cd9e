#include "src/model/contraction.hpp"

#include "partita/layouts/redistribution.hpp"
#include "src/model/rules.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace partita {

namespace {

using Axes = AxisList;

/// The axes that shard the channels of y (`outputs`) and of x (`inputs`).
struct Cut {
  Axes outputs, inputs;
  bool operator==(const Cut&) const = default;
};

AxisSet set_of(const Axes& axes) {
  AxisSet set = 0;
  for (const int axis : axes) set |= AxisSet{1} << axis;
  return set;
}

/// Returns the axes, or none if one of them is already used: dropping a single axis would change the nesting of blocks.
Axes unless_used(const Axes& axes, AxisSet used) { return (set_of(axes) & used) != 0 ? Axes{} : axes; }

class Chooser {
 public:
  Chooser(const Contraction& product, const LayoutRequest& request)
      : product_(product), request_(request), samples_(product.x.sharding()) {}

  OperatorLayouts choose() const {
    const std::vector<Cut> cuts = this->cuts();
    if (cuts.empty()) refuse();
    // only one choice: no alternatives to compare or report
    if (cuts.size() == 1 && !algorithm_of(cuts[0])) return layouts(cuts[0]);
    std::vector<OperatorLayouts> candidates;
    candidates.reserve(cuts.size());
    for (const Cut& cut : cuts) candidates.push_back(layouts(cut));
    std::vector<Alternative> costs;
    for (const auto& candidate : candidates) costs.push_back(cost(candidate));
    const auto cheaper = [](const Alternative& a, const Alternative& b) {
      return a.flops != b.flops ? a.flops < b.flops : a.words < b.words;
    };
    const auto best = std::min_element(costs.begin(), costs.end(), cheaper);
    OperatorLayouts chosen = std::move(candidates[best - costs.begin()]);
    std::rotate(costs.begin(), best, best + 1);
    chosen.alternatives = std::move(costs);
    return chosen;
  }

 private:
  static int channels(const Layout& layout) { return layout.shape().find('C'); }

  Axes wanted_outputs() const { return unless_used(request_.output.axes(channels(request_.output)), samples_); }
  Axes arriving_inputs() const {
    const Layout& x = request_.input[0].value_or(request_.arriving[0]);
    return unless_used(x.axes(channels(x)), samples_);
  }

  std::vector<Cut> cuts() const {
    std::vector<Cut> all;
    if (request_.weights)
      all = {cut_of(*request_.weights)};
    else if (product_.groups > 1)
      all = grouped_cuts();
    else
      all = free_cuts();
    std::vector<Cut> fitting;
    fitting.reserve(all.size());
    for (const Cut& cut : all)
      if (fits(cut) && std::find(fitting.begin(), fitting.end(), cut) == fitting.end()) fitting.push_back(cut);
    return fitting;
  }

  Cut cut_of(const Layout& weights) const {
    if (product_.groups == 1) return {weights.axes(product_.w_outputs), weights.axes(product_.w_inputs)};
    const bool free = (set_of(weights.axes(0)) & samples_) == 0;
    if (!free || !weights.axes(1).empty() || !keeps_groups(weights.axes(0))) refuse();
    return {weights.axes(0), weights.axes(0)};
  }

  std::vector<Cut> free_cuts() const {
    const Axes outputs = wanted_outputs(), inputs = arriving_inputs();
    std::vector<Cut> all;
    all.reserve(4 + outputs.size());
    all.insert(all.end(), {{outputs, {}}, {{}, inputs}, {{}, outputs}});
    if ((set_of(outputs) & set_of(inputs)) == 0) all.push_back({outputs, inputs});
    for (std::size_t i = 1; i < outputs.size(); ++i)
      all.push_back({Axes(outputs.begin(), outputs.begin() + i), Axes(outputs.begin() + i, outputs.end())});
    return all;
  }

  std::vector<Cut> grouped_cuts() const {
    const Axes outputs = wanted_outputs(), inputs = arriving_inputs();
    if (!keeps_groups(outputs))
      fail("output \"{}\" splits a group of channels; shard C over axes that divide the {} groups, or leave it whole",
           request_.output.print(), product_.groups);
    std::vector<Cut> all{{outputs, outputs}};
    if (keeps_groups(inputs)) all.push_back({inputs, inputs});
    return all;
  }

  /// Returns true if each rank's channels over these axes are whole groups, and the same groups in x and y.
  bool keeps_groups(const Axes& axes) const {
    const Layout x = product_.x.with(channels(product_.x), axes);
    const Layout y = product_.x.onto(product_.y).with(product_.y.find('C'), axes);
    const Index of_x = x.shape()['C'] / product_.groups, of_y = y.shape()['C'] / product_.groups;
    for (const int rank : x.grid().group(0, set_of(axes))) {
      const Interval in = x.owned(rank)[channels(x)], out = y.owned(rank)[channels(y)];
      if (in.lo % of_x != 0 || in.hi % of_x != 0 || out.lo % of_y != 0 || in.lo / of_x != out.lo / of_y ||
          in.hi / of_x != out.hi / of_y || out.hi % of_y != 0)
        return false;
    }
    return true;
  }

  bool fits(const Cut& cut) const {
    const AxisSet outputs = set_of(cut.outputs), inputs = set_of(cut.inputs);
    const bool grouped = product_.groups > 1;
    if (((outputs | inputs) & samples_) != 0 || (!grouped && (outputs & inputs) != 0)) return false;
    if (request_.input[0] && !(request_.input[0]->axes(channels(*request_.input[0])) == cut.inputs)) return false;
    if ((request_.output.partial() & ~(grouped ? 0 : inputs)) != 0) return false;
    return asked() == Algorithm::automatic || asked() == algorithm_of(cut);
  }

  Algorithm asked() const { return request_.algorithm(); }

  /// Returns nothing if no axis shards the channels.
  std::optional<Algorithm> algorithm_of(const Cut& cut) const {
    if (cut.outputs.empty() && (product_.groups > 1 || cut.inputs.empty())) return std::nullopt;
    if (product_.groups > 1) return Algorithm::groups;
    if (cut.inputs.empty()) return Algorithm::stationary_y;
    return cut.outputs.empty() ? Algorithm::stationary_x : Algorithm::stationary_w;
  }

  OperatorLayouts layouts(const Cut& cut) const {
    const bool grouped = product_.groups > 1;
    const AxisSet outputs = grouped ? 0 : set_of(cut.outputs), inputs = grouped ? 0 : set_of(cut.inputs);
    const Layout x = product_.x.with(channels(product_.x), cut.inputs);
    const Layout y = product_.x.onto(product_.y).with(product_.y.find('C'), cut.outputs).with_partial(inputs);
    Layout w(product_.weights[0].shape, x.grid());
    w = w.with(product_.w_outputs, grouped ? Axes{} : cut.outputs)
            .with(product_.w_inputs, grouped ? Axes{} : cut.inputs);
    // F is the only sharded dimension: each block of F is whole groups, like the blocks of C in x and y
    if (grouped) w = w.with(0, cut.outputs);
    OperatorLayouts candidate{.x = {x},
                              .y = y,
                              .dx = {x.with_partial(outputs)},
                              .w = {w},
                              .dw = {w.with_partial(samples_)},
                              .algorithm = algorithm_of(cut)};
    if (product_.x_halo) {
      candidate.x_halo = product_.x_halo(x, y);
      candidate.dy_halo = product_.dy_halo(x, y);
    }
    if (product_.weights.size() > 1) {
      candidate.w.push_back(Layout(product_.weights[1].shape, x.grid()).with(0, cut.outputs));
      candidate.dw.push_back(candidate.w.back().with_partial(samples_));
    }
    return candidate;
  }

  /// The cost on rank 0, which has the largest blocks because remainders go to low ranks.
  Alternative cost(const OperatorLayouts& candidate) const {
    const Box x = candidate.x[0].owned(0), y = candidate.y.owned(0);
    const auto share = [](Index part, Index whole) { return static_cast<double>(part) / static_cast<double>(whole); };
    const std::array inputs{product_.x.shape()};
    Alternative cost{candidate.algorithm, product_.op->flops(inputs, product_.y), 0};
    cost.flops *= share(y.volume(), product_.y.volume());
    if (product_.groups == 1) cost.flops *= share(x.extent(1), product_.x.shape()['C']);
    const auto add = [&](const Layout& from, const Layout& to) {
      for (const auto& step : plan_redistribution(from, to)) cost.words += wire_elements(step, 0);
    };
    add(request_.arriving[0], candidate.x[0]);
    add(candidate.y, request_.output);
    if (candidate.x_halo) cost.words += static_cast<double>(candidate.x_halo->transfer(0).sent());
    if (!request_.training) return cost;
    add(request_.output.dual(), candidate.y.dual());
    if (request_.needs_dx) {
      add(candidate.dx[0], request_.arriving[0].dual());
      if (candidate.dy_halo) cost.words += static_cast<double>(candidate.dy_halo->transfer(0).sent());
    }
    for (const auto& dw : candidate.dw)
      cost.words += wire_of_all_reduce(static_cast<double>(dw.owned(0).volume()), dw.grid().group_size(dw.partial()));
    return cost;
  }

  [[noreturn]] void refuse() const {
    const Layout& x = request_.input[0].value_or(request_.arriving[0]);
    if (request_.output.partial() != 0) refuse_partial(request_.output);
    if (product_.groups > 1)
      fail(
          "a layer cannot split its {} groups of channels: input \"{}\", output \"{}\" and weights{} must shard C "
          "in the same way",
          product_.groups, x.print(), request_.output.print(),
          request_.weights ? fmt::format(" \"{}\"", request_.weights->print()) : "");
    if (request_.weights)
      fail(
          "weights \"{}\": dimension {} must be sharded like the output's C and {} like the input's, over axes that "
          "shard neither samples nor spatial dimensions, and that fit algorithm \"{}\"",
          request_.weights->print(), request_.weights->shape().name(product_.w_outputs),
          request_.weights->shape().name(product_.w_inputs), name(asked()));
    fail("algorithm \"{}\" does not fit the input \"{}\" and the output \"{}\": {}", name(asked()), x.print(),
         request_.output.print(),
         asked() == Algorithm::stationary_w
             ? "it needs an output that shards C over two axes, or an input and an output that shard C over different "
               "axes"
             : "it needs an input (stationary-x) or an output (stationary-y) that shards C, over axes that shard "
               "neither samples nor spatial dimensions");
  }

  const Contraction& product_;
  const LayoutRequest& request_;
  AxisSet samples_;
};

}  // namespace

OperatorLayouts contract(const Contraction& product, const LayoutRequest& request) {
  if (request.weights)
    for (int d = 2; d < request.weights->shape().dims(); ++d)
      if (!request.weights->axes(d).empty())
        fail("weights \"{}\" shard the kernel's {}; only channels can be sharded", request.weights->print(),
             request.weights->shape().name(d));
  return Chooser(product, request).choose();
}

}  // namespace partita
