#include "kernels/mlstm_mixer/mlstm_mixer.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/scratch.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(MixerFunctions, mixer_functions);

Table<MixerFunctions> mixer_table() { return {kImplementations, std::size(kImplementations)}; }

namespace {

// Hands out floats on 64-byte boundaries; with a null base it only counts.
struct Floats {
  float* base;
  int64_t used = 0;
  float* take(int64_t count) {
    float* piece = base ? base + used : nullptr;
    used += (count + 15) / 16 * 16;
    return piece;
  }
  size_t bytes() const { return static_cast<size_t>(used) * sizeof(float); }
};

int64_t round_up8(int64_t n) { return (n + 7) / 8 * 8; }
int64_t tokens_of(const MlstmMixerShape& s) { return s.rows * s.columns; }
int64_t taps_of(const MlstmMixerShape& s) { return s.causal ? s.kernel : s.kernel * s.kernel; }

// Parameters in the layouts of parts.h; also their gradients.
struct Packed {
  float *taps, *conv_bias, *q_lanes, *k_lanes, *v_lanes, *q_bias, *k_bias, *v_bias, *gate_weight, *gate_bias;
  float *scale, *bias, *skip;
  Packed(Floats& floats, const MlstmMixerShape& s) {
    const int64_t C = s.channels, G = round_up8(2 * s.heads);
    taps = floats.take(taps_of(s) * C), conv_bias = floats.take(C);
    q_lanes = floats.take(4 * C), k_lanes = floats.take(4 * C), v_lanes = floats.take(4 * C);
    q_bias = floats.take(C), k_bias = floats.take(C), v_bias = floats.take(C);
    gate_weight = floats.take(G * 3 * C), gate_bias = floats.take(G);
    scale = floats.take(C), bias = floats.take(C), skip = floats.take(C);
  }
};

void copy_or_zero(float* to, const float* from, int64_t count) {
  if (from)
    std::copy_n(from, count, to);
  else
    std::fill_n(to, count, 0.0f);
}

// lanes[d * C + 4 b + o] and weight[b][o][d], either way.
template <class Move>
void for_each_lane(int64_t channels, Move move) {
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t d = 0; d < 4; ++d) move(d * channels + c, c * 4 + d);
}

void pack(const MlstmMixerParameters& p, const MlstmMixerShape& s, const Packed& to) {
  const int64_t C = s.channels, H = s.heads, taps = taps_of(s), G = round_up8(2 * H);
  for (int64_t c = 0; c < C; ++c)
    for (int64_t t = 0; t < taps; ++t) to.taps[t * C + c] = p.conv_weight[c * taps + t];
  for_each_lane(C, [&](int64_t lane, int64_t weight) {
    to.q_lanes[lane] = p.q_weight[weight];
    to.k_lanes[lane] = p.k_weight[weight];
    to.v_lanes[lane] = p.v_weight[weight];
  });
  std::copy_n(p.input_weight, H * 3 * C, to.gate_weight);
  std::copy_n(p.forget_weight, H * 3 * C, to.gate_weight + H * 3 * C);
  std::fill_n(to.gate_weight + 2 * H * 3 * C, (G - 2 * H) * 3 * C, 0.0f);
  std::copy_n(p.input_bias, H, to.gate_bias);
  std::copy_n(p.forget_bias, H, to.gate_bias + H);
  std::fill_n(to.gate_bias + 2 * H, G - 2 * H, 0.0f);
  copy_or_zero(to.conv_bias, p.conv_bias, C);
  copy_or_zero(to.q_bias, p.q_bias, C), copy_or_zero(to.k_bias, p.k_bias, C),
      copy_or_zero(to.v_bias, p.v_bias, C);
  copy_or_zero(to.scale, p.norm_weight, C), copy_or_zero(to.bias, p.norm_bias, C),
      copy_or_zero(to.skip, p.skip, C);
}

