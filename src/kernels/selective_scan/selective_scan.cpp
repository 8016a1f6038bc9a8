// The selective scan for one instruction set; contract in selective_scan.h. Per-ISA.
//
// Processes W channels at a time. 16 states fit into the registers of AVX-512 and stay there during a chunk
// of tokens. Chunks are the outer loop, so that B and C of a chunk serve all channels from the cache.
#include "kernels/selective_scan/selective_scan.h"

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kLog2e = 1.44269504f, kLog2 = 0.69314718f;

// The states' loop: its length is N, or known at run time if N is 0.
template <int N>
TESSERA_INLINE int64_t length(int64_t states) {
  return N ? N : states;
}

TESSERA_INLINE vf decay(vf dt, vf a2) { return exp2_below(min(splat(126.0f), dt * a2)); }

// The vectors of a piece.
struct Lanes {
  Lanes(const ScanPiece& p, int64_t vector) : channel(p.channel + vector * W), left(p.count - vector * W) {}
  int64_t channel, left;
};
TESSERA_INLINE int64_t vectors_of(const ScanPiece& p) { return (p.count + W - 1) / W; }

TESSERA_INLINE vf per_channel(const float* from, const Lanes& at) {
  return from ? get(from + at.channel, at.left) : vf{};
}
// Loads rows of (channels, states) as vectors of channels.
TESSERA_INLINE void transpose_in(const float* from, int64_t states, int64_t lanes, float scale, float* to) {
  for (int64_t n = 0; n < states; ++n)
    for (int64_t lane = 0; lane < W; ++lane)
      to[n * W + lane] = lane < lanes ? from[lane * states + n] * scale : 0;
}
TESSERA_INLINE void transpose_out(const float* from, int64_t states, int64_t lanes, float* to) {
  for (int64_t lane = 0; lane < (lanes < W ? lanes : W); ++lane)
    for (int64_t n = 0; n < states; ++n) to[lane * states + n] = from[n * W + lane];
}

// The kept states of a vector of channels before a chunk.
TESSERA_INLINE float* kept_states(const SelectiveScan& call, const ScanPiece& p, int64_t chunk,
                                  int64_t vector) {
  return p.kept + (chunk * round_up16(p.count) + vector * W) * call.states;
}

// A tensor's row for the token at one position of the walk.
template <class View>
TESSERA_INLINE auto row(const View& view, const SelectiveScan& call, int64_t sample, int64_t place) {
  const int64_t token = call.reverse ? call.tokens - 1 - place : place;
  return view.data + sample * view.batch + token * view.token;
}

struct StepSize {
  vf sum, dt;  // before and after the softplus
};
TESSERA_INLINE StepSize step_size(const SelectiveScan& call, const float* delta, vf bias, const Lanes& at) {
  const vf sum = get(delta + at.channel, at.left) + bias;
  return {sum, call.softplus ? -log_sigmoid(-sum) : sum};
}

template <int N>
void forward_vector(const SelectiveScanForward& call, const ScanPiece& p, const Lanes& at, int64_t first,
                    int64_t last, const float* a2, float* state) {
  const int64_t states = length<N>(call.states);
  vf held[N ? N : 1];
  if constexpr (N > 0) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) held[n] = load(state + n * W);
  }
  const vf bias = per_channel(call.delta_bias, at), d = per_channel(call.d, at);
  for (int64_t place = first; place < last; ++place) {
    const vf u = get(row(call.u, call, p.sample, place) + at.channel, at.left);
    const vf dt = step_size(call, row(call.delta, call, p.sample, place), bias, at).dt, dtu = dt * u;
    const float* b = row(call.b, call, p.sample, place) + p.group * states;
    const float* c = row(call.c, call, p.sample, place) + p.group * states;
    vf y = d * u;
#pragma GCC unroll 16
    for (int64_t n = 0; n < states; ++n) {
      const vf before = N ? held[N ? n : 0] : load(state + n * W);
      const vf h = decay(dt, load(a2 + n * W)) * before + dtu * b[n];
      y += h * c[n];
      if constexpr (N > 0)
        held[n] = h;
      else
        store(state + n * W, h);
    }
    if (call.z.data) y *= silu(get(row(call.z, call, p.sample, place) + at.channel, at.left));
    put(row(call.y, call, p.sample, place) + at.channel, y, at.left);
  }
  if constexpr (N > 0) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) store(state + n * W, held[n]);
  }
}

