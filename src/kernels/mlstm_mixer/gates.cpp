// The gates of all heads from a and x, forward and backward; contract in parts.h. Built once per instruction
// set.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int kGates = 8;            // gates per pass; weights and gates are padded to multiples of it
constexpr int64_t kTokenBlock = 16;  // tokens per pass of backward

// How inputs and weights are multiplied, kNumbers per vector.
template <class Input, class Weight>
struct Products {
  static constexpr int64_t kNumbers = W;
  template <class Number>
  TESSERA_INLINE vf load(const Number* from, int64_t left) {
    return get(from, left);
  }
  TESSERA_INLINE vf multiply_add(vf sum, vf a, vf b) { return sum + a * b; }
};
#if defined(__AVX512BF16__)
template <>
struct Products<bf16, bf16> {
  static constexpr int64_t kNumbers = 2 * W;
  TESSERA_INLINE vi load(const bf16* from, int64_t left) { return load_pairs(from, left); }
  TESSERA_INLINE vf multiply_add(vf sum, vi a, vi b) { return dot_pairs(sum, a, b); }
};
#endif

// a and x of one sample, and their weights.
template <class Input, class Weight>
struct Inputs {
  const Input* rows[2];
  int64_t stride[2];
  const Weight* weight;
};

// gate[t] = bias + weight [a; x] for tokens t … t+N-1 and the eight gates from g on.
template <int N, class Input, class Weight>
TESSERA_INLINE void gate_tokens(const GatesForward& call, const Inputs<Input, Weight>& in, int64_t b,
                                int64_t t, int64_t g) {
  using Form = Products<Input, Weight>;
  const int64_t C = call.channels;
  vf total[N][kGates];
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
    for (int i = 0; i < kGates; ++i) total[n][i] = vf{};
  for (int part = 0; part < 2; ++part) {
    const Input* from = in.rows[part] + t * in.stride[part];
    const Weight* w = in.weight + g * 2 * C + part * C;
    for (int64_t c = 0; c < C; c += Form::kNumbers) {
      const int64_t left = C - c;
      decltype(Form::load(from, left)) x[N];
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n) x[n] = Form::load(from + n * in.stride[part] + c, left);
#pragma GCC unroll 8
      for (int i = 0; i < kGates; ++i) {
        const auto weight = Form::load(w + i * 2 * C + c, left);
#pragma GCC unroll 3
        for (int n = 0; n < N; ++n) total[n][i] = Form::multiply_add(total[n][i], x[n], weight);
      }
    }
  }
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n) {
    float out[kGates];
    lane_sums(total[n], out);
    float* gate = call.gate.data + b * call.gate.batch + (t + n) * call.gate.token + g;
    for (int i = 0; i < kGates; ++i) gate[i] = out[i] + call.bias[g + i];
  }
}

// Computes tokens [t, end) of sample b.
template <class Input, class Weight>
void forward_piece(const GatesForward& call, const Inputs<Input, Weight>& in, int64_t b, int64_t t,
                   int64_t end) {
  for (int64_t g = 0; g < call.gates; g += kGates) {
    int64_t i = t;
    for (; i + 3 <= end; i += 3) gate_tokens<3>(call, in, b, i, g);
    for (; i < end; ++i) gate_tokens<1>(call, in, b, i, g);
  }
}

// The contribution of one of the two inputs, and of eight gates, to the gradients of a sample.
template <class Input, class Weight>
struct Part {
  const Input* in;
  const float* pre;  // null: do not apply the SiLU's slope
  float* din;
  int64_t in_row, pre_row, din_row;
  const Weight* weight;  // rows of 2 C
  float* dweight;
};

// Gradients of eight gates, for up to kTokenBlock tokens, padded with zeros.
struct GateBlock {
  float values[kTokenBlock * kGates];
#if defined(__AVX512BF16__)
  int32_t of_token[kTokenBlock * kGates / 2];  // words of two gates, token by token
  int32_t of_gate[kTokenBlock / 2 * kGates];   // words of two tokens
#endif
};

GateBlock read_gates(const float* dgate, int64_t row, int64_t count) {
  GateBlock d = {};
  for (int64_t t = 0; t < count; ++t) memcpy(d.values + t * kGates, dgate + t * row, kGates * sizeof(float));
#if defined(__AVX512BF16__)
  static_assert(W == 2 * kGates);  // two tokens fill a vector
  for (int64_t t = 0; t < kTokenBlock; t += 2) {
    uint16_t half[2 * kGates];
    store((bf16*)half, load(d.values + t * kGates));
    memcpy(d.of_token + t * kGates / 2, half, sizeof half);
    for (int g = 0; g < kGates; ++g)
      d.of_gate[t / 2 * kGates + g] = half[g] | (int32_t)((uint32_t)half[kGates + g] << 16);
  }
#endif
  return d;
}

// The slope is as exact as the storage type of `a`.
TESSERA_INLINE vf slope_for(const float*, vf pre) { return silu_slope(pre); }
TESSERA_INLINE vf slope_for(const bf16*, vf pre) { return silu_and_slope_coarse(pre).slope; }

template <class Input, class Weight>
TESSERA_INLINE void put_gradient(const Part<Input, Weight>& p, int64_t t, int64_t c, int64_t left, vf value) {
  if (p.pre) value *= slope_for(p.in, get(p.pre + t * p.pre_row + c, left));
  put(p.din + t * p.din_row + c, value, left);
}