void unpack(const Packed& from, const MlstmMixerShape& s, const MlstmMixerGradients& g) {
  const int64_t C = s.channels, H = s.heads, taps = taps_of(s);
  if (g.conv_weight)
    for (int64_t c = 0; c < C; ++c)
      for (int64_t t = 0; t < taps; ++t) g.conv_weight[c * taps + t] = from.taps[t * C + c];
  for_each_lane(C, [&](int64_t lane, int64_t weight) {
    if (g.q_weight) g.q_weight[weight] = from.q_lanes[lane];
    if (g.k_weight) g.k_weight[weight] = from.k_lanes[lane];
    if (g.v_weight) g.v_weight[weight] = from.v_lanes[lane];
  });
  const auto copy = [](float* to, const float* values, int64_t count) {
    if (to) std::copy_n(values, count, to);
  };
  copy(g.input_weight, from.gate_weight, H * 3 * C);
  copy(g.forget_weight, from.gate_weight + H * 3 * C, H * 3 * C);
  copy(g.input_bias, from.gate_bias, H), copy(g.forget_bias, from.gate_bias + H, H);
  copy(g.conv_bias, from.conv_bias, C), copy(g.q_bias, from.q_bias, C), copy(g.k_bias, from.k_bias, C);
  copy(g.v_bias, from.v_bias, C), copy(g.norm_weight, from.scale, C), copy(g.norm_bias, from.bias, C);
  copy(g.skip, from.skip, C);
}

// Tokens first … first+count-1, in the order of memory.
struct Piece {
  int64_t first, count;
};

// How many tokens forward takes at a time: a long sequence goes through all steps in pieces that stay in a
// second-level cache, the cell's state between them. Whole chunks of the cell.
int64_t piece_of(const MlstmMixerShape& s, int sharing) {
  constexpr int64_t kChunk = 64, kFloats = 1 << 18;  // a, q, k, v and h of a piece
  const int64_t tokens = std::max(kChunk, kFloats * sharing / (5 * s.channels) / kChunk * kChunk);
  return tokens_of(s) <= std::max<int64_t>(tokens, 256) ? tokens_of(s) : tokens;
}

// A piece and the tokens around it that the convolution reads for it.
Piece with_neighbours(const MlstmMixerShape& s, const Piece& piece) {
  const int64_t around = s.causal ? s.kernel - 1 : s.kernel / 2 * (s.columns + 1);
  const int64_t before = s.causal && s.reverse ? 0 : around, after = s.causal && !s.reverse ? 0 : around;
  const int64_t first = std::max<int64_t>(0, piece.first - before);
  return {first, std::min(tokens_of(s), piece.first + piece.count + after) - first};
}

// What one sample, or the piece of it that is at work, needs between the steps; (tokens,C) unless said
// otherwise.
struct Work {
  float *x, *z, *y;                        // widened copies, only for bfloat16; x with its neighbours
  float *pre, *a, *q, *k, *v, *gates, *h;  // gates (tokens,G')
  float *normaliser, *row_sign;            // (H,tokens)
  MlstmStateOut state;                     // between pieces
  float *dx, *dz, *dh, *da, *dq, *dk, *dv, *dgates;
  Work(Floats& floats, const MlstmMixerShape& s, int64_t tokens, bool half, bool backward) {
    const int64_t rows = tokens * s.channels, gate_rows = tokens * round_up8(2 * s.heads);
    const int64_t dim = s.channels / s.heads, pieces = tokens < tokens_of(s) ? 2 : 1;
    const auto take = [&](bool wanted) { return floats.take(wanted ? rows : 0); };
    const int64_t around = tokens_of(s) > 0 ? 2 * with_neighbours(s, {0, 1}).count * s.channels : 0;
    x = floats.take(half ? rows + around : 0), z = take(half), y = take(half);
    state.c = floats.take(pieces > 1 ? s.channels * dim : 0), state.n = floats.take(s.channels);
    state.m = floats.take(s.heads);
    pre = take(backward), a = take(true), q = take(true), k = take(true), v = take(true), h = take(true);
    dx = take(backward), dz = take(half && backward), dh = take(backward), da = take(backward);
    dq = take(backward), dk = take(backward), dv = take(backward);
    gates = floats.take(gate_rows), dgates = floats.take(backward ? gate_rows : 0);
    normaliser = floats.take(tokens * s.heads), row_sign = floats.take(tokens * s.heads);
  }
};

// How the steps of one sample are divided: among all threads, each with a number, or not at all because the
// threads have samples of their own.
struct Team {
  int members;
  bool shared;  // whether the members work on the same sample
  // body(begin, end, member) over pieces of [0, count).
  template <class Body>
  void over(int64_t count, int member, Body body) const {
    if (!shared) return body(int64_t{0}, count, member);
    parallel_for(members, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        body(count * i / members, count * (i + 1) / members, static_cast<int>(i));
    });
  }
};

