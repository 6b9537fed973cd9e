#include "src/backend/gpu/fused_attention.hpp"

#include "src/backend/common/attention_checks.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace partita {

namespace {

constexpr Index line = 256;  // bytes to which arrays in the workspace are aligned

Index lines(Index bytes) { return (bytes + line - 1) / line * line; }
Index tiles(Index places) { return (places + 127) / 128 * 128; }

/// The bytes of one number of sums for each query.
Index row_bytes(const AttentionPart& part, Index places) {
  return lines(part.batch * part.heads * places * size_of(DType::f32));
}

/// The bytes that a deterministic engine is expected to need. Backward it stores the gradient of all scores and, where
/// heads share keys, the gradients of keys and values of each.
Index engine_bytes(const AttentionGeometry& call, const AttentionPart& part) {
  if (call.backward == 0) return 0;
  const Index heads = part.batch * part.heads, shared = part.heads == part.key_heads ? 0 : 2;
  return 2 * heads * (tiles(call.places) * tiles(call.keys) + shared * call.keys * call.dim);
}

/// The steps from one head to the next, and from one batch to the next.
HeadSteps steps(const HeadRows& rows, const AttentionGeometry& call, const AttentionPart& part) {
  const bool by_group = call.queries > 1 && part.groups > 1;
  return {by_group ? rows.step : rows.places * rows.channels, call.queries == 1 ? rows.step : rows.dim, rows.channels};
}

AttentionPart made_part(const AttentionGeometry& call, Index samples, Index groups) {
  AttentionPart part{samples, groups};
  // Heads have a constant distance within a group and, where a group has one, among all of them.
  part.batch = call.queries == 1 ? samples : samples * groups;
  part.heads = call.queries == 1 ? groups : call.queries;
  part.key_heads = call.queries == 1 ? groups : 1;
  part.q = steps(call.q, call, part);
  part.k = steps(call.k, call, part);
  part.v = steps(call.v, call, part);
  part.y = steps(call.y, call, part);
  part.dq = steps(call.dq, call, part);
  part.dk = steps(call.dk, call, part);
  part.dv = steps(call.dv, call, part);
  part.bytes = row_bytes(part, call.places) * (call.backward != 0 ? 2 : 1);
  return part;
}

/// The largest power of two, up to 16, that divides the addresses of all heads, in bytes.
Index alignment_of(const AttentionCall& call) {
  const AttentionGeometry& all = call.geometry;
  const auto element = static_cast<std::uintptr_t>(size_of(call.traits.dtype));
  std::uintptr_t bits = 16;
  for (const AttentionTensor id : {at_q, at_k, at_v, at_y, at_dy, at_dq, at_dk, at_dv})
    bits |= reinterpret_cast<std::uintptr_t>(call.at[id]);
  for (const HeadRows* rows : {&all.q, &all.k, &all.v, &all.y, &all.dq, &all.dk, &all.dv})
    for (const Index distance : {rows->first, rows->step, rows->channels, rows->dim})
      bits |= static_cast<std::uintptr_t>(distance) * element;
  return static_cast<Index>(bits & (~bits + 1));
}

/// What both passes have in common.
AttentionCall made_call(const HeadShape& shape, const AttentionSizes& sizes, const Heads& q, const Heads& k,
                        const Heads& v, const Tensor& y, const Tensor& lse, Write write) {
  AttentionCall call;
  call.traits = {.dtype = q.x.dtype(),
                 .results = y.dtype(),
                 .segments = sizes.segments.ids != nullptr,
                 .drops = sizes.dropped.rate != 0,
                 .apart = sizes.ahead != 0 || sizes.places != sizes.keys,
                 .adds = write == Write::add,
                 .dim = sizes.dim};
  call.geometry = {.dtype = static_cast<Index>(q.x.dtype()),
                   .causal = sizes.causal ? 1 : 0,
                   .samples = sizes.samples,
                   .groups = sizes.groups,
                   .queries = sizes.queries,
                   .dim = sizes.dim,
                   .places = sizes.places,
                   .keys = sizes.keys,
                   .q = head_rows(q, sizes.dim),
                   .k = head_rows(k, sizes.dim),
                   .v = head_rows(v, sizes.dim),
                   .y = head_rows(all_heads(sizes, y, sizes.dim), sizes.dim)};
  call.at[at_q] = q.x.data();
  call.at[at_k] = k.x.data();
  call.at[at_v] = v.x.data();
  call.at[at_y] = y.data();
  call.at[at_lse] = lse.data();
  call.numbers = {static_cast<float>(shape.scale), -std::numeric_limits<float>::infinity(), 1};
  call.traits.alignment = alignment_of(call);
  return call;
}

}  // namespace

AttentionCall forward_call(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                           const Tensor& lse, Write write) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  return made_call(shape, sizes, q, k, v, y, lse, write);
}

