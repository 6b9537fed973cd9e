#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/planner/choice_graph.hpp"
#include "strategies/planner/layout_pattern.hpp"
#include "strategies/planner/search_context.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace partita {

class PieceCost;

/// A model with one layer of each class, so that repeated blocks are bound and estimated once. Layers of one class have
/// equal costs under any pattern that all layers follow: they have the same operator and shapes, and compute gradients
/// of the same inputs.
struct LayerClasses {
  Model model;                      ///< the first layer of each class, in model order
  std::vector<int> of_layer;        ///< by layer of the original model: its class
  std::vector<double> occurrences;  ///< by class: number of layers
  explicit LayerClasses(const Model& model);
};

/// Costs of layers for each layout pattern of one grid, and of redistributions between patterns, in seconds, by layer
/// class.
struct CandidateLayoutCosts {
  std::vector<LayoutPattern> patterns;          ///< the patterns in which every layer can run
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
/// and x shard. Grids with equal blocks share their bound plans.
class LayoutCosts {
 public:
  LayoutCosts(const SearchContext& context, std::string spatial)
      : context_(context), classes_(context.model), spatial_(std::move(spatial)), bucket_(bucket_bytes()) {}

  /// Returns the costs for microbatches with at most `samples` samples per rank of the data axis.
  const CandidateLayoutCosts& costs(const Shares& shares, Index samples);
  /// The patterns left out of all calls of costs() so far, because some layer cannot run in them.
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  /// Returns two lower bounds in seconds: for the work of a step, and for the work of its longest layer. Both assume
  /// that redistributions are free.
  std::pair<double, double> lower_bound(const CandidateLayoutCosts& costs, int microbatches) const;
  /// Returns for each layer the seconds to send a microbatch's outputs to the next stage if a stage ends before this
  /// layer. `ways` has the pattern of each layer.
  std::vector<double> boundary_seconds(const CandidateLayoutCosts& costs, const std::vector<int>& ways) const;
  /// Returns the layout choices of all layers for a step. `exposed` (0 to 1) is the share of the hideable gradient sums
  /// that counts as cost; 0 means that computation hides all of them.
  ChoiceGraph graph(const CandidateLayoutCosts& costs, int microbatches, double exposed) const;
  /// Seconds of gradient sums that remain after a last microbatch, whose backward pass of `backward` seconds hides the
  /// others.
  double exposed_comm(const CandidateLayoutCosts& costs, const std::vector<int>& ways, double backward) const;

 private:
  struct BoundPatterns {
    std::vector<Plan> plans;     // by pattern
    CandidateLayoutCosts costs;  // with the shortened data axis
    std::vector<bool> sums;      // by class: whether some sum in a microbatch runs over the data axis
  };
  const BoundPatterns& bind_patterns(const Shares& shares, Index samples);
  void leave_out(LeftOut pattern);
  void add_shortened(BoundPatterns& bound, const Shares& shares) const;
  CandidateLayoutCosts costs(const BoundPatterns& bound, const Shares& shares) const;
  double microbatch(const PieceCost& price, std::size_t layer) const;
  double leaving(const PieceCost& price, const Layout& y, int ranks) const;
  class Moves;
  CandidateLayoutCosts::Between costs_between(const std::vector<Plan>& plans) const;
  std::vector<std::vector<double>> costs_between(const std::vector<Plan>& plans, int from, int to, std::size_t k,
                                                 Moves& moves) const;
  double bucket_bytes() const;
  using SumRates =
      std::map<AxisSet, std::pair<double, double>>;  // seconds per byte, and the share that computation hides
  std::pair<double, double> sums(const PieceCost& price, const LayerPlan& layer, SumRates& rates) const;
  double between(const PieceCost& price, const Layout& from, const Layout& to) const;

  SearchContext context_;
  LayerClasses classes_;
  std::string spatial_;
  double bucket_;                                            // estimated bytes of a bucket
  std::map<std::pair<Shares, Index>, BoundPatterns> bound_;  // key: shares with the shortened data axis, samples
  std::map<std::pair<Shares, Index>, CandidateLayoutCosts> costs_;
  std::vector<LeftOut> left_out_;
};

}  // namespace partita