struct Run {
  const MlstmMixerShape& s;
  const MixerFunctions& parts;
  const MlstmFunctions& cell;
  const Packed& weights;
  const Team& team;
  int64_t T() const { return tokens_of(s); }
  FloatRows rows(const float* data) const { return {data, 0, s.channels}; }
  FloatRowsOut rows_out(float* data) const { return {data, 0, s.channels}; }
  int64_t gate_row() const { return round_up8(2 * s.heads); }

  DepthwiseShape conv_shape() const {
    const int64_t half = (s.kernel - 1) / 2;
    if (s.causal) return {1, 1, T(), s.channels, 1, s.kernel, 0, s.kernel - 1, s.reverse};
    return {1, s.rows, s.columns, s.channels, s.kernel, s.kernel, half, half, s.reverse};
  }
  // Of a piece, in the chunks of the whole.
  MlstmShape cell_shape(int64_t count) const {
    const int64_t dim = s.channels / s.heads;
    MlstmShape shape = mlstm_plan({1, s.heads, T(), dim, dim, s.reverse, s.cell_eps, 0});
    shape.tokens = count;
    return mlstm_plan(shape);
  }
  HeadwiseWeights headwise() const {
    return {weights.q_lanes, weights.k_lanes, weights.v_lanes,     weights.q_bias,
            weights.k_bias,  weights.v_bias,  weights.gate_weight, weights.gate_bias};
  }
  HeadNormWeights norm() const { return {weights.scale, weights.bias, weights.skip}; }
  HeadRows heads(const float* data) const {
    return {data, Element::f32, 0, s.channels / s.heads, s.channels};
  }
  HeadRowsOut heads_out(float* data) const {
    return {data, Element::f32, 0, s.channels / s.heads, s.channels};
  }
  Gates gates(const float* data, int64_t first) const { return {data + first, 0, 1, gate_row()}; }
  GatesOut gates_out(float* data, int64_t first) const { return {data + first, 0, 1, gate_row()}; }
};

// Part `half` (0: x, 1: z) of a piece of sample b as floats, copied to `copy` if they are stored in another
// form.
FloatRows floats_of(const Run& run, const StoredRows& from, int64_t b, int64_t half, const Piece& piece,
                    float* copy, int member) {
  const int64_t C = run.s.channels, offset = b * from.batch + piece.first * from.token + half * C;
  if (from.element == Element::f32) return {static_cast<const float*>(from.data) + offset, 0, from.token};
  run.team.over(piece.count, member, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      run.parts.widen(static_cast<const uint16_t*>(from.data) + offset + t * from.token, copy + t * C, C);
  });
  return {copy, 0, C};
}
FloatRowsOut floats_to(const Run& run, const StoredRowsOut& to, int64_t b, int64_t half, const Piece& piece,
                       float* copy) {
  if (to.element != Element::f32) return {copy, 0, run.s.channels};
  const int64_t offset = b * to.batch + piece.first * to.token + half * run.s.channels;
  return {static_cast<float*>(to.data) + offset, 0, to.token};
}
void store_floats(const Run& run, const StoredRowsOut& to, int64_t b, int64_t half, const Piece& piece,
                  const float* copy, int member) {
  if (to.element == Element::f32) return;
  const int64_t C = run.s.channels, offset = b * to.batch + piece.first * to.token + half * C;
  run.team.over(piece.count, member, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t)
      run.parts.narrow(copy + t * C, static_cast<uint16_t*>(to.data) + offset + t * to.token, C);
  });
}

// The steps of a piece up to q, k, v and the gates; row 0 of x is token x_first.
void project(const Run& run, const Work& w, const FloatRows& x, int64_t x_first, const Piece& piece,
             bool keep_pre, int member) {
  const FloatRows own{x.data + (piece.first - x_first) * x.token, 0, x.token};
  run.team.over(piece.count, member, [&](int64_t begin, int64_t end, int) {
    run.parts.depthwise_forward(
        {run.conv_shape(), x, run.weights.taps, run.weights.conv_bias,
         keep_pre ? run.rows_out(w.pre) : FloatRowsOut{}, run.rows_out(w.a), x_first, piece.first},
        piece.first + begin, piece.first + end);
    run.parts.headwise_forward(
        {piece.count, run.s.channels, 2 * run.s.heads, run.rows(w.a), own, run.headwise(), run.rows_out(w.q),
         run.rows_out(w.k), run.rows_out(w.v), FloatRowsOut{w.gates, 0, run.gate_row()}},
        begin, end);
  });
}

