#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/philox.hpp"
#include "partita/base/types.hpp"

#include <cstdint>

namespace partita {

/// Where the heads of a kind lie in a tensor x[N C L] (Heads).
struct HeadRows {
  Index places, channels;  // of x
  Index first, step, dim;
  bool operator==(const HeadRows&) const = default;
  /// The offset of the first channel of a head.
  PARTITA_HOST_DEVICE Index offset(Index sample, Index place, Index group, Index head = 0) const {
    return (sample * places + place) * channels + group * step + first + head * dim;
  }
};

/// The numbers of the segments of places. Places of queries and of keys are counted from the first ones of their boxes.
struct SegmentIds {
  const std::int32_t* ids = nullptr;  // of all places of all samples; null: all are of one segment
  Index places = 0, first_query = 0, first_key = 0;
  PARTITA_HOST_DEVICE const std::int32_t* of_query(Index sample, Index place) const {
    return ids + sample * places + first_query + place;
  }
  PARTITA_HOST_DEVICE const std::int32_t* of_key(Index sample, Index key) const {
    return ids + sample * places + first_key + key;
  }
  PARTITA_HOST_DEVICE bool same(Index sample, Index place, Index key) const {
    return ids == nullptr || *of_query(sample, place) == *of_key(sample, key);
  }
};

/// The weights that are left out (WeightDropout). Samples, heads, places and keys are counted from the first ones of
/// their boxes.
struct DroppedWeights {
  double rate = 0;
  Random random{0, 0};
  const double* step = nullptr;
  Index heads = 1, places = 1;  // in all
  Index first_sample = 0, first_head = 0, first_query = 0, first_key = 0;
  PARTITA_HOST_DEVICE Index index(Index sample, Index head, Index place, Index key) const {
    return (((first_sample + sample) * places + first_query + place) * heads + first_head + head) * places + first_key +
           key;
  }
  PARTITA_HOST_DEVICE Random numbers() const { return random.at_step(static_cast<std::uint64_t>(*step)); }
  /// By which a weight is multiplied: 0, or 1 / (1 - rate).
  PARTITA_HOST_DEVICE double factor(Index sample, Index head, Index place, Index key) const {
    if (rate == 0) return 1;
    return numbers().uniform(index(sample, head, place, key)) < rate ? 0 : 1 / (1 - rate);
  }
};

/// The sizes of a call of attention (HeadShape). Places are counted from the first one of a tensor's box.
struct AttentionSizes {
  Index samples, groups;  // groups that are here
  Index queries, dim;
  Index places, keys;  // places of the queries, and of the keys
  Index ahead;         // by how many places the first one of the queries is ahead of that of the keys
  bool causal;
  double scale;
  SegmentIds segments;
  DroppedWeights dropped;
  /// As many keys, from the first one on, are seen from a place of the queries, if they are of its segment.
  PARTITA_HOST_DEVICE Index seen(Index place) const {
    const Index before = place + ahead + 1;
    return !causal || before > keys ? keys : before < 0 ? 0 : before;
  }
  /// The first place that sees a key; those behind it see it too.
  PARTITA_HOST_DEVICE Index first_seeing(Index key) const { return causal && key > ahead ? key - ahead : 0; }
};

/// The sizes of a call of attention_merge: `places` of `all`, from `first` on, have more results.
struct MergeSizes {
  Index samples, places, heads, dim;
  Index all, first;
  /// The row of y and lse that belongs to a row of more_y and more_lse. A row is a place of a sample.
  PARTITA_HOST_DEVICE Index row_of(Index row) const { return row / places * all + first + row % places; }
};

}  // namespace partita
