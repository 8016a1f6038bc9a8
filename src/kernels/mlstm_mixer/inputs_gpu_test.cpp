// The inputs of the mLSTM's cell for GPUs and their gradients on the emulator, against the formulas in double.
#include "kernels/gpu/gpu_testing.h"

#include <array>

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

// The memory of a, q, k, v, i and f, which it gives to the call.
struct Outputs {
  explicit Outputs(Problem& p)
      : count(p.call.batch * p.call.tokens * p.call.channels),
        of_gate(p.call.batch * p.call.heads * p.call.tokens),
        arrays{{{Element::bf16, count},
                {Element::bf16, count},
                {Element::bf16, count},
                {Element::bf16, count},
                {Element::f32, of_gate},
                {Element::f32, of_gate}}} {
    p.call.a = arrays[0].as<uint16_t>(), p.call.q = arrays[1].as<uint16_t>();
    p.call.k = arrays[2].as<uint16_t>(), p.call.v = arrays[3].as<uint16_t>();
    p.call.igate = arrays[4].as<float>(), p.call.fgate = arrays[5].as<float>();
  }
  int64_t count, of_gate;
  std::array<DeviceArray, 6> arrays;
};

TEST(MixerInputsOnGpu, AreTheFormulas) {
  for (const Case& c : kCases) {
    Problem p(c);
    Outputs out(p);
    auto& [a, q, k, v, i, f] = out.arrays;
    run_emulated(&gpu::Table::mixer_inputs, p.call, {&a, &q, &k, &v, &i, &f});
    const Wanted want(p);
    const std::string name = text("case ", &c - kCases);
    expect_rounded(a, want.a, 2e-5, name + ", a"), expect_rounded(q, want.q, 5e-5, name + ", q");
    expect_rounded(k, want.k, 5e-5, name + ", k"), expect_rounded(v, want.v, 2e-5, name + ", v");
    expect_rounded(i, want.i, 1e-3, name + ", i"), expect_rounded(f, want.f, 1e-3, name + ", f");
  }
}

// Sums in double, with the sum of their terms' sizes. Terms and sums are rounded to eight bits.
struct Sums {
  explicit Sums(int64_t count) : value(static_cast<size_t>(count), 0), size(value) {}
  void add(int64_t at, double term) {
    value[static_cast<size_t>(at)] += term, size[static_cast<size_t>(at)] += std::abs(term);
  }
  void expect(const DeviceArray& got, const std::string& what) const {
    ASSERT_EQ(static_cast<size_t>(got.count()), value.size()) << what;
    for (size_t i = 0; i < value.size(); ++i)
      ASSERT_NEAR(got.get(static_cast<int64_t>(i)), value[i], 1e-6 + 0x1p-7 * size[i])
          << what << ", element " << i;
  }
  std::vector<double> value, size;
};

// The gradients that come from the cell, and from the skip.
struct Incoming {
  Incoming(const Case& c, bool skip)
      : outputs(Element::bf16, normal(4 * c.batch * c.tokens * c.channels, 7)),
        gates(Element::f32, normal(2 * c.batch * c.heads * c.tokens, 8)),
        size(c.batch * c.tokens * c.channels),
        of_gate(c.batch * c.heads * c.tokens),
        with_skip(skip) {}
  void set(gpu::MixerInputsBackward& call) const {
    auto* const first = const_cast<DeviceArray&>(outputs).as<uint16_t>();
    call.dq = first, call.dk = first + size, call.dv = first + 2 * size,
    call.da = with_skip ? first + 3 * size : nullptr;
    call.digate = const_cast<DeviceArray&>(gates).as<float>(), call.dfgate = call.digate + of_gate;
  }
  double output(int64_t which, int64_t at) const {
    return which == 3 && !with_skip ? 0 : outputs.get(which * size + at);
  }
  double gate(int64_t which, int64_t at) const { return gates.get(which * of_gate + at); }

  DeviceArray outputs, gates;
  int64_t size, of_gate;
  bool with_skip;
};

// The gradients in double. a, q, k and v are those that the forward pass stored.
struct WantedGradients {
  WantedGradients(const Problem& problem, const Incoming& incoming, const std::vector<DeviceArray*>& stored)
      : p(problem),
        in(incoming),
        outputs(stored),
        dx(in.size),
        parameters(gpu::mixer_numbers(p.call)),
        of_conv(in.size) {
    for (int64_t part = 0; part < 3; ++part) add_blocks(part);
    for (int64_t n = 0; n < p.call.batch * p.call.tokens; ++n) add_convolution(n);
  }

  // The gradient of q, k or v.
  double total(int64_t part, int64_t n, int64_t c) const {
    const gpu::MixerInputs& call = p.call;
    double sum = in.output(part, n * call.channels + c);
    for (int64_t h = 0; h < call.heads; ++h)
      for (int64_t gate = 0; gate < 2; ++gate)
        sum += in.gate(gate, gate_place(n, h)) *
               (gate == 0 ? call.input_weight : call.forget_weight)[(3 * h + part) * call.channels + c];
    return sum;
  }
  int64_t gate_place(int64_t n, int64_t h) const {
    return (n / p.call.tokens * p.call.heads + h) * p.call.tokens + n % p.call.tokens;
  }
  double x(int64_t n, int64_t c) const { return p.x_at(n / p.call.tokens, n % p.call.tokens, c); }

