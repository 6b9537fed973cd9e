#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/planner/choice_graph.hpp"
#include "strategies/planner/layer_classes.hpp"
#include "strategies/planner/layout_pattern.hpp"
#include "strategies/planner/search_context.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace partita {

class PieceCost;

/// Costs of layers for each layout pattern of one grid, and of redistributions between patterns, in seconds, by layer
/// class.
struct CandidateLayoutCosts {
  /// the patterns; a layer that cannot run in one of them has another layout in its place
  std::vector<LayoutPattern> patterns;
  std::map<std::pair<int, std::size_t>, LayoutPattern> instead;  ///< by class and pattern: that other layout
  std::vector<std::vector<double>> microbatch;  ///< by class and pattern: one microbatch, without redistributions
  std::vector<std::vector<double>> sums;        ///< by class and pattern: gradient sums in a step
  /// by class and pattern: the part of `sums` that no computation can hide
  std::vector<std::vector<double>> exposed_comm;
  /// by class and pattern: sending a microbatch's output to the next stage
  std::vector<std::vector<double>> leaving;
  /// Redistribution costs. Key: class of the producer, class of the layer, input number. Value: table by the producer's
  /// pattern and the layer's pattern.
  using Between = std::map<std::tuple<int, int, std::size_t>, std::vector<std::vector<double>>>;
  std::shared_ptr<const Between> between;
};

/// Estimates the costs of the layout patterns of grids. `spatial` names the dimensions, at most two, that the axes y
/// and x shard.
class LayoutCosts {
 public:
  LayoutCosts(const SearchContext& context, std::string spatial)
      : context_(context), classes_(context.model), spatial_(std::move(spatial)), bucket_(bucket_bytes()) {}

  /// Returns the costs for microbatches with at most `samples` samples per rank of the data axis. Grids that differ in
  /// the data axis alone are bound once.
  const CandidateLayoutCosts& costs(const Shares& shares, Index samples);
  /// Returns the seconds that a microbatch needs at least for collectives inside layers, e.g. statistics of batch
  /// normalization, if `data` ranks share its samples: those of neighbors that add one element.
  double collectives(int data);
  /// The patterns in which a layer could not run, in all calls of costs() so far.
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  /// Returns two lower bounds in seconds: for the work of a step, and for the work of its longest layer. Both assume
  /// that redistributions are free, and that each stage has an equal part of the gradient sums.
  std::pair<double, double> lower_bound(const CandidateLayoutCosts& costs, int microbatches, int stages) const;
  /// Returns the layouts, by layer and pattern, of layers that cannot run in a pattern.
  std::map<std::pair<std::size_t, int>, LayoutPattern> instead(const CandidateLayoutCosts& costs) const;
  /// Returns for each layer the seconds to send a microbatch's outputs to the next stage if a stage ends before this
  /// layer. `pattern_of_layer` has the pattern of each layer.
  std::vector<double> boundary_seconds(const CandidateLayoutCosts& costs,
                                       const std::vector<int>& pattern_of_layer) const;
  /// Returns the layout choices of all layers for a step. `exposed` (0 to 1) is the share of the hideable gradient sums
  /// that counts as cost; 0 means that computation hides all of them.
  ChoiceGraph graph(const CandidateLayoutCosts& costs, int microbatches, double exposed) const;
  /// Returns the seconds of a step of each layer without gradient sums. `graph` is graph(costs, microbatches, 0).
  std::vector<double> seconds_of_layers(const CandidateLayoutCosts& costs, const ChoiceGraph& graph,
                                        const std::vector<int>& pattern_of_layer) const;
  /// Seconds of gradient sums that are not hidden by a last microbatch, whose backward pass takes `backward` seconds.
  double exposed_comm(const CandidateLayoutCosts& costs, const std::vector<int>& pattern_of_layer,
                      double backward) const;

 private:
  struct BoundPatterns {
    std::vector<Plan> plans;     // by pattern
    CandidateLayoutCosts costs;  // with the shortened data axis
    std::vector<bool> sums;      // by class: whether some sum in a microbatch runs over the data axis
  };
  BoundPatterns bind_patterns(const Shares& shares, Index samples);
  void bind_pattern(BoundPatterns& bound, LeftOut left_out, const LayoutPattern& pattern, Strategy strategy,
                    const Workload& block);
  void leave_out(LeftOut pattern);
  void add_shortened(BoundPatterns& bound, const Shares& shares) const;
  CandidateLayoutCosts with_data_axis(const BoundPatterns& bound, const Shares& shares) const;
  double microbatch(const PieceCost& price, std::size_t layer) const;
  double leaving(const PieceCost& price, const LayerPlan& layer, int ranks) const;
  class Moves;
  CandidateLayoutCosts::Between redistributions(const std::vector<Plan>& plans) const;
  std::vector<std::vector<double>> redistribution_table(const std::vector<Plan>& plans, int from, int to, std::size_t k,
                                                        Moves& moves) const;
  double bucket_bytes() const;
  using SumRates =
      std::map<AxisSet, std::pair<double, double>>;  // seconds per byte, and the share that computation hides
  std::pair<double, double> gradient_sums(const PieceCost& price, const LayerPlan& layer, SumRates& rates) const;
  double redistribution(const PieceCost& price, const Layout& from, const Layout& to, Index element) const;

  SearchContext context_;
  LayerClasses classes_;
  std::string spatial_;
  double bucket_;  // estimated bytes of a bucket
  std::map<std::pair<Shares, Index>, CandidateLayoutCosts> costs_;
  std::map<std::pair<Shares, Index>, BoundPatterns> bound_;  // with the shortened data axis
  std::map<int, double> collectives_;                        // by ranks that share the samples
  std::vector<LeftOut> left_out_;
};

}  // namespace partita