template <int N>
void forward_piece(const SelectiveScanForward& call, const ScanPiece& p) {
  const int64_t states = call.states, size = states * W, count = vectors_of(p),
                chunks = scan_chunks(call.tokens);
  float *a2 = p.scratch, *state = a2 + count * size;
  for (int64_t v = 0; v < count; ++v) {
    const Lanes at(p, v);
    transpose_in(call.a + at.channel * states, states, at.left, kLog2e, a2 + v * size);
    const int64_t whole = (p.sample * call.channels + at.channel) * states;
    if (call.first_state)
      transpose_in(call.first_state + whole, states, at.left, 1, state + v * size);
    else
      memset(state + v * size, 0, sizeof(float) * (size_t)size);
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t first = chunk * kScanChunk,
                  last = first + kScanChunk < call.tokens ? first + kScanChunk : call.tokens;
    for (int64_t v = 0; v < count; ++v) {
      const Lanes at(p, v);
      if (p.kept) memcpy(kept_states(call, p, chunk, v), state + v * size, sizeof(float) * (size_t)size);
      forward_vector<N>(call, p, at, first, last, a2 + v * size, state + v * size);
    }
  }
  if (!call.last_state) return;
  for (int64_t v = 0; v < count; ++v) {
    const Lanes at(p, v);
    transpose_out(state + v * size, states, at.left,
                  call.last_state + (p.sample * call.channels + at.channel) * states);
  }
}

void forward(const SelectiveScanForward& call, const ScanPiece& p) {
  if (call.states == 16)
    forward_piece<16>(call, p);
  else
    forward_piece<0>(call, p);
}

// Scratch of the gradient of one vector of channels in one chunk.
struct ChunkStates {
  float *decays, *states;  // (kScanChunk, N) and (kScanChunk + 1, N) vectors
  float *sum_b, *sum_c;    // (kScanChunk, N) vectors: gradients of B and C, summed over vectors
};
struct VectorSums {
  float *gh, *ga;  // N vectors: gradient of the state, of A
  float *gd, *gbias;
};

// Recomputes the states of a chunk, from the state before it in s.states.
template <int N>
void recompute(const SelectiveScanBackward& call, const ScanPiece& p, const Lanes& at, int64_t first,
               int64_t last, const float* a2, const ChunkStates& s) {
  const int64_t states = length<N>(call.states), size = states * W;
  const vf bias = per_channel(call.delta_bias, at);
  for (int64_t place = first; place < last; ++place) {
    const vf u = get(row(call.u, call, p.sample, place) + at.channel, at.left);
    const vf dt = step_size(call, row(call.delta, call, p.sample, place), bias, at).dt, dtu = dt * u;
    const float* b = row(call.b, call, p.sample, place) + p.group * states;
    float *decays = s.decays + (place - first) * size, *before = s.states + (place - first) * size;
#pragma GCC unroll 16
    for (int64_t n = 0; n < states; ++n) {
      const vf e = decay(dt, load(a2 + n * W));
      store(decays + n * W, e);
      store(before + size + n * W, e * load(before + n * W) + dtu * b[n]);
    }
  }
}

// Sums over the states of one token.
struct TokenSums {
  vf y, by_b, by_decay;
};

// Propagates the gradient of the state over one token; gy is the gradient before the gate.
template <int N>
TESSERA_INLINE TokenSums step_back(int64_t count, const float* a2, const float* b, const float* c, vf gy,
                                   vf dt, vf dtu, int64_t at, const ChunkStates& s, const VectorSums& sums) {
  const int64_t states = length<N>(count), size = states * W;
  const float *decays = s.decays + at * size, *before = s.states + at * size, *after = before + size;
  float *sum_b = s.sum_b + at * size, *sum_c = s.sum_c + at * size;
  TokenSums t = {};
#pragma GCC unroll 4
  for (int64_t n = 0; n < states; ++n) {
    const vf h = load(after + n * W), g = load(sums.gh + n * W) + gy * c[n];
    t.y += h * c[n];
    t.by_b += g * b[n];
    store(sum_c + n * W, load(sum_c + n * W) + gy * h);
    store(sum_b + n * W, load(sum_b + n * W) + g * dtu);
    const vf back = g * load(decays + n * W), slope = back * load(before + n * W);
    t.by_decay += slope * load(a2 + n * W);
    store(sums.ga + n * W, load(sums.ga + n * W) + slope * dt);
    store(sums.gh + n * W, back);
  }
  return t;
}