AttentionCall backward_call(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                            const Tensor& dy, const Tensor& lse, const Heads& dq, const Heads& dk, const Heads& dv,
                            Write write) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  check_results(sizes, q, dy, lse);
  check_gradients(sizes, q, k, dq, dk, dv);
  AttentionCall call = made_call(shape, sizes, q, k, v, y, lse, write);
  for (const Tensor* each : {&dy, &dq.x, &dk.x, &dv.x})
    if (each->dtype() != call.traits.dtype) call.traits.results = each->dtype();
  call.geometry.backward = 1;
  call.geometry.dq = head_rows(dq, sizes.dim);
  call.geometry.dk = head_rows(dk, sizes.dim);
  call.geometry.dv = head_rows(dv, sizes.dim);
  call.at[at_dy] = dy.data();
  call.at[at_dq] = dq.x.data();
  call.at[at_dk] = dk.x.data();
  call.at[at_dv] = dv.x.data();
  call.traits.alignment = alignment_of(call);
  return call;
}

std::string_view why_not_fused(const AttentionTraits& traits) {
  if (traits.dtype != DType::bf16 && traits.dtype != DType::f16) return "cuDNN's engines take bf16 and f16";
  if (traits.adds) return "cuDNN's engines do not add to results for other keys";
  if (traits.results != traits.dtype) return "cuDNN's engines round results to the type of the queries";
  if (traits.segments) return "cuDNN's engines know no segments";
  if (traits.drops) return "cuDNN's engines would leave out other weights than the CPU does";
  if (traits.dim % 8 != 0) return "cuDNN's engines take heads of a multiple of 8 channels";
  if (traits.alignment % 16 != 0) return "cuDNN's engines take tensors that are aligned to 16 bytes";
  if (traits.apart) return "cuDNN would compile an engine for each number of keys, as of a text that grows";
  if (traits.cudnn < 91600) return "cuDNN before 9.16 needs numbers of keys that are multiples of 128";
  return "";
}

std::vector<AttentionPart> attention_parts(const AttentionGeometry& call, Index workspace) {
  std::vector<AttentionPart> parts;
  if (call.places == 0 || call.keys == 0) return parts;
  for (Index samples = 1; samples <= call.samples; ++samples)
    for (Index groups = 1; groups <= call.groups; ++groups) {
      if (call.samples % samples != 0 || call.groups % groups != 0) continue;
      if (call.queries > 1 && samples > 1 && groups > 1) continue;
      const AttentionPart part = made_part(call, samples, groups);
      if (part.bytes + engine_bytes(call, part) <= workspace) parts.push_back(part);
    }
  std::stable_sort(parts.begin(), parts.end(), [](const AttentionPart& a, const AttentionPart& b) {
    return a.samples * a.groups > b.samples * b.groups;
  });
  return parts;
}

std::vector<AttentionRun> attention_runs(const AttentionCall& call, const AttentionPart& part, std::byte* workspace) {
  const AttentionGeometry& all = call.geometry;
  const HeadRows lse{all.places, all.groups * all.queries, 0, all.queries, 1};
  const Index element = size_of(static_cast<DType>(all.dtype)), heads = part.groups * all.queries;
  const bool backward = all.backward != 0;
  std::vector<AttentionRun> runs;
  for (Index sample = 0; sample < all.samples; sample += part.samples)
    for (Index group = 0; group < all.groups; group += part.groups) {
      AttentionRun& run = runs.emplace_back();
      const auto set = [&](AttentionTensor id, const HeadRows& rows) {
        run.at[id] = static_cast<std::byte*>(call.at[id]) + rows.offset(sample, 0, group) * element;
      };
      set(at_q, all.q);
      set(at_k, all.k);
      set(at_v, all.v);
      set(at_y, all.y);
      run.at[at_lse] = workspace;
      run.at[at_scale] = const_cast<float*>(&call.numbers[0]);
      run.at[at_masked] = const_cast<float*>(&call.numbers[1]);
      if (backward) {
        set(at_dy, all.y);
        set(at_dq, all.dq);
        set(at_dk, all.dk);
        set(at_dv, all.dv);
        run.at[at_one] = const_cast<float*>(&call.numbers[2]);
        run.at[at_mean] = workspace + row_bytes(part, all.places);
      }

      std::byte* theirs = static_cast<std::byte*>(call.at[at_lse]) + lse.offset(sample, 0, group) * size_of(DType::f32);
      run.lse = {.from = backward ? theirs : workspace,
                 .to = backward ? workspace : theirs,
                 .from_type = DType::f32,
                 .to_type = DType::f32};
      const auto push = [&](Index extent, Index step, Index dense) {
        run.lse.push(extent, backward ? step : dense, backward ? dense : step);
      };
      push(part.samples, lse.places * lse.channels, heads * all.places);
      push(heads, 1, all.places);
      push(all.places, lse.channels, 1);
    }
  return runs;
}

}  // namespace partita
