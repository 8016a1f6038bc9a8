#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_layout.h"
#include "kernels/memory.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(AttentionFunctions, attention);
#if TESSERA_KERNELS_X86
namespace avx512_vnni {
extern const AttentionForwardFunction attention_fixed;
}
namespace avx512_bf16 {
extern const AttentionFunctions attention_pairs;
extern const AttentionForwardFunction attention_bytes;
}  // namespace avx512_bf16
namespace amx {
extern const AttentionFunctions attention_pairs;
}
#endif

Table<AttentionFunctions> attention_table() { return {kImplementations, std::size(kImplementations)}; }

AttentionForwardFunction attention_fixed_point() {
#if TESSERA_KERNELS_X86
  if (active_isa() >= Isa::avx512_vnni) return avx512_vnni::attention_fixed;
#endif
  return nullptr;
}

AttentionForwardFunction attention_byte_scores() {
#if TESSERA_KERNELS_X86
  if (active_isa() >= Isa::avx512_bf16) return avx512_bf16::attention_bytes;
#endif
  return nullptr;
}

Table<AttentionFunctions> attention_pairs_table() {
#if TESSERA_KERNELS_X86
  static constexpr Implementation<AttentionFunctions> kPairs[] = {
      {Isa::amx, &amx::attention_pairs}, {Isa::avx512_bf16, &avx512_bf16::attention_pairs}};
  return {kPairs, std::size(kPairs)};
#else
  return {nullptr, 0};
#endif
}
const AttentionFunctions* attention_bf16_pairs() { return choose_if_any(attention_pairs_table()); }

AttentionShape attention_plan(const AttentionShape& shape, int threads) {
  AttentionShape planned = shape;
  // Up to 320 keys form one block, so no sum needs correction. Longer sequences use blocks that fit into a
  // second-level cache together with a unit's queries.
  if (planned.key_block <= 0) planned.key_block = shape.keys <= 320 ? shape.keys : 256;
  // Packing keys pays off with many queries per unit, but every thread should get several units.
  if (planned.query_rows <= 0) {
    const int64_t items = std::max<int64_t>(1, shape.batch * shape.heads);
    const int64_t pieces = std::max<int64_t>(1, (4 * threads + items - 1) / items);
    planned.query_rows = std::clamp<int64_t>((shape.queries + pieces - 1) / pieces, 64, 320);
  }
  planned.key_block = std::clamp<int64_t>(planned.key_block, 1, std::max<int64_t>(shape.keys, 1));
  planned.query_rows = std::clamp<int64_t>(planned.query_rows, 1, std::max<int64_t>(shape.queries, 1));
  return planned;
}

int64_t attention_units(const AttentionShape& planned) {
  return planned.batch * planned.heads * ((planned.queries + planned.query_rows - 1) / planned.query_rows);
}

size_t attention_scratch_bytes(const AttentionShape& planned, bool backward) {
  Arena arena = {nullptr, 0};
  if (backward)
    lay_out_backward(arena, planned);
  else
    lay_out_forward(arena, planned);
  return arena.used;
}

namespace {

template <class Call>
void check_call(const char* operation, const Call& call) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const AttentionShape& s = call.shape;
  for (const int64_t size : {s.batch, s.heads, s.queries, s.keys})
    check(size >= 0 && size <= kMost, operation, ": shape is batch ", s.batch, ", heads ", s.heads,
          ", queries ", s.queries, ", keys ", s.keys, "; each must be between 0 and ", kMost);
  check(s.dim >= 1 && s.dim <= 4096, operation, ": head dim is ", s.dim, ", must be between 1 and 4096");
  check(s.scale > 0 && std::isfinite(s.scale), operation, ": scale is ", s.scale, ", must be above 0");
  const AttentionMask& m = call.mask;
  check(m.window >= 0 && m.first_query >= 0 && m.first_query <= kMost, operation, ": window is ", m.window,
        " and first query ", m.first_query, ", neither may be negative");
  for (const Rotary& table : {call.q_rotary, call.k_rotary})
    check(!table.cos || (table.sin && table.pairs >= 0 && 2 * table.pairs <= s.dim), operation, ": ",
          table.pairs, " rotated pairs need more than ", s.dim, " channels");
  check(call.bias.batches >= 1, operation, ": the bias has ", call.bias.batches, " samples, must have one");
}

template <class Call>
const AttentionFunctions& functions_for(const Call& call) {
  const auto half = [](const HeadRows& rows) { return rows.element == Element::bf16; };
  if (half(call.q) && half(call.k) && half(call.v) && bf16_pairs_are_faster(active_isa()))
    if (const AttentionFunctions* pairs = attention_bf16_pairs()) return *pairs;
  return choose(attention_table());
}

// Returns integer products if they are allowed, but prefers tiles of bfloat16, which are faster.
AttentionForwardFunction forward_for(const AttentionForward& call) {
  const AttentionFunctions& functions = functions_for(call);
  if (!call.fixed_point) return functions.forward;
  if (&functions == attention_bf16_pairs())
    return active_isa() >= Isa::amx ? functions.forward : attention_byte_scores();
  const bool in_units = call.mask.future_weight >= 0 && call.mask.future_weight <= 1;
  const AttentionForwardFunction fixed = in_units ? attention_fixed_point() : nullptr;
  return fixed ? fixed : functions.forward;
}

}  // namespace

void attention_forward(const AttentionForward& call) {
  check_call("attention_forward", call);
  AttentionForward planned = call;
  planned.shape = attention_plan(call.shape, num_threads());
  const size_t bytes = attention_scratch_bytes(planned.shape, false);
  const AttentionForwardFunction forward = forward_for(call);
  parallel_for(attention_units(planned.shape), 1, [&](int64_t begin, int64_t end) {
    forward(planned, begin, end, thread_scratch(ScratchFor::kernel, bytes));
  });
}

void attention_backward(const AttentionBackward& call) {
  check_call("attention_backward", call);
  check(!call.dbias || call.bias.data, "attention_backward: dbias is given, but no bias");
  AttentionBackward planned = call;
  planned.shape = attention_plan(call.shape, num_threads());
  const AttentionShape& s = planned.shape;
  const size_t bytes = attention_scratch_bytes(s, true);
  const AttentionFunctions& functions = functions_for(call);
  const int64_t dbias_size =
      call.dbias ? call.bias.batches * (call.bias.head ? s.heads : 1) * s.queries * s.keys : 0;
  std::fill_n(call.dbias, dbias_size, 0.0f);
  std::mutex adding;
  std::map<int64_t, std::vector<float>> parts;  // always in the order of the heads, so the sum never varies
  parallel_for(s.batch * s.heads, 1, [&](int64_t begin, int64_t end) {
    // Heads of several threads may share a bias, so each head has a separate sum.
    std::vector<float> dbias(static_cast<size_t>(dbias_size));
    functions.backward(planned, begin, end, dbias_size ? dbias.data() : nullptr,
                       thread_scratch(ScratchFor::kernel, bytes));
    const std::lock_guard lock(adding);
    parts.emplace(begin, std::move(dbias));
  });
  for (const auto& [begin, part] : parts)
    for (size_t i = 0; i < part.size(); ++i) call.dbias[i] += part[i];
}

}  // namespace tessera::kernels
