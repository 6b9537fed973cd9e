#pragma once

#include "partita/strategies/plan/plan.hpp"
#include "src/model/attention_operators.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace partita::test {

/// A second opinion on attention around a ring: who computes which block of queries with which block of keys, and what
/// travels therefore. Pair (i, j) of queries of rank i and keys of an earlier rank j is computed by i or, in a balanced
/// ring, by j if they are more than half of the ranks apart.
class PlainRing {
 public:
  PlainRing(const LayerPlan& layer, int rank) : ring_(*layer->at.ring), x_(layer->at.x[0]) {
    for (const int other : x_.grid().group(rank, x_.sharding('L')))
      if (const Box box = x_.owned(other); !box.empty()) ranks_.emplace_back(box[2].lo, other);
    std::sort(ranks_.begin(), ranks_.end());
    count_ = me_ = static_cast<int>(ranks_.size());
    for (int i = 0; i < count_; ++i)
      if (ranks_[i].second == rank) me_ = i;
    far_ = ring_.balanced ? count_ / 2 : count_ - 1;
    heads_ = dynamic_cast<const AttentionOperator&>(*layer.op).heads(x_.shape());
  }

  /// The pairs of places of one head that the rank multiplies.
  double pairs() const {
    if (me_ == count_) return 0;
    const double own = length(me_);
    double all = ring_.causal ? own * (own + 1) / 2 : own * own;
    for (int other = 0; other < count_; ++other) {
      if (other == me_) continue;
      if (!ring_.causal)
        all += own * length(other);
      else if (other < me_)
        all += (length(me_) - lent(me_, other)) * length(other);
      else
        all += lent(other, me_) * own;
    }
    return all;
  }

  /// What a rank sends and receives: peers with bytes, and the steps in which it does.
  struct Messages {
    std::vector<std::pair<int, double>> sent, received;
    std::set<int> sends, receives;
    double hops() const { return static_cast<double>(std::max(sends.size(), receives.size())); }
  };

  /// Keys and values with queries for others, or what comes back of them.
  Messages messages(bool results, bool back, double element, double master) const {
    Messages all;
    if (me_ == count_ || count_ == 1) return all;
    const double heads = static_cast<double>(heads_.in_group), queries = heads * static_cast<double>(heads_.dim),
                 keys = 2 * static_cast<double>(heads_.dim);
    std::vector<double> lent_bytes{queries * element}, returned_bytes{queries * master};
    if (back)
      lent_bytes = {queries * element, queries * element, queries * element, heads * master};
    else
      returned_bytes.push_back(heads * master);
    for (int block = 0; block < count_; ++block) {
      const double bytes = rows(block, length(block)) * keys * (results ? master : element);
      for (int from = 0; from < count_; ++from) {
        const int distance = ring_.causal ? from - block : (from - block + count_) % count_;
        const int last = ring_.causal ? std::min(block + far_, count_ - 1) - block : count_ - 1;
        if (distance < 0 || distance > last) continue;
        if (!results && distance < last) add(all, from, (from + 1) % count_, distance, {bytes});
        if (results && back && distance > 0)
          add(all, from, distance < last ? (from + 1) % count_ : block, distance + 1, {bytes});
      }
    }
    for (int later = 0; later < count_; ++later)
      for (int helper = 0; helper < later; ++helper) {
        const double part = rows(later, lent(later, helper));
        if (part == 0) continue;
        const int step = count_ - (later - helper);
        std::vector<double> bytes = results ? returned_bytes : lent_bytes;
        for (double& each : bytes) each *= part;
        results ? add(all, helper, later, step + 1, bytes) : add(all, later, helper, step - 1, bytes);
      }
    return all;
  }

 private:
  double length(int number) const { return static_cast<double>(x_.owned(ranks_[number].second).extent(2)); }
  /// Rows of heads of keys of some places.
  double rows(int number, double places) const {
    const Box box = x_.owned(ranks_[number].second);
    return static_cast<double>(box.extent(0) * (box.extent(1) / heads_.step())) * places;
  }
  /// How many of its queries a rank lends to an earlier one.
  double lent(int later, int helper) const {
    const int apart = 2 * (later - helper);
    if (!ring_.balanced || apart < count_) return 0;
    return apart > count_ ? length(later) : static_cast<double>(static_cast<Index>(length(later)) / 2);
  }
  void add(Messages& all, int from, int to, int step, const std::vector<double>& bytes) const {
    for (const double each : bytes) {
      if (from == me_) all.sent.emplace_back(ranks_[to].second, each);
      if (to == me_) all.received.emplace_back(ranks_[from].second, each);
      if (from == me_) all.sends.insert(step);
      if (to == me_) all.receives.insert(step);
    }
  }

  const Ring& ring_;
  const Layout& x_;
  std::vector<std::pair<Index, int>> ranks_;  // with places, in their order
  int me_ = 0, count_ = 0, far_ = 0;
  HeadGroups heads_{1, 1, Shape{{'C', 3}}};
};

}  // namespace partita::test
