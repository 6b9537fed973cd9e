#include "strategies/planner/checkpointing.hpp"

#include "partita/strategies/plan/memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace partita {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

/// The ways to cut a chain of layers into segments. Cut `i` lies before layer i.
class Stretches {
 public:
  explicit Stretches(const Plan& plan) {
    for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
      const MemoryUse use = layer_memory(plan, i, 0);
      bytes_.push_back(static_cast<double>(use[MemoryClass::activations] + use[MemoryClass::halos]));
      const LayerPlan& layer = plan.layers[i];
      double inputs = 0;
      if (layer.op->keeps().x)
        for (const int input : layer.inputs) inputs += bytes_[input];
      to_keep_.push_back(bytes_.back() + inputs);
      const auto readers = plan.all_readers.of(i);
      last_.push_back(readers.empty() ? i : readers.back());
    }
  }

  /// Returns the layers to keep for the best cuts.
  std::vector<int> best() const {
    const double all = std::accumulate(bytes_.begin(), bytes_.end(), 0.0);
    Cuts best;
    constexpr double step = 1.1, finest = 256;
    for (double parts = step; parts < finest; parts *= step)
      if (Cuts cuts = within(all / parts); cuts.held() < best.held()) best = std::move(cuts);
    std::vector<int> kept;
    for (std::size_t i = 0; i + 1 < best.places.size(); ++i) {
      const auto more = crossing(best.places[i], best.places[i + 1]);
      kept.insert(kept.end(), more.begin(), more.end());
    }
    return kept;
  }

 private:
  struct Cuts {
    std::vector<int> places;  // first layer of each segment, and the number of layers
    double kept = impossible, largest = 0;
    double held() const { return kept + largest; }
  };

  /// Returns the layers from `first` on whose output is read after the cut `end`. Layers before `first` that cross this
  /// cut also cross the cut at `first`, so they are kept already.
  std::vector<int> crossing(int first, int end) const {
    std::vector<int> layers;
    for (int i = first; i < end; ++i)
      if (last_[i] >= end) layers.push_back(i);
    return layers;
  }

  /// Returns the cuts with the least bytes crossing them if no segment may hold more than `most` bytes. `kept` is
  /// `impossible` if a single layer holds more.
  Cuts within(double most) const {
    const auto layers = static_cast<int>(bytes_.size());
    struct Best {
      double kept = impossible, largest = 0;
      int from = 0;
    };
    std::vector<Best> best(bytes_.size() + 1);
    best[0].kept = 0;
    for (int end = 1; end <= layers; ++end) {
      double crossing = 0, inside = 0;
      for (int first = end - 1; first >= 0 && inside <= most; --first) {
        const auto i = static_cast<std::size_t>(first);
        last_[i] >= end ? crossing += to_keep_[i] : inside += bytes_[i];
        Best& here = best[end];
        if (inside <= most && best[i].kept + crossing < here.kept)
          here = {best[i].kept + crossing, std::max(best[i].largest, inside), first};
      }
    }
    Cuts cuts{{layers}, best.back().kept, best.back().largest};
    if (cuts.kept == impossible) return cuts;
    while (cuts.places.back() > 0) cuts.places.push_back(best[cuts.places.back()].from);
    std::reverse(cuts.places.begin(), cuts.places.end());
    return cuts;
  }

  std::vector<double> bytes_;    // by layer: its output and everything else that its backward pass needs
  std::vector<double> to_keep_;  // by layer: the same plus the inputs that it keeps
  std::vector<int> last_;        // by layer: its last reader; itself if nothing reads it
};

}  // namespace

std::vector<std::string> layers_to_keep(const Plan& plan) {
  std::vector<std::string> names;
  if (plan.grids.size() > 1) return names;
  for (const int i : Stretches(plan).best())
    if (const LayerPlan& layer = plan.layers[i]; !layer.inputs.empty()) names.push_back(layer.name);
  return names;
}

Strategy recomputing(Strategy strategy, const std::vector<std::string>& kept) {
  strategy.layer("*", {.recompute = true});
  for (const auto& name : kept) strategy.layer(name, {.recompute = false});
  return strategy;
}

std::string recompute_text(const std::vector<std::string>& kept) {
  return fmt::format("recompute = true in all layers{}{}", kept.empty() ? "" : " but ", fmt::join(kept, ", "));
}

}  // namespace partita
