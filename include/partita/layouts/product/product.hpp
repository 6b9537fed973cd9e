#pragma once

#include "partita/layouts/algorithm.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/layouts/transfer.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// One way to run a layer or a product, with its costs on the rank that has the most work.
struct Alternative {
  std::optional<Algorithm> algorithm;  ///< nothing if no axis cuts anything
  double flops = 0;                    ///< operations of a layer's forward pass, or of a product
  /// elements through the rank's link: of a product, or of a layer's step with its halos, rings and gradient sums
  double words = 0;
  double messages = 0;    ///< messages that the rank sends; products only
  bool balanced = false;  ///< a causal ring whose ranks help one another
  /// The total cost in words. It assumes that a rank computes 500 operations in the time its link passes one word, and
  /// that a message's latency equals the time of 1000 words. A core whose link is memory computes about 100 operations
  /// per word, a GPU on a network about 5000; 500 lies between them.
  double total() const { return words + flops / 500 + 1000 * messages; }
  bool operator==(const Alternative&) const = default;
};

/// A tensor read as a matrix with two of a product's indices m, n and k. Its first dimension is the first index; all
/// other dimensions together are the second one. Examples: x[N C H W] is "mk", w[F C H W] is "nk", y[N C] is "mn".
struct ProductOperand {
  Layout layout;
  std::string indices;
  bool operator==(const ProductOperand&) const = default;
};

/// The plan of a matrix product C[m n] = sum over k of A B on a grid. A has the indices m and k, B has k and n, each in
/// either order and in any layout. The axes of the grid are divided into those that cut m (M), n (N) and k (K). Each
/// rank multiplies its block:
///
///     C[m@M n@N sum@K] = A[m@M k@K] B[k@K n@N]
///
///     summa-a   N is empty:      A stays, B is gathered over M, C is summed over K
///     summa-b   M is empty:      B stays, A is gathered over N, C is summed over K
///     summa-c   K is empty:      C stays, A is gathered over N, B over M
///     dot       only K:          nothing is gathered, C is summed over K
///     2.5d      all of them:     SUMMA on M and N, replicated over K: each replica has its share of k
///
/// Gathered operands travel in panels, which cut one index. A panel holds a slice of every owner's block, so that all
/// links are busy at once. While one panel is multiplied, the next one travels. Sources: Van de Geijn and Watts 1997
/// (SUMMA; there a panel belongs to one owner, which broadcasts it); Schatz, van de Geijn and Poulson 2016 (stationary
/// A, B, C); Solomonik and Demmel 2011 (2.5D).
struct ProductPlan {
  std::optional<Algorithm> algorithm;   ///< one of the above; nothing if no axis cuts anything
  ProductOperand a, b;                  ///< with the layouts of the inputs
  ProductOperand c;                     ///< with the layout of the output, which has pending sums over the axes of K
                                        ///< that do not shard it
  Layout a_used, b_used;                ///< what a rank multiplies
  Layout c_made;                        ///< what the local products make
  char along = 'k';                     ///< the index that panels cut
  using Panel = std::vector<Interval>;  ///< slabs: intervals of the one dimension of index `along` that panels cut
  std::vector<Panel> panels;
  bool sums_slabs = false;                         ///< c_made is summed slab by slab into c
  std::vector<RedistributionStep> redistribute_c;  ///< else: the steps c_made -> c
  std::vector<Alternative> alternatives;           ///< the best way of each algorithm; the chosen one comes first

  /// Returns this plan on another grid with the same axes.
  ProductPlan on(const Grid& grid) const;
  /// Returns the dimension of an operand that the panels cut, or -1 if the operand lacks the index `along`.
  int cut_dim(const ProductOperand& operand) const;
  /// Returns the part of a slab that `rank` holds if the operand has the layout `layout`.
  Box part(const ProductOperand& operand, const Layout& layout, int rank, Interval slab) const;
  /// Returns the box of A or B that `rank` must gather to multiply a slab. It is empty if the rank can use its own
  /// elements in place.
  Box gathered(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const;
  /// Returns the transfers that gather this box.
  TransferPlan gather(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const;
  /// Returns a transfer whose adjoint adds the ranks' parts of C in a slab to their owners.
  TransferPlan sum(int rank, Interval slab) const;
  /// Returns the slabs for which A or B is gathered: all slabs of all panels, or a single one if panels do not cut the
  /// operand.
  std::vector<Interval> slabs(const ProductOperand& operand) const;
  /// Returns what `rank` exchanges with its peers, in ascending order, if an element has `element_size` bytes: panels,
  /// and sums slab by slab. The steps in `redistribute_c` are not included.
  std::vector<PeerTraffic> traffic(int rank, Index element_size) const;
  /// Returns the largest number of elements that `rank` holds at once beside A, B and C: in panels, in copies of
  /// operands whose rows are not contiguous, in parts of C, and in the steps of `redistribute_c`. `packs`: messages of
  /// boxes that are not contiguous pass through buffers.
  Index workspace(int rank, bool packs = false) const;
  bool operator==(const ProductPlan&) const = default;
};

/// Returns true if every row of `part` is contiguous in a tensor that holds `whole`. The first dimension counts the
/// rows; `names` are those of all dimensions.
bool has_rows(std::string_view names, const Box& whole, const Box& part);

/// The algorithms above.
const std::vector<Algorithm>& product_algorithms();

/// What the planner of a product may choose.
struct ProductRequest {
  Algorithm algorithm = Algorithm::automatic;  ///< automatic, or one of product_algorithms()
  bool b_follows = false;                      ///< B's layout is chosen to suit the product; the given one is ignored
  AxisSet b_whole = 0;                         ///< with `b_follows`: axes that must not cut B
  bool completes = false;  ///< C has no pending sums except those in the layout that was given for it
  /// If set, the product must leave C as a pending sum over exactly these axes.
  std::optional<AxisSet> pending = std::nullopt;
  bool whole_k = false;          ///< panels must not cut k, e.g. as a 16-bit sum would be rounded after each panel
  Index narrowest_slab = 128;    ///< a narrower slab is not worth a product of its own
  double panel_words = 1 << 20;  ///< elements of a panel on one rank; at this size bandwidth matters, not latency
};

/// Plans the product. Algorithm::automatic takes the way with the least total cost on the rank that has the most work.
/// This is a pure function. Throws Error, with all three shapes and layouts, if the operands do not match, if the grid
/// cannot run the algorithm, or if A or B is a pending sum.
ProductPlan plan_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                         const ProductRequest& request = {});

}  // namespace partita
