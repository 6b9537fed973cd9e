#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

namespace partita {

/// Where the heads of a kind lie in a tensor x[N C L] (Heads).
struct HeadRows {
  Index places, channels;  // of x
  Index first, step, dim;
  /// The offset of the first channel of a head.
  PARTITA_HOST_DEVICE Index offset(Index sample, Index place, Index group, Index head = 0) const {
    return (sample * places + place) * channels + group * step + first + head * dim;
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
  /// As many keys, from the first one on, are seen from a place of the queries.
  PARTITA_HOST_DEVICE Index seen(Index place) const {
    const Index before = place + ahead + 1;
    return !causal || before > keys ? keys : before < 0 ? 0 : before;
  }
  /// The first place that sees a key; those behind it see it too.
  PARTITA_HOST_DEVICE Index first_seeing(Index key) const { return causal && key > ahead ? key - ahead : 0; }
};

}  // namespace partita
