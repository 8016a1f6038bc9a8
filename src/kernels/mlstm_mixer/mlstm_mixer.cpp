#include "kernels/mlstm_mixer/mlstm_mixer.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/memory.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/mlstm_mixer/mixer_workspace.h"
#include "kernels/mlstm_mixer/mlstm_mixer_pack.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(MixerFunctions, mixer_functions);

#if TESSERA_KERNELS_X86
// One more set on top of AVX-512, for products of pairs and for the instruction that rounds to bfloat16,
// which replaces four others.
namespace avx512_bf16 {
extern const MixerFunctions mixer_functions;
}
static_assert(std::size(kImplementations) == 4);
static constexpr Implementation<MixerFunctions> kWithBf16[] = {
    {Isa::avx512_bf16, &avx512_bf16::mixer_functions},
    kImplementations[0],
    kImplementations[1],
    kImplementations[2],
    kImplementations[3]};
Table<MixerFunctions> mixer_table() { return {kWithBf16, std::size(kWithBf16)}; }
#else
Table<MixerFunctions> mixer_table() { return {kImplementations, std::size(kImplementations)}; }
#endif

namespace {

// Tokens per forward piece, in whole chunks of the cell. A long sequence goes through all steps in pieces
// that fit into a second-level cache; the cell's state connects them.
int64_t piece_of(const MlstmMixerShape& s, int sharing) {
  constexpr int64_t kChunk = 64, kFloats = 1 << 18;
  const int64_t floats = 2 * s.channels + 4 * HeadGroups(s).width();  // x, a; q, k, v and h of a group
  const int64_t tokens = std::max(kChunk, kFloats * sharing / floats / kChunk * kChunk);
  return tokens_of(s) <= std::max<int64_t>(tokens, 256) ? tokens_of(s) : tokens;
}

struct Run {
  const MlstmMixerShape& s;
  const MixerFunctions& parts;
  const MlstmFunctions& cell;
  const PackedMixer& weights;
  const MixerTeam& team;
  HeadGroups groups{s};
  int64_t T() const { return tokens_of(s); }
  // True if the cell rounds q, k and v to bfloat16 in any case.
  bool half_cell() const { return &cell == mlstm_bf16_pairs(); }
  // q, k or v of a group in the cell's storage type, and as the cell reads them.
  Element cell_element() const { return half_cell() ? Element::bf16 : Element::f32; }
  TokenRowsOut projected(float* data) const { return {data, cell_element(), 0, groups.width()}; }
  HeadRows cell_rows(const float* data) const {
    return {data, cell_element(), 0, groups.dim, groups.width()};
  }
  FloatRows rows(const float* data) const { return {data, 0, s.channels}; }
  FloatRowsOut rows_out(float* data) const { return {data, 0, s.channels}; }
  FloatRows group_rows(const float* data) const { return {data, 0, groups.width()}; }
  FloatRowsOut group_rows_out(float* data) const { return {data, 0, groups.width()}; }

