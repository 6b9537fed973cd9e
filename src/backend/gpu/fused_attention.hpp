#pragma once

#include "partita/backend/backend.hpp"
#include "src/backend/common/attention_sizes.hpp"

#include <array>
#include <limits>
#include <string_view>
#include <vector>

// Attention by a library's engines: which calls they may take, and in which parts. Nothing here calls the library.

namespace partita {

/// What decides whether cuDNN may compute attention.
struct AttentionTraits {
  DType dtype = DType::bf16;                        ///< of queries, keys and values
  DType results = DType::bf16;                      ///< of y, or of the gradients
  bool segments = false;                            ///< places see their own segment alone
  bool drops = false;                               ///< some weights are left out
  bool apart = false;                               ///< queries and keys are of different places
  bool adds = false;                                ///< what other keys contributed stays
  Index dim = 1;                                    ///< channels of a head
  Index alignment = 16;                             ///< bytes, of all heads
  Index cudnn = std::numeric_limits<Index>::max();  ///< the version, e.g. 91900
};
/// Returns why kernels of our own compute attention, to complete the sentence "..., since ..."; "" if cuDNN may.
std::string_view why_not_fused(const AttentionTraits& traits);

/// A call of attention without its addresses. All members are Index, so that the type has no padding bytes and can be
/// hashed as raw memory.
struct AttentionGeometry {
  Index dtype = static_cast<Index>(DType::bf16);                              ///< a DType
  Index backward = 0;                                                         ///< 1: the gradients
  Index causal = 0;                                                           ///< 1: place l sees keys up to l
  Index samples = 0, groups = 0, queries = 0, dim = 0, places = 0, keys = 0;  ///< as in AttentionSizes
  HeadRows q{}, k{}, v{}, y{};                                                ///< dy lies as y
  HeadRows dq{}, dk{}, dv{};                                                  ///< of a backward call
  bool operator==(const AttentionGeometry&) const = default;
};

/// Where the heads of one kind lie in a part: distances in elements. The channels of a head are neighbors.
struct HeadSteps {
  Index batch = 0, head = 0, place = 0;
};
/// A part of a call: `batch` times `heads` heads of queries; `heads / key_heads` of them share a head of keys.
struct AttentionPart {
  Index samples = 0, groups = 0;  ///< of the call
  Index batch = 0, heads = 0, key_heads = 0;
  HeadSteps q{}, k{}, v{}, y{}, dq{}, dk{}, dv{};
  /// Bytes of workspace that hold sums of rows as the engine takes them, before the workspace of the engine.
  Index bytes = 0;
};
/// Returns the parts into which a call may be divided, so that a workspace should suffice; those with the fewest
/// executions first. All parts of a division are alike. Heads of several groups and samples form one part only if a
/// batch and a head have constant distances.
std::vector<AttentionPart> attention_parts(const AttentionGeometry& call, Index workspace);

/// The tensors of a part, by the numbers that they have in the library's graph.
enum AttentionTensor : std::size_t {
  at_q,
  at_k,
  at_v,
  at_y,
  at_lse,     ///< dense f32 [batch, heads, places]
  at_scale,   ///< of the products of queries and keys
  at_masked,  ///< the score of a key that is not seen
  at_one,
  at_dy,
  at_dq,
  at_dk,
  at_dv,
  at_mean,  ///< dense f32 [batch, heads, places], for the engine
  attention_tensors
};
using AttentionAddresses = std::array<void*, attention_tensors>;

/// A call of attention with its addresses.
struct AttentionCall {
  AttentionTraits traits;
  AttentionGeometry geometry;
  AttentionAddresses at{};         ///< of the caller's tensors; lse[N C L] is not as engines take it
  std::array<float, 3> numbers{};  ///< at_scale, at_masked, at_one
};
/// Return the call for the arguments of Backend::attention_forward and Backend::attention_backward, and check them.
AttentionCall forward_call(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                           const Tensor& lse, Write write);
AttentionCall backward_call(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                            const Tensor& dy, const Tensor& lse, const Heads& dq, const Heads& dk, const Heads& dv,
                            Write write);

/// One execution of an engine.
struct AttentionRun {
  AttentionAddresses at{};
  BoxMove lse;  ///< to the engine's lse before a backward execution; from there after a forward one
};
/// Returns the executions of a call in parts. `workspace` has part.bytes bytes, which they use in turn.
/// @pre The call lives as long as the executions.
std::vector<AttentionRun> attention_runs(const AttentionCall& call, const AttentionPart& part, std::byte* workspace);

}  // namespace partita
