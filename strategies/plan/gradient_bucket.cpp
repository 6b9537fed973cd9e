#include "partita/strategies/plan/gradient_bucket.hpp"

#include "partita/strategies/plan/plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace partita {

namespace {

/// A bucket to which weights can still be added.
struct Open {
  Bucket bucket;
  Index bytes;
  BucketCap cap;
};

/// For each layer that holds one of two copies of a table, the layer with the other.
std::map<int, int> copies_of(const std::vector<LayerPlan>& layers) {
  std::map<int, int> copies;
  for (int i = 0; i < std::ssize(layers); ++i)
    if (layers[i].copies_table) copies.insert({{i, layers[i].table}, {layers[i].table, i}});
  return copies;
}

}  // namespace

std::vector<Bucket> plan_buckets(const std::vector<LayerPlan>& layers, Index limit, Index element) {
  std::vector<Bucket> done;
  const std::map<int, int> copies = copies_of(layers);
  std::map<std::tuple<int, AxisSet, AxisSet>, Open> open;  // groups share no bucket: their ranks differ
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    const auto& bound = layers[layer];
    for (std::size_t weight = 0; weight < bound->weights.size(); ++weight) {
      if (!bound->weights[weight].trained || !bound.holds(weight)) continue;
      const LayerBinding::Rest& rest = bound->rest[weight];
      const AxisSet axes = rest.dw.partial(), sharding = rest.w.sharding();
      if (weight == 0 && copies.contains(layer)) {
        done.push_back({axes, sharding, {{layer, 0}}});
        continue;
      }
      auto& [bucket, bytes, cap] =
          open.try_emplace({bound.group, axes, sharding}, Open{{axes, sharding, {}}, 0, BucketCap(limit)})
              .first->second;
      const Index more = rest.w.owned(0).volume() * element;  // no rank has a larger block than rank 0
      if (!bucket.entries.empty() && bytes + more > cap.bytes()) {
        done.push_back(std::move(bucket));
        bucket = {axes, sharding, {}};
        bytes = 0;
        cap.next();
      }
      bucket.entries.push_back({layer, static_cast<int>(weight)});
      bytes += more;
    }
  }
  for (auto& [key, rest] : open) done.push_back(std::move(rest.bucket));
  std::stable_sort(done.begin(), done.end(), [](const Bucket& a, const Bucket& b) { return a.last() > b.last(); });
  for (const auto& [layer, other] : copies) {
    const auto of = [&](int copy) {
      return std::find_if(done.begin(), done.end(), [&](const Bucket& each) {
        return each.entries.front() == Bucket::Entry{copy, 0};
      });
    };
    of(layer)->other_copy = static_cast<int>(of(other) - done.begin());
  }
  return done;
}

}  // namespace partita
