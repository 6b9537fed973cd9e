#pragma once

#include "partita/layouts/redistribution.hpp"
#include "partita/layouts/transfer.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita {

/// One way in which a layer or a product could run, and its costs on the rank that has most to do.
struct Alternative {
  std::string algorithm;
  double flops = 0;  ///< of a layer's forward, or of a product
  double words =
      0;  ///< elements through its link: of a product, or of a layer in a step with halos and gradients' sums
  double messages = 0;  ///< that it sends; of products only
  /// All three in words: as if a rank computed 500 operations while its link passed a word, and the link passed 1000 words
  /// while a message begins. Ratios between those of a core whose link is memory (100) and of a GPU on a network (5000).
  double total() const { return words + flops / 500 + 1000 * messages; }
};

/// A tensor as a matrix of two of a product's indices m, n and k: its first dimension is the first of them, all others
/// together are the second. x[N C H W] as "mk", w[F C H W] as "nk", y[N C] as "mn".
struct ProductOperand {
  Layout layout;
  std::string indices;
};

/// C[m n] = sum over k of A B, where A has m and k, B has k and n, each in either order, in any layouts on one grid. The axes
/// of the grid cut m (M), n (N) and k (K); a rank multiplies its block:
///
///     C[m@M n@N sum@K] = A[m@M k@K] B[k@K n@N]
///
///     summa-a   N is empty:      A stays, B is gathered over M, C is summed over K
///     summa-b   M is empty:      B stays, A is gathered over N, C is summed over K
///     summa-c   K is empty:      C stays, A is gathered over N, B over M
///     dot       only K:          nothing is gathered, C is summed over K
///     2.5d      all of them:     SUMMA on M and N, replicated over K: each replica has its share of k
///
/// What is gathered travels in panels of one index, each a slice of every owner's block, so that all links are busy at
/// once; while one panel is multiplied the next is on its way. Van de Geijn and Watts 1997 (SUMMA, whose panels are one owner's
/// and broadcast); Schatz, van de Geijn and Poulson 2016 (stationary A, B, C); Solomonik and Demmel 2011 (2.5D).
struct ProductPlan {
  std::string algorithm;                ///< of the list above; "" where no axis cuts anything
  ProductOperand a, b;                  ///< as they arrive
  ProductOperand c;                     ///< as it leaves: with pending sums over those axes of K that do not shard it
  Layout a_used, b_used;                ///< what a rank multiplies
  Layout c_made;                        ///< what that makes
  char along = 'k';                     ///< the index that panels cut
  using Panel = std::vector<Interval>;  ///< slabs of that index (of the one dimension of it that is cut)
  std::vector<Panel> panels;
  bool sums_slabs = false;                 ///< c_made is summed slab by slab into c
  std::vector<RedistributionStep> redistribute_c;  ///< else: c_made -> c
  std::vector<Alternative> alternatives;   ///< the best of each kind, the one that was taken first

  /// The same on another grid of the same axes.
  ProductPlan on(const Grid& grid) const;
  /// Which dimension of an operand the panels cut; -1 for the one without the index `along`.
  int cut_dim(const ProductOperand& operand) const;
  /// What `rank` has of `layout` (the operand's) in a slab.
  Box part(const ProductOperand& operand, const Layout& layout, int rank, Interval slab) const;
  /// What `rank` must gather of A or B to multiply a slab; empty where it can use what it has where it lies.
  Box gathered(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const;
  /// How it gets there.
  TransferPlan gather(const ProductOperand& operand, const Layout& used, int rank, Interval slab) const;
  /// Where the parts of C's sum in a slab belong: its adjoint adds them there.
  TransferPlan sum(int rank, Interval slab) const;
  /// The slabs for which A or B is gathered: all of the panels', or one of everything if panels do not cut it.
  std::vector<Interval> slabs(const ProductOperand& operand) const;
  /// What `rank` sends, for elements of `element_size` bytes: of panels, and of sums slab by slab; not of `finish`.
  Traffic traffic(int rank, Index element_size) const;
  /// The most elements that `rank` holds in panels, and in what it makes of C where C is not written in place; `finish` needs
  /// more beside the latter.
  Index workspace(int rank) const;
};

/// The names of the list above.
const std::vector<std::string>& product_algorithms();

/// What a product may decide.
struct ProductRequest {
  std::string algorithm = "auto";  ///< or a name of the list above
  bool b_follows = false;          ///< B lies as the product uses it, whatever layout was given
  AxisSet b_whole = 0;             ///< but not cut over these
  bool completes = false;          ///< C has no pending sums but those that its layout asks for
  /// The axes over which C is left a pending sum, if it must be just these.
  std::optional<AxisSet> pending = std::nullopt;
  bool whole_k = false;          ///< no panels of k: a sum kept in two bytes would be rounded after each
  Index narrowest_slab = 128;    ///< narrower ones are no product worth the call
  double panel_words = 1 << 20;  ///< of a rank: then the links' bandwidth counts, not their latency
};

/// How the product runs: "auto" takes the way with the least total cost on the rank that has most to do. Pure. Throws Error,
/// with all three shapes and layouts, if the operands do not match, if the grid cannot run the algorithm, or if A or B is a
/// pending sum.
ProductPlan plan_product(const ProductOperand& a, const ProductOperand& b, const ProductOperand& c,
                         const ProductRequest& request = {});

}  // namespace partita