// What a piece of the cell's walk is tied to.
struct Ties {
  bool initial, last;  // states before and after it are in Work
};

// `rows` are those of the piece; without normaliser and row_sign they are not kept.
void run_cell(const Run& run, const Work& w, const MlstmMixerSaved& rows, int64_t count, const Ties& ties,
              int member) {
  MlstmForward call;
  call.shape = run.cell_shape(count);
  call.q = run.heads(w.q), call.k = run.heads(w.k), call.v = run.heads(w.v), call.h = run.heads_out(rows.h);
  call.igate = run.gates(w.gates, 0), call.fgate = run.gates(w.gates, run.s.heads);
  if (ties.initial) call.initial = {w.state.c, w.state.n, w.state.m};
  if (ties.last) call.last = w.state;
  call.normaliser = rows.normaliser, call.row_sign = rows.row_sign;
  const size_t bytes = mlstm_scratch_bytes(call.shape, false);
  run.team.over(run.s.heads, member, [&](int64_t begin, int64_t end, int) {
    run.cell.forward(call, begin, end, thread_scratch(ScratchFor::kernel, bytes));
  });
}

// The cell's outputs of sample b: in the caller's memory where they are kept, else in the sample's.
MlstmMixerSaved saved_of(const Run& run, const Work& w, const MlstmMixerSaved& saved, int64_t b) {
  if (!saved.h) return {w.h, w.normaliser, w.row_sign};
  const int64_t rows = run.T() * run.s.channels, heads = run.T() * run.s.heads;
  return {saved.h + b * rows, saved.normaliser + b * heads, saved.row_sign + b * heads};
}

// (H,count) of a piece into (H,T) of the sample.
void keep_rows(const Run& run, const float* from, const Piece& piece, float* to) {
  for (int64_t head = 0; head < run.s.heads; ++head)
    std::copy_n(from + head * piece.count, piece.count, to + head * run.T() + piece.first);
}

void forward_piece(const Run& run, const MlstmMixerForward& call, const Work& w, int64_t b,
                   const Piece& piece, const Ties& ties, int member) {
  const Piece around = with_neighbours(run.s, piece);
  const FloatRows x = floats_of(run, call.u, b, 0, around, w.x, member),
                  z = floats_of(run, call.u, b, 1, piece, w.z, member);
  const FloatRowsOut y = floats_to(run, call.y, b, 0, piece, w.y);
  MlstmMixerSaved rows{w.h, nullptr, nullptr};
  const MlstmMixerSaved kept = saved_of(run, w, call.saved, b);
  if (call.saved.h) rows = {kept.h + piece.first * run.s.channels, w.normaliser, w.row_sign};
  project(run, w, x, around.first, piece, false, member);
  run_cell(run, w, rows, piece.count, ties, member);
  run.team.over(piece.count, member, [&](int64_t begin, int64_t end, int) {
    run.parts.head_norm_forward({piece.count, run.s.channels, run.s.heads, run.s.norm_eps, run.rows(rows.h),
                                 run.rows(w.a), z, run.norm(), y},
                                begin, end);
  });
  store_floats(run, call.y, b, 0, piece, w.y, member);
  if (!call.saved.h) return;
  keep_rows(run, w.normaliser, piece, kept.normaliser);
  keep_rows(run, w.row_sign, piece, kept.row_sign);
}

void forward_sample(const Run& run, const MlstmMixerForward& call, const Work& w, int64_t most, int64_t b,
                    int member) {
  const int64_t T = run.T();
  for (int64_t done = 0; done < T; done += most) {
    const int64_t count = std::min(most, T - done);
    forward_piece(run, call, w, b, {run.s.reverse ? T - done - count : done, count},
                  {done > 0, done + count < T}, member);
  }
}