  DepthwiseShape conv_shape() const {
    const int64_t half = (s.kernel - 1) / 2;
    if (s.causal) return {1, 1, T(), s.channels, 1, s.kernel, 0, s.kernel - 1, s.reverse};
    return {1, s.rows, s.columns, s.channels, s.kernel, s.kernel, half, half, s.reverse};
  }
  // The cell of a group over `count` tokens, with the chunks of the whole sequence.
  MlstmShape cell_shape(int64_t count) const {
    MlstmShape shape = mlstm_plan({1, groups.heads, T(), groups.dim, groups.dim, s.reverse, s.cell_eps, 0});
    shape.tokens = count;
    return mlstm_plan(shape);
  }
  HeadNormWeights norm(int64_t c) const { return {weights.scale + c, weights.bias + c, weights.skip + c}; }
  // Heads of a group in rows at a distance of `token`.
  HeadRows heads(const float* data, int64_t token) const {
    return {data, Element::f32, 0, groups.dim, token};
  }
  HeadRowsOut heads_out(float* data, int64_t token) const {
    return {data, Element::f32, 0, groups.dim, token};
  }
  Gates gates(const float* data, int64_t first) const { return {data + first, 0, 1, gate_row(s)}; }
  GatesOut gates_out(float* data, int64_t first) const { return {data + first, 0, 1, gate_row(s)}; }
};

template <class View>
View columns_from(View view, int64_t c) {
  view.data += c;
  return view;
}

// Copies x of a piece with the neighbours that the convolution reads. The convolution reads column by column
// and more than once, and in u each row is on a different page.
TokenRows x_of(const Run& run, const TokenRows& u, int64_t b, const TokenRange& around,
               const TokenRowsOut& copy, int member) {
  const auto from = rows_of(u, b, 0, around);
  run.team.over(around.count, member,
                [&](int64_t begin, int64_t end, int) { copy_rows(from, copy, run.s.channels, begin, end); });
  return to_read(copy);
}

// Computes the convolution and the gates of a piece; row 0 of x is token x_first.
void convolve(const Run& run, const MixerWorkspace& w, const TokenRows& x, int64_t x_first,
              const TokenRange& piece, int member) {
  const TokenRows own = rows_from(x, piece.first - x_first, 0), a = to_read(w.a);
  DepthwiseForward convolution{run.conv_shape(),    x,   run.weights.taps, run.weights.conv_bias,
                               run.rows_out(w.pre), w.a, x_first,          piece.first};
  GatesForward gates{piece.count,
                     run.s.channels,
                     2 * run.s.heads,
                     a,
                     own,
                     run.weights.folded_weight,
                     run.weights.folded_bias,
                     FloatRowsOut{w.gates, 0, gate_row(run.s)},
                     run.weights.folded_half};
  run.team.over(piece.count, member, [&](int64_t begin, int64_t end, int) {
    run.parts.depthwise_forward(convolution, piece.first + begin, piece.first + end);
    run.parts.gates_forward(gates, begin, end);
  });
}

// The states that a range of the cell's walk gets and passes on.
struct CarryState {
  bool initial, last;  // states before and after the range are in the MixerWorkspace
};

// h of a group: rows at a distance of `token`.
struct GroupOutput {
  float* h;
  int64_t token;
  float *normaliser, *row_sign;  // (heads of the group, tokens); null: not kept
};

// Computes q, k, v of group `g` in `at`, and the cell.
void run_group(const Run& run, const MixerWorkspace& w, const GroupWorkspace& at, const TokenRows& x,
               int64_t g, int64_t count, const CarryState& carry, const GroupOutput* out) {
  const int64_t dim = run.groups.dim, width = run.groups.width(), c = g * width, head = g * run.groups.heads;
  const TokenRows a_columns = rows_from(to_read(w.a), 0, c), x_columns = rows_from(x, 0, c);
  HeadwiseForward projections{count,
                              width,
                              a_columns,
                              x_columns,
                              run.weights.headwise(run.s, c),
                              run.projected(at.q),
                              run.projected(at.k),
                              run.projected(at.v)};
  projections.pairs = run.weights.folded_half != nullptr;
  MlstmForward call;
  call.shape = run.cell_shape(count);
  call.q = run.cell_rows(at.q), call.k = run.cell_rows(at.k), call.v = run.cell_rows(at.v);
  run.parts.headwise_forward(projections, 0, count);
  if (!out) return;
  call.h = run.heads_out(out->h, out->token);
  call.igate = run.gates(w.gates, head), call.fgate = run.gates(w.gates, run.s.heads + head);
  const MlstmStateOut state{w.state.c + c * dim, w.state.n + c, w.state.m + head};
  if (carry.initial) call.initial = {state.c, state.n, state.m};
  if (carry.last) call.last = state;
  call.normaliser = out->normaliser, call.row_sign = out->row_sign;
  run.cell.forward(call, 0, run.groups.heads,
                   thread_scratch(ScratchFor::kernel, mlstm_scratch_bytes(call.shape, false)));
}

// Copies (H,count) of a piece into (H,T) of the sample.
void keep_rows(const Run& run, const float* from, const TokenRange& piece, float* to) {
  for (int64_t head = 0; head < run.s.heads; ++head)
    std::copy_n(from + head * piece.count, piece.count, to + head * run.T() + piece.first);
}

void forward_piece(const Run& run, const MlstmMixerForward& call, const MixerWorkspace& w, int64_t b,
                   const TokenRange& piece, const CarryState& carry, int member) {
  const int64_t C = run.s.channels, H = run.s.heads, width = run.groups.width();
  const TokenRange around = with_neighbours(run.s, piece);
  const TokenRows x = x_of(run, call.u, b, around, w.x, member);
  const TokenRows own = rows_from(x, piece.first - around.first, 0);
  convolve(run, w, x, around.first, piece, member);
  run.team.each(run.groups.count, member, [&](int64_t g, int64_t slot, int) {
    const GroupWorkspace at = w.group(slot);
    const int64_t c = g * width, head = g * run.groups.heads;
    GroupOutput out{at.h, width, nullptr, nullptr};
    if (call.saved.h)
      out = {call.saved.h + (b * run.T() + piece.first) * C + c, C, w.normaliser + head * piece.count,
             w.row_sign + head * piece.count};
    run_group(run, w, at, own, g, piece.count, carry, &out);
    const TokenRows a = rows_from(to_read(w.a), 0, c), z = rows_of(call.u, b, C + c, piece);
    const auto y = rows_of(call.y, b, c, piece);
    run.parts.head_norm_forward({.tokens = piece.count,
                                 .channels = width,
                                 .heads = run.groups.heads,
                                 .eps = run.s.norm_eps,
                                 .h = FloatRows{out.h, 0, out.token},
                                 .a = a,
                                 .z = z,
                                 .weights = run.norm(c),
                                 .y = y},
                                0, piece.count);
  });
  if (!call.saved.h) return;
  keep_rows(run, w.normaliser, piece, call.saved.normaliser + b * H * run.T());
  keep_rows(run, w.row_sign, piece, call.saved.row_sign + b * H * run.T());
}

void forward_sample(const Run& run, const MlstmMixerForward& call, const MixerWorkspace& w, int64_t most,
                    int64_t b, int member) {
  const int64_t T = run.T();
  for (int64_t done = 0; done < T; done += most) {
    const int64_t count = std::min(most, T - done);
    forward_piece(run, call, w, b, {run.s.reverse ? T - done - count : done, count},
                  {done > 0, done + count < T}, member);
  }
}

// Computes dq, dk, dv of a group in `at` and its columns of the gates' gradients, from at.dh.
void cell_backward(const Run& run, const MixerWorkspace& w, const GroupWorkspace& at, const GroupOutput& out,
                   int64_t g) {
  const int64_t head = g * run.groups.heads, width = run.groups.width();
  MlstmBackward call;
  call.shape = run.cell_shape(run.T());
  call.q = run.cell_rows(at.q), call.k = run.cell_rows(at.k), call.v = run.cell_rows(at.v);
  call.h = run.heads(out.h, out.token), call.dh = run.heads(at.dh, width);
  call.igate = run.gates(w.gates, head), call.fgate = run.gates(w.gates, run.s.heads + head);
  call.normaliser = out.normaliser, call.row_sign = out.row_sign;
  call.dq = run.heads_out(at.dq, width), call.dk = run.heads_out(at.dk, width);
  call.dv = run.heads_out(at.dv, width);
  call.digate = run.gates_out(w.dgates, head), call.dfgate = run.gates_out(w.dgates, run.s.heads + head);
  run.cell.backward(call, 0, run.groups.heads,
                    thread_scratch(ScratchFor::kernel, mlstm_scratch_bytes(call.shape, true)));
}

// One PackedMixer of gradients per member, at a distance of `share` floats.
struct Sums {
  float* base;
  int64_t share;
  PackedMixer of(int member, const MlstmMixerShape& s) const {
    Floats floats{base + member * share};
    return PackedMixer(floats, s);
  }
};

// All steps of a group of heads of sample b; leaves its columns of w.da, dx and w.dgates.
void backward_group(const Run& run, const MlstmMixerBackward& call, const MixerWorkspace& w,
                    const GroupWorkspace& at, const TokenRows& x, const FloatRowsOut& dx,
                    const PackedMixer& sum, int64_t b, int64_t g) {
  const int64_t T = run.T(), C = run.s.channels, width = run.groups.width(), c = g * width,
                head = g * run.groups.heads;
  const TokenRange all{0, T};
  GroupOutput out{at.h, width, w.normaliser + head * T, w.row_sign + head * T};
  if (call.saved.h) {
    const int64_t rows = (b * run.s.heads + head) * T;
    out = {call.saved.h + b * T * C + c, C, call.saved.normaliser + rows, call.saved.row_sign + rows};
  }
  run_group(run, w, at, x, g, T, {false, false}, call.saved.h ? nullptr : &out);
  const TokenRows a = rows_from(to_read(w.a), 0, c), x_columns = rows_from(x, 0, c),
                  z = rows_of(call.u, b, C + c, all), dy = rows_of(call.dy, b, c, all);
  const auto dz = rows_of(call.du, b, C + c, all);
  const FloatRowsOut da = columns_from(run.rows_out(w.da), c);
  run.parts.head_norm_backward({.tokens = T,
                                .channels = width,
                                .heads = run.groups.heads,
                                .eps = run.s.norm_eps,
                                .h = FloatRows{out.h, 0, out.token},
                                .a = a,
                                .z = z,
                                .dy = dy,
                                .weights = run.norm(c),
                                .dh = run.group_rows_out(at.dh),
                                .da = da,
                                .dz = dz,
                                .dscale = sum.scale + c,
                                .dbias = sum.bias + c,
                                .dskip = sum.skip + c},
                               0, T);
  cell_backward(run, w, at, out, g);
  run.parts.headwise_backward(
      {T, width, a, x_columns, run.group_rows(at.dq), run.group_rows(at.dk), run.group_rows(at.dv),
       run.weights.headwise(run.s, c), da, columns_from(dx, c), sum.headwise_sums(run.s, c)},
      0, T);
}

void backward_sample(const Run& run, const MlstmMixerBackward& call, const MixerWorkspace& w,
                     const Sums& sums, int64_t b, int member) {
  const int64_t T = run.T(), C = run.s.channels, G = gate_row(run.s);
  const TokenRange all{0, T};
  const TokenRows x = x_of(run, call.u, b, all, w.x, member), a = to_read(w.a);
  const auto du = rows_of(call.du, b, 0, all);
  const FloatRowsOut dx = du.element == Element::f32
                              ? FloatRowsOut{static_cast<float*>(du.data), du.batch, du.token}
                              : run.rows_out(w.dx);
  convolve(run, w, x, 0, all, member);
  if (G > 2 * run.s.heads) std::fill_n(w.dgates, T * G, 0.0f);
  run.team.each(run.groups.count, member, [&](int64_t g, int64_t slot, int who) {
    backward_group(run, call, w, w.group(slot), x, dx, sums.of(who, run.s), b, g);
  });
  run.team.over(T, member, [&](int64_t begin, int64_t end, int who) {
    const PackedMixer sum = sums.of(who, run.s);
    run.parts.gates_backward({.tokens = T,
                              .channels = C,
                              .gates = 2 * run.s.heads,
                              .a = a,
                              .x = x,
                              .pre = run.rows(w.pre),
                              .weight = run.weights.folded_weight,
                              .dgate = FloatRows{w.dgates, 0, G},
                              .da = run.rows_out(w.da),
                              .dx = dx,
                              .dweight = sum.folded_weight,
                              .dbias = sum.folded_bias,
                              .weight_half = run.weights.folded_half},
                             begin, end);
  });
  run.team.over(T, member, [&](int64_t begin, int64_t end, int who) {
    const PackedMixer sum = sums.of(who, run.s);
    run.parts.depthwise_backward({run.conv_shape(), x, run.rows(w.da), run.weights.taps,
                                  FloatRows{dx.data, 0, dx.token}, du, sum.taps, sum.conv_bias},
                                 begin, end);
  });
}

void check_shape(const char* operation, const MlstmMixerShape& s) {
  check(s.batch >= 0 && s.rows >= 0 && s.columns >= 0 && s.rows <= (int64_t{1} << 24) &&
            s.columns <= (int64_t{1} << 24) && s.batch <= (int64_t{1} << 30),
        operation, ": shape is batch ", s.batch, ", grid ", s.rows, " x ", s.columns,
        "; must not be negative or huge");
  check(s.channels > 0 && s.channels % 4 == 0 && s.heads > 0 && s.channels % s.heads == 0, operation, ": ",
        s.channels, " channels must be a multiple of 4 and of the ", s.heads, " heads");
  check(s.kernel >= 1 && s.kernel <= 63 && (s.causal || s.kernel % 2 == 1), operation, ": kernel ", s.kernel,
        " must be between 1 and 63, and odd unless causal");
}

void check_saved(const char* operation, const MlstmMixerSaved& saved) {
  check((saved.h != nullptr) == (saved.normaliser != nullptr) &&
            (saved.h != nullptr) == (saved.row_sign != nullptr),
        operation, ": of h, normaliser and row_sign only some are given; give all or none");
}

// True if the projections and the gates multiply pairs of bfloat16. The parts support pairs but not tiles,
// which the cell may use.
bool in_pairs(Element element) { return element == Element::bf16 && bf16_pairs_are_faster(Isa::avx512_bf16); }

MixerWorkspace workspace_of_thread(const MlstmMixerShape& s, int64_t tokens, const MixerTeam& team,
                                   Element element, bool backward) {
  const int64_t slots = team.shared ? team.members : 1;
  Floats count{nullptr};
  MixerWorkspace(count, s, tokens, slots, element, backward);
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::composition, count.bytes()))};
  return MixerWorkspace(floats, s, tokens, slots, element, backward);
}

}  // namespace