// din = (din + sum_g dgate_g w_g) silu'(pre) and dw_g += sum_t dgate_g in, in one pass.
template <class Input, class Weight>
void backward_part(const Part<Input, Weight>& p, const GateBlock& d, int64_t channels, int64_t count) {
  for (int64_t c = 0; c < channels; c += W) {
    const int64_t left = channels - c;
    vf w[kGates], total[kGates];
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) w[g] = get(p.weight + g * 2 * channels + c, left), total[g] = vf{};
    for (int64_t t = 0; t < count; ++t) {
      const float* dg = d.values + t * kGates;
      const vf in = get(p.in + t * p.in_row + c, left);
      vf even = get(p.din + t * p.din_row + c, left), odd = {};
#pragma GCC unroll 4
      for (int g = 0; g < kGates; g += 2) {
        even += dg[g] * w[g], odd += dg[g + 1] * w[g + 1];
        total[g] += dg[g] * in, total[g + 1] += dg[g + 1] * in;
      }
      put_gradient(p, t, c, left, even + odd);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) add_to(p.dweight + g * 2 * channels + c, total[g], left);
  }
}

#if defined(__AVX512BF16__)
// Two gates, and two tokens, per product.
void backward_part(const Part<bf16, bf16>& p, const GateBlock& d, int64_t channels, int64_t count) {
  for (int64_t c = 0; c < channels; c += W) {
    const int64_t left = channels - c;
    vi w[kGates / 2];
    vf total[kGates];
#pragma GCC unroll 4
    for (int g = 0; g < kGates; g += 2) {
      const bf16* row = p.weight + g * 2 * channels + c;
      w[g / 2] = (vi)pair_up(get(row, left), get(row + 2 * channels, left));
      total[g] = total[g + 1] = vf{};
    }
    const auto token = [&](int64_t t) __attribute__((always_inline)) {
      const int32_t* dg = d.of_token + t * kGates / 2;
      vf even = get(p.din + t * p.din_row + c, left), odd = {};
#pragma GCC unroll 2
      for (int i = 0; i < kGates / 2; i += 2) {
        even = dot_pairs(even, splat_int(dg[i]), w[i]);
        odd = dot_pairs(odd, splat_int(dg[i + 1]), w[i + 1]);
      }
      put_gradient(p, t, c, left, even + odd);
    };
    for (int64_t t = 0; t < count; t += 2) {
      const bf16* row = p.in + t * p.in_row + c;
      const vi in = (vi)pair_up(get(row, left), t + 1 < count ? get(row + p.in_row, left) : vf{});
#pragma GCC unroll 8
      for (int g = 0; g < kGates; ++g)
        total[g] = dot_pairs(total[g], splat_int(d.of_gate[t / 2 * kGates + g]), in);
      token(t);
      if (t + 1 < count) token(t + 1);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) add_to(p.dweight + g * 2 * channels + c, total[g], left);
  }
}
#endif

// Computes tokens [t, end) of sample b.
template <class Input, class Weight>
void backward_piece(const GatesBackward& call, const Inputs<Input, Weight>& in, int64_t b, int64_t t,
                    int64_t end) {
  const int64_t C = call.channels;
  for (int64_t g = 0; g < call.gates; g += kGates) {
    const bool last = g + kGates >= call.gates;
    const GateBlock d = read_gates(call.dgate.data + b * call.dgate.batch + t * call.dgate.token + g,
                                   call.dgate.token, end - t);
    const auto at = [&](const auto& rows) { return rows.data + b * rows.batch + t * rows.token; };
    const Weight* weight = in.weight + g * 2 * C;
    float* dweight = call.dweight + g * 2 * C;
    const Part<Input, Weight> a = {in.rows[0] + t * in.stride[0],
                                   last ? at(call.pre) : nullptr,
                                   at(call.da),
                                   in.stride[0],
                                   call.pre.token,
                                   call.da.token,
                                   weight,
                                   dweight};
    const Part<Input, Weight> x = {in.rows[1] + t * in.stride[1],
                                   nullptr,
                                   at(call.dx),
                                   in.stride[1],
                                   0,
                                   call.dx.token,
                                   weight + C,
                                   dweight + C};
    backward_part(a, d, C, end - t);
    backward_part(x, d, C, end - t);
    for (int64_t i = 0; i < end - t; ++i)
      for (int o = 0; o < kGates; ++o) call.dbias[g + o] += d.values[i * kGates + o];
  }
}

// Calls body with the inputs of sample b in their storage type.
template <class Call, class Body>
TESSERA_INLINE void with_inputs(const Call& call, int64_t b, Body body) {
  if (call.a.element == Element::f32)
    return body(Inputs<float, float>{
        {(const float*)call.a.data + b * call.a.batch, (const float*)call.x.data + b * call.x.batch},
        {call.a.token, call.x.token},
        call.weight});
  const bf16 *a = (const bf16*)call.a.data + b * call.a.batch,
             *x = (const bf16*)call.x.data + b * call.x.batch;
#if defined(__AVX512BF16__)
  if (call.weight_half)
    return body(Inputs<bf16, bf16>{{a, x}, {call.a.token, call.x.token}, (const bf16*)call.weight_half});
#endif
  body(Inputs<bf16, float>{{a, x}, {call.a.token, call.x.token}, call.weight});
}

}  // namespace

void gates_forward(const GatesForward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, call.tokens, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    with_inputs(call, b, [&](const auto& in) { forward_piece(call, in, b, t, last); });
  });
}

void gates_backward(const GatesBackward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    with_inputs(call, b, [&](const auto& in) { backward_piece(call, in, b, t, last); });
  });
}

}  // namespace tessera::kernels::TESSERA_ISA