void cell_backward(const Run& run, const Work& w, const MlstmMixerSaved& saved, int member) {
  MlstmBackward call;
  call.shape = run.cell_shape(run.T());
  call.q = run.heads(w.q), call.k = run.heads(w.k), call.v = run.heads(w.v), call.h = run.heads(saved.h);
  call.igate = run.gates(w.gates, 0), call.fgate = run.gates(w.gates, run.s.heads);
  call.normaliser = saved.normaliser, call.row_sign = saved.row_sign;
  call.dh = run.heads(w.dh);
  call.dq = run.heads_out(w.dq), call.dk = run.heads_out(w.dk), call.dv = run.heads_out(w.dv);
  call.digate = run.gates_out(w.dgates, 0), call.dfgate = run.gates_out(w.dgates, run.s.heads);
  const size_t bytes = mlstm_scratch_bytes(call.shape, true);
  if (run.gate_row() > 2 * run.s.heads) std::fill_n(w.dgates, run.T() * run.gate_row(), 0.0f);
  run.team.over(run.s.heads, member, [&](int64_t begin, int64_t end, int) {
    run.cell.backward(call, begin, end, thread_scratch(ScratchFor::kernel, bytes));
  });
}

// One Packed of gradients for each member, `share` floats apart.
struct Sums {
  float* base;
  int64_t share;
  Packed of(int member, const MlstmMixerShape& s) const {
    Floats floats{base + member * share};
    return Packed(floats, s);
  }
};

void backward_sample(const Run& run, const MlstmMixerBackward& call, const Work& w, const Sums& sums,
                     int64_t b, int member) {
  const int64_t T = run.T(), C = run.s.channels, H = run.s.heads;
  const Piece all{0, T};
  const FloatRows x = floats_of(run, call.u, b, 0, all, w.x, member),
                  z = floats_of(run, call.u, b, 1, all, w.z, member);
  const FloatRows dy = floats_of(run, call.dy, b, 0, all, w.y, member);
  const FloatRowsOut dz = floats_to(run, call.du, b, 1, all, w.dz);
  const MlstmMixerSaved saved = saved_of(run, w, call.saved, b);
  project(run, w, x, 0, all, true, member);
  if (!call.saved.h) run_cell(run, w, saved, T, {false, false}, member);
  run.team.over(T, member, [&](int64_t begin, int64_t end, int who) {
    const Packed sum = sums.of(who, run.s);
    run.parts.head_norm_backward(
        {T, C, H, run.s.norm_eps, run.rows(saved.h), run.rows(w.a), z, dy, run.norm(), run.rows_out(w.dh),
         run.rows_out(w.da), dz, sum.scale, sum.bias, sum.skip},
        begin, end);
  });
  cell_backward(run, w, saved, member);
  run.team.over(T, member, [&](int64_t begin, int64_t end, int who) {
    const Packed sum = sums.of(who, run.s);
    run.parts.headwise_backward(
        {T, C, 2 * H, run.rows(w.a), x, run.rows(w.q), run.rows(w.k), run.rows(w.v), run.headwise(),
         run.rows_out(w.dq), run.rows_out(w.dk), run.rows_out(w.dv), FloatRows{w.dgates, 0, run.gate_row()},
         run.rows_out(w.da), run.rows_out(w.dx),
         HeadwiseGradients{sum.q_lanes, sum.k_lanes, sum.v_lanes, sum.q_bias, sum.k_bias, sum.v_bias,
                           sum.gate_weight, sum.gate_bias}},
        begin, end);
    run.parts.silu_backward({T, C, run.rows(w.da), run.rows(w.pre), run.rows_out(w.da)}, begin, end);
  });
  const FloatRowsOut dx = floats_to(run, call.du, b, 0, all, w.dx);  // may be where the values to add stand
  run.team.over(T, member, [&](int64_t begin, int64_t end, int who) {
    const Packed sum = sums.of(who, run.s);
    run.parts.depthwise_backward(
        {run.conv_shape(), x, run.rows(w.da), run.weights.taps, run.rows(w.dx), dx, sum.taps, sum.conv_bias},
        begin, end);
  });
  store_floats(run, call.du, b, 0, all, w.dx, member);
  store_floats(run, call.du, b, 1, all, w.dz, member);
}