template <int N>
void backward_vector(const SelectiveScanBackward& call, const ScanPiece& p, const Lanes& at, int64_t first,
                     int64_t last, const float* a2, const ChunkStates& s, const VectorSums& sums) {
  const int64_t states = length<N>(call.states);
  const vf bias = per_channel(call.delta_bias, at), d = per_channel(call.d, at);
  vf gd = load(sums.gd), gbias = load(sums.gbias);
  for (int64_t place = last; place-- > first;) {
    const vf u = get(row(call.u, call, p.sample, place) + at.channel, at.left);
    const StepSize step = step_size(call, row(call.delta, call, p.sample, place), bias, at);
    const vf out = get(row(call.gy, call, p.sample, place) + at.channel, at.left);
    SiluAndSlope gate = {splat(1.0f), vf{}};
    if (call.z.data) gate = silu_and_slope(get(row(call.z, call, p.sample, place) + at.channel, at.left));
    const vf gy = out * gate.value;
    const TokenSums t = step_back<N>(states, a2, row(call.b, call, p.sample, place) + p.group * states,
                                     row(call.c, call, p.sample, place) + p.group * states, gy, step.dt,
                                     step.dt * u, place - first, s, sums);
    vf gdelta = t.by_decay * kLog2 + t.by_b * u;
    if (call.softplus) gdelta *= sigmoid(step.sum);
    gd += gy * u;
    gbias += gdelta;
    put(row(call.gu, call, p.sample, place) + at.channel, gy * d + t.by_b * step.dt, at.left);
    put(row(call.gdelta, call, p.sample, place) + at.channel, gdelta, at.left);
    if (call.z.data)
      put(row(call.gz, call, p.sample, place) + at.channel, out * (t.y + d * u) * gate.slope, at.left);
  }
  store(sums.gd, gd);
  store(sums.gbias, gbias);
}

// Writes the sums over all channels of the piece.
void reduce(const SelectiveScan& call, int64_t first, int64_t last, const float* sums, float* to) {
  for (int64_t place = first; place < last; ++place) {
    const int64_t token = call.reverse ? call.tokens - 1 - place : place;
    for (int64_t n = 0; n < call.states; ++n)
      to[token * call.states + n] = sum(load(sums + ((place - first) * call.states + n) * W));
  }
}

template <int N>
void backward_piece(const SelectiveScanBackward& call, const ScanPiece& p) {
  const int64_t states = call.states, size = states * W, count = vectors_of(p),
                chunks = scan_chunks(call.tokens);
  float *a2 = p.scratch, *gh = a2 + count * size, *ga = gh + count * size, *gd = ga + count * size,
        *gbias = gd + count * W;
  ChunkStates s;
  s.decays = gbias + count * W;
  s.states = s.decays + kScanChunk * size;
  s.sum_b = s.states + (kScanChunk + 1) * size;
  s.sum_c = s.sum_b + kScanChunk * size;
  memset(gh, 0, sizeof(float) * (size_t)(2 * count * (size + W)));
  for (int64_t v = 0; v < count; ++v) {
    const Lanes at(p, v);
    transpose_in(call.a + at.channel * states, states, at.left, kLog2e, a2 + v * size);
  }
  for (int64_t chunk = chunks; chunk-- > 0;) {
    const int64_t first = chunk * kScanChunk,
                  last = first + kScanChunk < call.tokens ? first + kScanChunk : call.tokens;
    memset(s.sum_b, 0, sizeof(float) * (size_t)(2 * kScanChunk * size));
    for (int64_t v = 0; v < count; ++v) {
      const Lanes at(p, v);
      const VectorSums sums{gh + v * size, ga + v * size, gd + v * W, gbias + v * W};
      memcpy(s.states, kept_states(call, p, chunk, v), sizeof(float) * (size_t)size);
      recompute<N>(call, p, at, first, last, a2 + v * size, s);
      backward_vector<N>(call, p, at, first, last, a2 + v * size, s, sums);
    }
    reduce(call, first, last, s.sum_b, p.gb);
    reduce(call, first, last, s.sum_c, p.gc);
  }
  for (int64_t v = 0; v < count; ++v) {
    const int64_t left = p.count - v * W;
    transpose_out(ga + v * size, states, left, p.ga + v * W * states);
    if (p.gd) put(p.gd + v * W, load(gd + v * W), left);
    if (p.gdelta_bias) put(p.gdelta_bias + v * W, load(gbias + v * W), left);
  }
}

void backward(const SelectiveScanBackward& call, const ScanPiece& p) {
  if (call.states == 16)
    backward_piece<16>(call, p);
  else
    backward_piece<0>(call, p);
}

}  // namespace

extern const SelectiveScanFunctions selective_scan_functions;
const SelectiveScanFunctions selective_scan_functions = {W, forward, backward};

}  // namespace tessera::kernels::TESSERA_ISA
