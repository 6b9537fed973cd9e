#pragma once

#include "partita/base/grid.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace partita {

struct LayerPlan;

/// Trained weights that are contiguous in memory, so that one collective sums their gradients. A value.
struct Bucket {
  /// One weight of one layer.
  struct Entry {
    int layer = 0;
    int weight = 0;  ///< position among the layer's weights
    bool operator==(const Entry&) const = default;
  };
  AxisSet axes = 0;            ///< axes over which the gradients are pending sums; 0: there is nothing to sum
  AxisSet sharding = 0;        ///< axes that shard each of its weights
  std::vector<Entry> entries;  ///< in the model's order
  /// index of the bucket with the other copy of its only weight, a table (LayerPlan::copies_table); -1: there is none
  int other_copy = -1;

  /// The layer whose backward completes the bucket.
  int last() const { return entries.front().layer; }
  bool operator==(const Bucket&) const = default;
};

/// Each weight begins at a multiple of this number of elements in its bucket. This aligns every weight to 64
/// bytes.
inline constexpr Index bucket_alignment = 32;

/// The largest size of each bucket in bytes, from the bucket that backward completes last. Its cap is limit/16, because
/// no computation is left that could hide its sum. Each bucket before it may be twice as large, up to `limit`.
class BucketCap {
 public:
  explicit BucketCap(Index limit) : limit_(limit), bytes_(limit / 16) {}
  Index bytes() const { return bytes_; }
  void next() { bytes_ = std::min(2 * bytes_, limit_); }

 private:
  Index limit_, bytes_;
};

/// Groups the trained weights of all layers into buckets, in the order in which backward completes them. A bucket is
/// closed before it would exceed its BucketCap. Weights are never split: a weight larger than the cap has a bucket of
/// its own, and so has each copy of a table. Weights that are sharded over different axes do not share a bucket: so
/// ranks that hold replicas of a weight have buckets of the same length, in which it lies at the same place. Only then
/// do all transports sum gradients in the same order. `limit` is in bytes, `element` is the size of one element in
/// bytes.
std::vector<Bucket> plan_buckets(const std::vector<LayerPlan>& layers, Index limit, Index element);

/// Returns the buckets that a layer completes (Bucket::last). `all` are those of plan_buckets().
inline std::span<const Bucket> completed_by(std::span<const Bucket> all, int layer) {
  const auto behind = [layer](const Bucket& bucket) { return bucket.last() > layer; };
  const auto not_before = [layer](const Bucket& bucket) { return bucket.last() >= layer; };
  const auto first = std::partition_point(all.begin(), all.end(), behind);
  return {first, std::partition_point(first, all.end(), not_before)};
}

}  // namespace partita
