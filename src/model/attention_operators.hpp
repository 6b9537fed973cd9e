#pragma once

#include "src/model/operators.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace partita {

// The operators of layers whose channels are heads.

/// How the channels of queries, keys and values lie in x[N C L]: in groups of `in_group` heads of queries, one of keys
/// and one of values, each with `dim` channels.
struct HeadGroups {
  Index groups = 1, in_group = 1, dim = 1;
  Index step() const { return (in_group + 2) * dim; }
  /// Throws Error if the channels of x are not such groups.
  HeadGroups(Index heads, Index groups, const Shape& x);
};

/// Turns queries and keys by angles that grow with their place (Su et al. 2021).
class RotaryOperator final : public ElementwiseOperator {
 public:
  explicit RotaryOperator(const Rotary& rotary) : rotary_(rotary) {}
  std::string_view kind() const override { return "rotary"; }
  std::string describe() const override;
  Shape output(std::span<const Shape> inputs) const override;
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  bool overwrites_input() const override { return true; }
  HeadGroups heads(const Shape& x) const { return {rotary_.heads, rotary_.groups, x}; }
  double base() const { return rotary_.base; }

 private:
  Rotary rotary_;
};

/// y[N F L] = softmax(q k' / sqrt(dim)) v for each head, with q, k and v in x[N C L] (Vaswani et al. 2017). With
/// segments[N 1 L] as second input, a place sees those of its own segment. Every rank has the segments of all places of
/// its samples.
class AttentionOperator final : public Operator {
 public:
  enum class Form : std::uint8_t {
    blocks,     ///< keys go by in blocks, so that no weights of pairs of places are kept
    whole,      ///< the weights of all pairs of places are kept for backward
    continued,  ///< in blocks; keys and values of places before those of x are kept, so each rank has all places of its
                ///< groups
  };
  explicit AttentionOperator(const Attention& attention, bool segments = false, Form form = Form::blocks)
      : attention_(attention), segments_(segments), form_(form) {}
  /// Of one segment.
  AttentionOperator continued() const { return AttentionOperator(attention_, false, Form::continued); }
  std::shared_ptr<const Operator> running(Algorithm chosen) const override;
  std::string_view kind() const override { return "attention"; }
  std::string describe() const override;
  int inputs() const override { return segments_ ? 2 : 1; }
  bool reads_integers(int input) const override { return input == 1; }
  Shape output(std::span<const Shape> inputs) const override;
  std::vector<Algorithm> algorithms() const override {
    return {Algorithm::all_to_all, Algorithm::ring, Algorithm::whole};
  }
  OperatorLayouts layouts(const LayoutRequest& request) const override;
  double flops(std::span<const Shape> inputs, const Shape& output) const override;
  /// Of products of queries and keys: forward takes s = q k' and p v; backward dp = dy v' and the gradients p' dy, ds k
  /// and ds' q, and s again where p is not kept.
  double backward_work() const override { return whole() ? 2 : 2.5; }
  /// Products write s and read p; in backward they write dp, and read p, ds and ds. Between them, softmax reads s and
  /// writes p, and its gradient reads p and dp and writes ds. Where weights are dropped, p is kept before and after it,
  /// which is two elements for one: dropout reads and writes one more, and the gradient reads one more.
  MemoryPasses memory_passes(bool training) const override {
    if (drops(training)) return {.elements = 1, .apart = 2, .backward_apart = 2};
    return {.elements = 2, .apart = 2, .backward_apart = 3};
  }
  KernelKind kernel_kind() const override { return KernelKind::product; }
  Index narrowest(std::span<const Shape> inputs) const override;
  Kept keeps() const override { return {.x = true, .y = !whole()}; }
  HeldNumbers numbers(const Layout& x, int rank, bool training) const override;
  PlaceUse place_use() const override { return causal() ? PlaceUse::before : PlaceUse::any; }
  /// The keys and values.
  Index kept_channels(const Layout& x, int rank) const override;
  HeadGroups heads(const Shape& x) const { return {attention_.heads, attention_.groups, x}; }
  bool causal() const { return attention_.causal; }
  double dropout() const { return attention_.dropout; }
  bool whole() const { return form_ == Form::whole; }

 private:
  bool drops(bool training) const { return training && attention_.dropout > 0; }
  OperatorLayouts of_x(const LayoutRequest& request) const;
  OperatorLayouts around_ring(const Layout& x, const Shape& output, bool balanced) const;
  Alternative cost(const OperatorLayouts& way, const LayoutRequest& request) const;

  Attention attention_;
  bool segments_;
  Form form_;
};

}  // namespace partita
