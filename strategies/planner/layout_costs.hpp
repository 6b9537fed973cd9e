#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/planner/planner.hpp"
#include "strategies/planner/layout_search.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace partita {

class PieceCost;

/// How the ranks of one stage share a microbatch.
struct Shares {
  int data = 1, y = 1, x = 1, c = 1;
  int split() const { return y * x * c; }
  auto operator<=>(const Shares&) const = default;

  /// Axes of one rank are left out.
  std::string grid() const;
};

/// A model with one layer of each kind, so that repeated blocks are bound and priced once. Layers of one class are alike under any
/// pattern that all layers follow: operator, shapes and whose gradients they form.
struct LayerClasses {
  Model model;                      ///< the first layer of each class, in their order
  std::vector<int> of_layer;        ///< position in this model
  std::vector<double> occurrences;  ///< of each class
  explicit LayerClasses(const Model& model);
};

/// What layers cost in each pattern of one grid, and what lies between unlike ones: seconds by class.
struct CandidateLayoutCosts {
  std::vector<std::string> patterns;              ///< those in which every layer can run
  std::vector<std::vector<double>> microbatch;    ///< by class and pattern, without what is between layouts
  std::vector<std::vector<double>> sums;          ///< likewise, of gradients in a step
  std::vector<std::vector<double>> exposed_comm;  ///< the part of these that no computing hides
  std::vector<std::vector<double>> leaving;       ///< likewise, of a microbatch's output on its way to the next stage
  /// By the pattern of the producer and of the layer; of class of the producer, class of the layer, its input.
  using Between = std::map<std::tuple<int, int, std::size_t>, std::vector<std::vector<double>>>;
  std::shared_ptr<const Between> between;
};

/// Prices patterns, the ways in which a layer can lie on a grid, each as the text of a rule; `spatial` are the two dimensions that y
/// and x cut. Grids of equal blocks share their binding.
class LayoutCosts {
 public:
  LayoutCosts(const Model& model, const Workload& workload, const Machine& machine, const KernelTimes& times,
              std::string spatial)
      : model_(model),
        classes_(model),
        workload_(workload),
        machine_(machine),
        times_(times),
        spatial_(std::move(spatial)),
        bucket_(bucket_bytes()) {}

  /// Of microbatches with at most so many samples a rank along the data axis.
  const CandidateLayoutCosts& costs(const Shares& shares, Index samples);
  /// Patterns of the grids asked for so far that are in no costs.
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  /// Least seconds of a step's work, and of the layer that has most of it, if nothing lay between layouts.
  std::pair<double, double> bound(const CandidateLayoutCosts& costs, int microbatches) const;
  /// Seconds that a microbatch's outputs take to the next stage if a stage ends before a layer, by layer.
  std::vector<double> crossings(const CandidateLayoutCosts& costs, const std::vector<int>& ways) const;
  /// The choices of all layers in a step, of whose sums of gradients so much of what computing could hide counts (0, all is hidden, to 1).
  ChoiceGraph graph(const CandidateLayoutCosts& costs, int microbatches, double exposed) const;
  /// Seconds that the sums take longer than a last microbatch of `backward` seconds hides.
  double exposed_comm(const CandidateLayoutCosts& costs, const std::vector<int>& ways, double backward) const;

 private:
  struct Bound {
    std::vector<Plan> plans;     // by pattern
    CandidateLayoutCosts costs;  // with the shortened first axis
    std::vector<bool> sums;      // by class: that something of a microbatch is summed over the first axis
  };
  const Bound& bind_patterns(const Shares& shares, Index samples);
  void leave_out(LeftOut pattern);
  void price_shortened(Bound& bound, const Shares& shares) const;
  CandidateLayoutCosts price(const Bound& bound, const Shares& shares) const;
  double microbatch(const PieceCost& price, std::size_t layer) const;
  double leaving(const PieceCost& price, const Layout& y, int ranks) const;
  class Moves;
  CandidateLayoutCosts::Between price_between(const std::vector<Plan>& plans) const;
  std::vector<std::vector<double>> price_between(const std::vector<Plan>& plans, int from, int to, std::size_t k,
                                                 Moves& moves) const;
  double bucket_bytes() const;
  using SumRates =
      std::map<AxisSet, std::pair<double, double>>;  // seconds of a byte, and the share that computing hides
  std::pair<double, double> sums(const PieceCost& price, const LayerPlan& layer, SumRates& rates) const;
  double between(const PieceCost& price, const Layout& from, const Layout& to) const;

  const Model& model_;
  LayerClasses classes_;
  Workload workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  std::string spatial_;
  double bucket_;                                    // bytes
  std::map<std::pair<Shares, Index>, Bound> bound_;  // by shares with a shortened first axis
  std::map<std::pair<Shares, Index>, CandidateLayoutCosts> costs_;
  std::vector<LeftOut> left_out_;
};

}  // namespace partita