void check_shape(const char* operation, const MlstmMixerShape& s) {
  check(s.batch >= 0 && s.rows >= 0 && s.columns >= 0 && s.rows <= (int64_t{1} << 24) &&
            s.columns <= (int64_t{1} << 24) && s.batch <= (int64_t{1} << 30),
        operation, ": shape is batch ", s.batch, ", grid ", s.rows, " x ", s.columns,
        "; must not be negative or huge");
  check(s.channels > 0 && s.channels % 4 == 0 && s.heads > 0 && s.channels % s.heads == 0, operation, ": ",
        s.channels, " channels must be a multiple of 4 and of the ", s.heads, " heads");
  check(s.kernel >= 1 && s.kernel <= 63 && (s.causal || s.kernel % 2 == 1), operation, ": kernel ", s.kernel,
        " must be between 1 and 63, and odd where it is not causal");
}

void check_saved(const char* operation, const MlstmMixerSaved& saved) {
  check((saved.h != nullptr) == (saved.normaliser != nullptr) &&
            (saved.h != nullptr) == (saved.row_sign != nullptr),
        operation, ": of h, normaliser and row_sign only some are given; give all or none");
}

// A sample is worth sharing when its steps take longer than the threads need to meet between them.
Team team_for(const MlstmMixerShape& s) {
  constexpr int64_t kWorthSharing = 1 << 14;  // numbers in a (T,C) tensor
  const int threads = num_threads();
  return {threads, threads > 1 && s.batch < threads && tokens_of(s) * s.channels >= kWorthSharing};
}

// body(sample, member) for all samples, divided among the team.
template <class Body>
void over_samples(const Team& team, int64_t batch, Body body) {
  if (team.shared) {
    for (int64_t b = 0; b < batch; ++b) body(b, 0);
    return;
  }
  parallel_for(team.members, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t b = batch * i / team.members; b < batch * (i + 1) / team.members; ++b)
        body(b, static_cast<int>(i));
  });
}

Work work_of_thread(const MlstmMixerShape& s, int64_t tokens, bool half, bool backward) {
  Floats count{nullptr};
  Work(count, s, tokens, half, backward);
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::composition, count.bytes()))};
  return Work(floats, s, tokens, half, backward);
}

}  // namespace

void mlstm_mixer_forward(const MlstmMixerForward& call) {
  const MlstmMixerShape& s = call.shape;
  check_shape("mlstm_mixer_forward", s);
  check_saved("mlstm_mixer_forward", call.saved);
  if (s.batch == 0 || tokens_of(s) == 0) return;
  Floats count{nullptr};
  Packed(count, s);
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::shared, count.bytes()))};
  const Packed weights(floats, s);
  pack(call.parameters, s, weights);
  const Team team = team_for(s);
  const Run run{s, choose(mixer_table()), choose(mlstm_table()), weights, team};
  const bool half = call.u.element != Element::f32 || call.y.element != Element::f32;
  const int64_t most = piece_of(s, team.shared ? team.members : 1);
  over_samples(team, s.batch, [&](int64_t b, int member) {
    forward_sample(run, call, work_of_thread(s, most, half, false), most, b, member);
  });
}

void mlstm_mixer_backward(const MlstmMixerBackward& call) {
  const MlstmMixerShape& s = call.shape;
  check_shape("mlstm_mixer_backward", s);
  check_saved("mlstm_mixer_backward", call.saved);
  check(call.du.element == call.u.element, "mlstm_mixer_backward: du must be stored as u is");
  const Team team = team_for(s);
  Floats count{nullptr};
  for (int i = 0; i <= team.members; ++i) Packed(count, s);
  Floats floats{static_cast<float*>(thread_scratch(ScratchFor::shared, count.bytes()))};
  const Packed weights(floats, s);
  pack(call.parameters, s, weights);
  const Sums sums{floats.base + floats.used, floats.used};
  std::fill_n(sums.base, sums.share * team.members, 0.0f);
  const Run run{s, choose(mixer_table()), choose(mlstm_table()), weights, team};
  const bool half = call.u.element != Element::f32 || call.dy.element != Element::f32;
  if (tokens_of(s) > 0)
    over_samples(team, s.batch, [&](int64_t b, int member) {
      backward_sample(run, call, work_of_thread(s, tokens_of(s), half, true), sums, b, member);
    });
  for (int i = 1; i < team.members; ++i)
    for (int64_t j = 0; j < sums.share; ++j) sums.base[j] += sums.base[i * sums.share + j];
  unpack(sums.of(0, s), s, call.gradients);
}

}  // namespace tessera::kernels