void mlstm_mixer_forward(const MlstmMixerForward& call) {
  const MlstmMixerShape& s = call.shape;
  check_shape("mlstm_mixer_forward", s);
  check_saved("mlstm_mixer_forward", call.saved);
  check(call.y.element == call.u.element, "mlstm_mixer_forward: y must be stored as u is");
  if (s.batch == 0 || tokens_of(s) == 0) return;
  Floats count{nullptr};
  PackedMixer(count, s, in_pairs(call.u.element));
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::shared, count.bytes()))};
  const PackedMixer weights(floats, s, in_pairs(call.u.element));
  const MixerFunctions& parts = choose(mixer_table());
  pack_mixer(call.parameters, s, parts, weights);
  const MixerTeam team = team_for(s);
  const Run run{s, parts, mlstm_for(call.u.element), weights, team};
  const int64_t most = piece_of(s, team.shared ? team.members : 1);
  over_samples(team, s.batch, [&](int64_t b, int member) {
    forward_sample(run, call, workspace_of_thread(s, most, team, call.u.element, false), most, b, member);
  });
}

void mlstm_mixer_backward(const MlstmMixerBackward& call) {
  const MlstmMixerShape& s = call.shape;
  check_shape("mlstm_mixer_backward", s);
  check_saved("mlstm_mixer_backward", call.saved);
  check(call.dy.element == call.u.element && call.du.element == call.u.element,
        "mlstm_mixer_backward: dy and du must be stored as u is");
  const MixerTeam team = team_for(s);
  Floats share{nullptr}, count{nullptr};
  PackedMixer(share, s);
  PackedMixer(count, s, in_pairs(call.u.element));
  count.take(share.used * team.members);
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::shared, count.bytes()))};
  const PackedMixer weights(floats, s, in_pairs(call.u.element));
  const MixerFunctions& parts = choose(mixer_table());
  pack_mixer(call.parameters, s, parts, weights);
  const Sums sums{floats.base + floats.used, share.used};
  std::fill_n(sums.base, sums.share * team.members, 0.0f);
  const Run run{s, parts, mlstm_for(call.u.element), weights, team};
  if (tokens_of(s) > 0)
    over_samples(team, s.batch, [&](int64_t b, int member) {
      backward_sample(run, call, workspace_of_thread(s, tokens_of(s), team, call.u.element, true), sums, b,
                      member);
    });
  for (int i = 1; i < team.members; ++i)
    for (int64_t j = 0; j < sums.share; ++j) sums.base[j] += sums.base[i * sums.share + j];
  unpack_mixer(weights, sums.of(0, s), s, parts, call.gradients);
}

}  // namespace tessera::kernels
