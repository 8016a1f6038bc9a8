#include <algorithm>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/memory.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/mlstm/mlstm_layout.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(MlstmFunctions, mlstm);
#if TESSERA_KERNELS_X86
namespace avx512_bf16 {
extern const MlstmFunctions mlstm_pairs;
}
namespace amx {
extern const MlstmFunctions mlstm_pairs;
}
#endif

Table<MlstmFunctions> mlstm_table() { return {kImplementations, std::size(kImplementations)}; }

Table<MlstmFunctions> mlstm_pairs_table() {
#if TESSERA_KERNELS_X86
  static constexpr Implementation<MlstmFunctions> kPairs[] = {{Isa::amx, &amx::mlstm_pairs},
                                                              {Isa::avx512_bf16, &avx512_bf16::mlstm_pairs}};
  return {kPairs, std::size(kPairs)};
#else
  return {nullptr, 0};
#endif
}
const MlstmFunctions* mlstm_bf16_pairs() { return choose_if_any(mlstm_pairs_table()); }

const MlstmFunctions& mlstm_for(Element element) {
  const bool wanted = element == Element::bf16 && bf16_pairs_are_faster(active_isa());
  const MlstmFunctions* pairs = wanted ? mlstm_bf16_pairs() : nullptr;
  return pairs ? *pairs : choose(mlstm_table());
}

MlstmShape mlstm_plan(const MlstmShape& shape) {
  MlstmShape planned = shape;
  if (planned.chunk <= 0) {
    // Up to 256 tokens form one chunk, whose triangle costs less than passing a state. Longer sequences use
    // chunks of 64: the products with the state (2 K V per token) outweigh those within the chunk, and the
    // chunk fits into the first-level cache.
    planned.chunk = shape.tokens <= 256 ? shape.tokens : 64;
  }
  planned.chunk = std::max<int64_t>(1, std::min(planned.chunk, std::max<int64_t>(shape.tokens, 1)));
  return planned;
}

size_t mlstm_scratch_bytes(const MlstmShape& planned, bool backward) {
  Arena arena = {nullptr, 0};
  if (backward)
    lay_out_backward(arena, planned);
  else
    lay_out_forward(arena, planned);
  return arena.used;
}

namespace {

void check_shape(const char* operation, const MlstmShape& s) {
  constexpr int64_t kMost = int64_t{1} << 30;
  check(s.batch >= 0 && s.heads >= 0 && s.tokens >= 0 && s.batch <= kMost && s.heads <= kMost &&
            s.tokens <= kMost,
        operation, ": shape is batch ", s.batch, ", heads ", s.heads, ", tokens ", s.tokens,
        "; each must be between 0 and ", kMost);
  check(s.key_dim >= 1 && s.value_dim >= 1 && s.key_dim <= 4096 && s.value_dim <= 4096, operation,
        ": head dims are ", s.key_dim, " (keys) and ", s.value_dim, " (values), must be between 1 and 4096");
  check(s.eps >= 0, operation, ": eps is ", s.eps, ", must not be negative");
}

template <class Call>
void check_elements(const char* operation, const Call& call) {
  check(call.k.element == call.q.element && call.v.element == call.q.element, operation,
        ": q, k and v are stored as different types, must be of one");
}

template <class State>
void check_state(const char* operation, const char* what, const State& state) {
  const bool all = state.c && state.n && state.m, none = !state.c && !state.n && !state.m;
  check(all || none, operation, ": ", what, " has only some of c, n and m; give all or none");
}

template <class Call, class Run>
void over_heads(const Call& call, bool backward, Run run) {
  const size_t bytes = mlstm_scratch_bytes(call.shape, backward);
  parallel_for(call.shape.batch * call.shape.heads, 1, [&](int64_t begin, int64_t end) {
    run(call, begin, end, thread_scratch(ScratchFor::kernel, bytes));
  });
}

}  // namespace

void mlstm_forward(const MlstmForward& call) {
  check_shape("mlstm_forward", call.shape);
  check_elements("mlstm_forward", call);
  check_state("mlstm_forward", "initial", call.initial);
  check_state("mlstm_forward", "last", call.last);
  MlstmForward planned = call;
  planned.shape = mlstm_plan(call.shape);
  over_heads(planned, false, mlstm_for(call.q.element).forward);
}

void mlstm_backward(const MlstmBackward& call) {
  check_shape("mlstm_backward", call.shape);
  check_elements("mlstm_backward", call);
  check_state("mlstm_backward", "initial", call.initial);
  check_state("mlstm_backward", "dlast", call.dlast);
  check_state("mlstm_backward", "dinitial", call.dinitial);
  check(!call.dinitial.c || call.initial.c, "mlstm_backward: dinitial is given, but no initial state");
  MlstmBackward planned = call;
  planned.shape = mlstm_plan(call.shape);
  over_heads(planned, true, mlstm_for(call.q.element).backward);
}

}  // namespace tessera::kernels
