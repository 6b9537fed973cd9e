#pragma once

#include "partita/base/grid.hpp"

#include <algorithm>
#include <vector>

namespace partita {

struct LayerPlan;

/// Trained weights that lie one after the other in memory, so that one collective sums their gradients. A value.
struct Bucket {
  /// One weight of one layer.
  struct Entry {
    int layer = 0;
    int weight = 0;  ///< position among the layer's weights
    bool operator==(const Entry&) const = default;
  };
  AxisSet axes = 0;            ///< over which the ranks formed parts of the gradients; 0: there is nothing to sum
  AxisSet sharding = 0;        ///< that cuts all of its weights, where norms are needed: they are sums over it
  std::vector<Entry> entries;  ///< in the model's order

  /// The layer whose backward completes the bucket.
  int last() const { return entries.front().layer; }
  bool operator==(const Bucket&) const = default;
};

/// Elements in a bucket begin at multiples of this, so that kernels find each weight aligned to 64 bytes.
inline constexpr Index bucket_alignment = 32;

/// The bytes that buckets may have, from the last one on: limit/16, as nothing is left to hide it behind, and twice as many
/// for each towards the first, up to `limit`.
class BucketCap {
 public:
  explicit BucketCap(Index limit) : limit_(limit), bytes_(limit / 16) {}
  Index bytes() const { return bytes_; }
  void next() { bytes_ = std::min(2 * bytes_, limit_); }

 private:
  Index limit_, bytes_;
};

/// Cuts the trained weights of all layers into buckets in the order in which backward completes them. A bucket closes
/// before it would exceed its BucketCap. Weights are not cut, so one larger than its limit is alone. With `norms`,
/// weights that are sharded over different axes do not share a bucket.
std::vector<Bucket> plan_buckets(const std::vector<LayerPlan>& layers, Index limit, Index element, bool norms);

}  // namespace partita
