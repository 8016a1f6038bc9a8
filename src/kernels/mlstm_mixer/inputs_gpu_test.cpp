// The inputs of the mLSTM's cell for GPUs on the emulator, against the formulas in double.
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t batch, tokens, channels, heads, kernel, columns;
  bool reverse, biases;
};
const Case kCases[] = {
    {1, 1, 8, 1, 4, 0, false, false},  {2, 7, 24, 3, 4, 0, true, true}, {1, 12, 264, 4, 3, 4, false, true},
    {2, 15, 16, 2, 3, 5, true, false}, {3, 6, 72, 4, 5, 6, true, true}, {1, 18, 40, 1, 2, 0, false, true},
};

struct Problem {
  explicit Problem(const Case& c)
      : x(Element::bf16, normal(c.batch * c.tokens * 2 * c.channels, 1)),
        conv(Element::f32, normal(c.channels * c.kernel * (c.columns > 0 ? c.kernel : 1), 2)),
        bias(Element::f32, normal(4 * c.channels, 3)),
        blocks(Element::f32, normal(3 * c.channels * 4, 4)),
        gates(Element::f32, normal(2 * c.heads * 3 * c.channels, 5)),
        gate_bias(Element::f32, normal(2 * c.heads, 6)) {
    call.batch = c.batch, call.tokens = c.tokens, call.channels = c.channels, call.heads = c.heads;
    call.kernel = c.kernel, call.columns = c.columns, call.reverse = c.reverse;
    call.x = x.as<uint16_t>(), call.row = 2 * c.channels, call.sample = c.tokens * call.row;
    call.conv_weight = conv.as<float>(), call.q_weight = blocks.as<float>();
    call.k_weight = call.q_weight + 4 * c.channels, call.v_weight = call.k_weight + 4 * c.channels;
    call.input_weight = gates.as<float>(), call.forget_weight = call.input_weight + 3 * c.heads * c.channels;
    if (!c.biases) return;
    call.conv_bias = bias.as<float>(), call.q_bias = call.conv_bias + c.channels;
    call.k_bias = call.q_bias + c.channels, call.v_bias = call.k_bias + c.channels;
    call.input_bias = gate_bias.as<float>(), call.forget_bias = call.input_bias + c.heads;
  }
  double x_at(int64_t b, int64_t t, int64_t c) const { return x.get(b * call.sample + t * call.row + c); }

  // Returns conv(x) of a token: the reversed walk is that of mirrored tokens.
  double convolved(int64_t b, int64_t t, int64_t c) const {
    const auto mirrored = [&](int64_t token) { return call.reverse ? call.tokens - 1 - token : token; };
    const int64_t at = mirrored(t), k = call.kernel;
    double sum = call.conv_bias ? call.conv_bias[c] : 0;
    if (call.columns == 0) {
      for (int64_t j = 0; j < k; ++j)
        if (const int64_t from = at - (k - 1) + j; from >= 0)
          sum += double{call.conv_weight[j * call.channels + c]} * x_at(b, mirrored(from), c);
      return sum;
    }
    const int64_t rows = call.tokens / call.columns;
    for (int64_t dy = 0; dy < k; ++dy)
      for (int64_t dx = 0; dx < k; ++dx) {
        const int64_t row = at / call.columns + dy - k / 2, column = at % call.columns + dx - k / 2;
        if (row >= 0 && row < rows && column >= 0 && column < call.columns)
          sum += double{call.conv_weight[(dy * k + dx) * call.channels + c]} *
                 x_at(b, mirrored(row * call.columns + column), c);
      }
    return sum;
  }

  DeviceArray x, conv, bias, blocks, gates, gate_bias;
  gpu::MixerInputs call;
};

// The outputs in double, [batch, tokens, channels] and [batch, heads, tokens].
struct Wanted {
  explicit Wanted(const Problem& p) {
    const gpu::MixerInputs& call = p.call;
    const int64_t C = call.channels, T = call.tokens;
    i.resize(static_cast<size_t>(call.batch * call.heads * T)), f = i;
    for (int64_t n = 0; n < call.batch * T; ++n) {
      std::vector<double> of_x, seen;
      for (int64_t c = 0; c < C; ++c) {
        const double y = p.convolved(n / T, n % T, c);
        a.push_back(y / (1 + std::exp(-y))), of_x.push_back(p.x_at(n / T, n % T, c));
      }
      const std::vector<double> of_a(a.end() - C, a.end());
      add_blocks(call.q_weight, call.q_bias, of_a, q, seen),
          add_blocks(call.k_weight, call.k_bias, of_a, k, seen);
      add_blocks(call.v_weight, call.v_bias, of_x, v, seen);
      for (int64_t h = 0; h < call.heads; ++h) {
        const size_t place = static_cast<size_t>((n / T * call.heads + h) * T + n % T);
        i[place] = call.input_bias ? call.input_bias[h] : 0,
        f[place] = call.forget_bias ? call.forget_bias[h] : 0;
        for (int64_t c = 0; c < 3 * C; ++c) {
          i[place] += call.input_weight[h * 3 * C + c] * seen[static_cast<size_t>(c)];
          f[place] += call.forget_weight[h * 3 * C + c] * seen[static_cast<size_t>(c)];
        }
      }
    }
  }
  static void add_blocks(const float* weight, const float* bias, const std::vector<double>& in,
                         std::vector<double>& out, std::vector<double>& seen) {
    for (size_t c = 0; c < in.size(); ++c) {
      double y = bias ? bias[c] : 0;
      for (size_t d = 0; d < 4; ++d) y += weight[c * 4 + d] * in[c / 4 * 4 + d];
      out.push_back(y), seen.push_back(y);
    }
  }
  std::vector<double> a, q, k, v, i, f;
};

TEST(MixerInputsOnGpu, AreTheFormulas) {
  for (const Case& c : kCases) {
    Problem p(c);
    const int64_t count = c.batch * c.tokens * c.channels, of_gates = c.batch * c.heads * c.tokens;
    DeviceArray a(Element::bf16, count), q(Element::bf16, count), k(Element::bf16, count),
        v(Element::bf16, count), i(Element::f32, of_gates), f(Element::f32, of_gates);
    p.call.a = a.as<uint16_t>(), p.call.q = q.as<uint16_t>(), p.call.k = k.as<uint16_t>();
    p.call.v = v.as<uint16_t>(), p.call.igate = i.as<float>(), p.call.fgate = f.as<float>();
    run_emulated(&gpu::Table::mixer_inputs, p.call, {&a, &q, &k, &v, &i, &f});
    const Wanted want(p);
    const std::string name = text("case ", &c - kCases);
    expect_rounded(a, want.a, 2e-5, name + ", a"), expect_rounded(q, want.q, 5e-5, name + ", q");
    expect_rounded(k, want.k, 5e-5, name + ", k"), expect_rounded(v, want.v, 2e-5, name + ", v");
    expect_rounded(i, want.i, 1e-3, name + ", i"), expect_rounded(f, want.f, 1e-3, name + ", f");
  }
}

}  // namespace
}  // namespace tessera::kernels