  void add_blocks(int64_t part) {
    const gpu::MixerInputs& call = p.call;
    const int64_t C = call.channels, taps = gpu::mixer_taps(call), first = (taps + 1 + 5 * part) * C;
    const float* const weight = part == 0 ? call.q_weight : part == 1 ? call.k_weight : call.v_weight;
    for (int64_t n = 0; n < call.batch * call.tokens; ++n)
      for (int64_t c = 0; c < C; ++c) {
        const double g = total(part, n, c);
        for (int64_t d = 0; d < 4; ++d) {
          const int64_t from = c / 4 * 4 + d;
          parameters.add(first + 4 * c + d, g * (part == 2 ? x(n, from) : outputs[0]->get(n * C + from)));
          (part == 2 ? dx : of_conv).add(n * C + from, g * weight[4 * c + d]);
        }
        parameters.add(first + 4 * C + c, g);
        for (int64_t h = 0; h < call.heads; ++h)
          for (int64_t gate = 0; gate < 2; ++gate)
            parameters.add(
                (taps + 16 + 3 * call.heads * gate + 3 * h + part) * C + c,
                in.gate(gate, gate_place(n, h)) * outputs[static_cast<size_t>(1 + part)]->get(n * C + c));
      }
  }

  // Through SiLU and the taps of a token.
  void add_convolution(int64_t n) {
    const gpu::MixerInputs& call = p.call;
    const int64_t C = call.channels, down = call.columns > 0 ? call.kernel : 1;
    for (int64_t c = 0; c < C; ++c) {
      const double y = p.convolved(n / call.tokens, n % call.tokens, c), s = 1 / (1 + std::exp(-y));
      const double slope = s * (1 + y * (1 - s)),
                   g = (of_conv.value[static_cast<size_t>(n * C + c)] + in.output(3, n * C + c)) * slope;
      // Roundings of what is added before may be larger than the sum.
      const double size = (of_conv.size[static_cast<size_t>(n * C + c)] + std::abs(in.output(3, n * C + c))) *
                          std::abs(slope);
      const auto add = [&](Sums& sums, int64_t at, double factor) {
        sums.value[static_cast<size_t>(at)] += g * factor,
            sums.size[static_cast<size_t>(at)] += size * std::abs(factor);
      };
      add(parameters, gpu::mixer_taps(call) * C + c, 1);
      for (int64_t dy = 0; dy < down; ++dy)
        for (int64_t tap = 0; tap < call.kernel; ++tap) {
          const int64_t from = source(n % call.tokens, dy, tap);
          if (from < 0) continue;
          const int64_t at = (dy * call.kernel + tap) * C + c, row = n / call.tokens * call.tokens + from;
          add(dx, row * C + c, call.conv_weight[at]), add(parameters, at, x(row, c));
        }
    }
  }
  // The token that a tap reads; -1 beyond the edge.
  int64_t source(int64_t token, int64_t dy, int64_t tap) const {
    const auto mirrored = [&](int64_t t) { return p.call.reverse ? p.call.tokens - 1 - t : t; };
    const int64_t at = mirrored(token), k = p.call.kernel, columns = p.call.columns;
    if (columns == 0) return at - (k - 1) + tap >= 0 ? mirrored(at - (k - 1) + tap) : -1;
    const int64_t row = at / columns + dy - k / 2, column = at % columns + tap - k / 2;
    if (row < 0 || row >= p.call.tokens / columns || column < 0 || column >= columns) return -1;
    return mirrored(row * columns + column);
  }

  const Problem& p;
  const Incoming& in;
  const std::vector<DeviceArray*>& outputs;  // a, q, k, v
  Sums dx, parameters, of_conv;
};

TEST(MixerInputsOnGpu, GradientsAreTheFormulas) {
  for (const Case& c : kCases)
    for (const bool skip : {true, false}) {
      Problem p(c);
      Outputs out(p);
      auto& [a, q, k, v, i, f] = out.arrays;
      run_emulated(&gpu::Table::mixer_inputs, p.call, {&a});
      const Incoming incoming(c, skip);
      const int64_t numbers = gpu::mixer_numbers(p.call), parts = gpu::row_parts(c.batch * c.tokens);
      DeviceArray dx(Element::bf16, out.count), parameters(Element::f32, numbers),
          totals(Element::bf16, 4 * out.count), partial(Element::f32, parts * numbers);
      gpu::MixerInputsBackward call;
      call.of = p.call;
      incoming.set(call);
      call.dx = dx.as<uint16_t>(), call.dparameters = parameters.as<float>();
      call.totals = totals.as<uint16_t>(), call.partial = partial.as<float>();
      run_emulated(&gpu::Table::mixer_inputs_backward, call, {&dx, &parameters});
      const std::vector<DeviceArray*> stored = {&a, &q, &k, &v};
      const WantedGradients want(p, incoming, stored);
      const std::string name = text("case ", &c - kCases);
      want.dx.expect(dx, name + ", dx"), want.parameters.expect(parameters, name + ", parameters");
    }
}

}  // namespace
}  // namespace tessera::kernels
