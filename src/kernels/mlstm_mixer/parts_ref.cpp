#include "kernels/mlstm_mixer/parts.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class Real>
Real* at(const TokenView<Real*>& view, int64_t b, int64_t t) {
  return view.data + b * view.batch + t * view.token;
}

// Number c of token t.
double number(const TokenView<const double*>& rows, int64_t b, int64_t t, int64_t c) {
  return at(rows, b, t)[c];
}
double number(const TokenRows& rows, int64_t b, int64_t t, int64_t c) {
  return read_element(rows.data, rows.element, b * rows.batch + t * rows.token + c);
}
void set_number(const TokenView<double*>& rows, int64_t b, int64_t t, int64_t c, double value) {
  at(rows, b, t)[c] = value;
}
void set_number(const TokenRowsOut& rows, int64_t b, int64_t t, int64_t c, double value) {
  write_element(rows.data, rows.element, b * rows.batch + t * rows.token + c, value);
}

// Returns the token that tap (i, j) reads for output `token`, or -1 outside the grid.
int64_t source(const DepthwiseShape& s, int64_t token, int64_t i, int64_t j) {
  const int64_t sign = s.reverse ? -1 : 1;
  const int64_t row = token / s.columns + sign * (i - s.pad_top);
  const int64_t column = token % s.columns + sign * (j - s.pad_left);
  return row < 0 || row >= s.rows || column < 0 || column >= s.columns ? -1 : row * s.columns + column;
}

// sum_d W[b][o][d] x(4b+d) for channel c = 4b+o.
template <class Real, class Row>
double project(const Real* lanes, int64_t lane_row, const Real* bias, Row x, int64_t c) {
  double total = bias ? bias[c] : 0;
  for (int64_t d = 0; d < 4; ++d) total += double(lanes[d * lane_row + c]) * x(c / 4 * 4 + d);
  return total;
}

}  // namespace

template <class Real>
void depthwise_forward_ref(const DepthwiseForwardOf<Real>& call, int64_t begin, int64_t end) {
  const DepthwiseShape& s = call.shape;
  const int64_t tokens = s.rows * s.columns;
  for (int64_t n = begin; n < end; ++n)
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t b = n / tokens, t = n % tokens;
      double pre = call.bias ? call.bias[c] : 0;
      for (int64_t i = 0; i < s.kernel_rows; ++i)
        for (int64_t j = 0; j < s.kernel_columns; ++j)
          if (const int64_t from = source(s, t, i, j); from >= 0)
            pre += double(call.taps[(i * s.kernel_columns + j) * s.channels + c]) *
                   number(call.x, b, from - call.x_first, c);
      if (call.pre.data) at(call.pre, b, t - call.out_first)[c] = static_cast<Real>(pre);
      if (call.out.data) set_number(call.out, b, t - call.out_first, c, pre * sigmoid(pre));
    }
}

template <class Real>
void depthwise_backward_ref(const DepthwiseBackwardOf<Real>& call, int64_t begin, int64_t end) {
  const DepthwiseShape& s = call.shape;
  const int64_t tokens = s.rows * s.columns;
  for (int64_t n = begin; n < end; ++n)
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t b = n / tokens, t = n % tokens;
      double dx = call.add.data ? at(call.add, b, t)[c] : 0;
      const double dpre = at(call.dpre, b, t)[c];
      DepthwiseShape flipped = s;  // outputs that read token t are at the opposite offsets
      flipped.reverse = !s.reverse;
      for (int64_t i = 0; i < s.kernel_rows; ++i)
        for (int64_t j = 0; j < s.kernel_columns; ++j) {
          const int64_t tap = (i * s.kernel_columns + j) * s.channels + c;
          if (const int64_t to = source(flipped, t, i, j); to >= 0)
            dx += double(call.taps[tap]) * at(call.dpre, b, to)[c];
          if (const int64_t from = source(s, t, i, j); from >= 0 && call.dtaps)
            call.dtaps[tap] += static_cast<Real>(dpre * number(call.x, b, from, c));
        }
      if (call.dtaps) call.dbias[c] += static_cast<Real>(dpre);
      set_number(call.dx, b, t, c, dx);
    }
}

template <class Real>
void headwise_forward_ref(const HeadwiseForwardOf<Real>& call, int64_t begin, int64_t end) {
  const HeadwiseWeightsOf<Real>& w = call.weights;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    const auto a = [&](int64_t c) { return number(call.a, b, t, c); };
    const auto x = [&](int64_t c) { return number(call.x, b, t, c); };
    for (int64_t c = 0; c < call.channels; ++c) {
      set_number(call.q, b, t, c, project(w.q_lanes, w.lane_row, w.q_bias, a, c));
      set_number(call.k, b, t, c, project(w.k_lanes, w.lane_row, w.k_bias, a, c));
      set_number(call.v, b, t, c, project(w.v_lanes, w.lane_row, w.v_bias, x, c));
    }
  }
}

template <class Real>
void headwise_backward_ref(const HeadwiseBackwardOf<Real>& call, int64_t begin, int64_t end) {
  const HeadwiseWeightsOf<Real>& w = call.weights;
  const HeadwiseGradientsOf<Real>& s = call.sums;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    struct Part {
      const Real *d, *lanes;
      const StoredRows<Real>& in;
      const TokenView<Real*>& din;
      Real *lane_sums, *bias_sum;
    };
    const Part parts[] = {{at(call.dq, b, t), w.q_lanes, call.a, call.da, s.q_lanes, s.q_bias},
                          {at(call.dk, b, t), w.k_lanes, call.a, call.da, s.k_lanes, s.k_bias},
                          {at(call.dv, b, t), w.v_lanes, call.x, call.dx, s.v_lanes, s.v_bias}};
    if (call.dx.data) std::fill_n(at(call.dx, b, t), call.channels, Real(0));
    for (const Part& p : parts)
      for (int64_t c = 0; c < call.channels; ++c) {
        if (p.bias_sum) p.bias_sum[c] += p.d[c];
        for (int64_t d = 0; d < 4; ++d) {
          if (p.din.data)
            at(p.din, b, t)[c / 4 * 4 + d] += static_cast<Real>(double(p.lanes[d * w.lane_row + c]) * p.d[c]);
          if (p.lane_sums)
            p.lane_sums[d * s.lane_row + c] +=
                static_cast<Real>(double(p.d[c]) * number(p.in, b, t, c / 4 * 4 + d));
        }
      }
  }
}

template <class Real>
void gates_forward_ref(const GatesForwardOf<Real>& call, int64_t begin, int64_t end) {
  const int64_t C = call.channels;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    for (int64_t g = 0; g < (call.gates + 7) / 8 * 8; ++g) {
      double gate = call.bias[g];
      const Real* row = call.weight + g * 2 * C;
      for (int64_t c = 0; c < C; ++c)
        gate += double(row[c]) * number(call.a, b, t, c) + double(row[C + c]) * number(call.x, b, t, c);
      at(call.gate, b, t)[g] = static_cast<Real>(gate);
    }
  }
}

template <class Real>
void gates_backward_ref(const GatesBackwardOf<Real>& call, int64_t begin, int64_t end) {
  const int64_t C = call.channels;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    const Real* dgate = at(call.dgate, b, t);
    for (int64_t g = 0; g < call.gates; ++g) call.dbias[g] += dgate[g];
    for (int64_t c = 0; c < C; ++c) {
      double da = at(call.da, b, t)[c], dx = at(call.dx, b, t)[c];
      for (int64_t g = 0; g < call.gates; ++g) {
        const int64_t of_a = g * 2 * C + c, of_x = of_a + C;
        da += double(dgate[g]) * call.weight[of_a];
        dx += double(dgate[g]) * call.weight[of_x];
        call.dweight[of_a] += static_cast<Real>(double(dgate[g]) * number(call.a, b, t, c));
        call.dweight[of_x] += static_cast<Real>(double(dgate[g]) * number(call.x, b, t, c));
      }
      const double pre = at(call.pre, b, t)[c], s = sigmoid(pre);
      at(call.da, b, t)[c] = static_cast<Real>(da * (s + pre * s * (1 - s)));
      at(call.dx, b, t)[c] = static_cast<Real>(dx);
    }
  }
}

namespace {

struct Moments {
  double mean, rstd;
};

template <class Real>
Moments moments(const Real* h, int64_t n, double eps) {
  double mean = 0, variance = 0;
  for (int64_t c = 0; c < n; ++c) mean += h[c];
  mean /= static_cast<double>(n);
  for (int64_t c = 0; c < n; ++c) variance += (h[c] - mean) * (h[c] - mean);
  return {mean, 1 / std::sqrt(variance / static_cast<double>(n) + eps)};
}

}  // namespace

template <class Real>
void head_norm_forward_ref(const HeadNormForwardOf<Real>& call, int64_t begin, int64_t end) {
  const int64_t width = call.channels / call.heads;
  const HeadNormWeightsOf<Real>& w = call.weights;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    for (int64_t c = 0; c < call.channels; ++c) {
      const Moments m = moments(at(call.h, b, t) + c / width * width, width, call.eps);
      const double normed = (at(call.h, b, t)[c] - m.mean) * m.rstd;
      const double z = number(call.z, b, t, c);
      const double value = normed * (1 + double(w.scale[c])) + (w.bias ? w.bias[c] : 0) +
                           double(w.skip[c]) * number(call.a, b, t, c);
      set_number(call.y, b, t, c, value * z * sigmoid(z));
    }
  }
}

template <class Real>
void head_norm_backward_ref(const HeadNormBackwardOf<Real>& call, int64_t begin, int64_t end) {
  const int64_t width = call.channels / call.heads;
  const HeadNormWeightsOf<Real>& w = call.weights;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t b = n / call.tokens, t = n % call.tokens;
    const Real* h = at(call.h, b, t);
    for (int64_t head = 0; head < call.channels; head += width) {
      const Moments m = moments(h + head, width, call.eps);
      double mean_d = 0, mean_dx = 0;
      std::vector<double> normed(width), dnormed(width);
      for (int64_t i = 0; i < width; ++i) {
        const int64_t c = head + i;
        const double z = number(call.z, b, t, c), s = sigmoid(z), dy = number(call.dy, b, t, c),
                     a = number(call.a, b, t, c);
        normed[i] = (h[c] - m.mean) * m.rstd;
        const double value =
            normed[i] * (1 + double(w.scale[c])) + (w.bias ? w.bias[c] : 0) + double(w.skip[c]) * a;
        const double dvalue = dy * z * s;
        dnormed[i] = dvalue * (1 + double(w.scale[c]));
        set_number(call.dz, b, t, c, dy * value * (s + z * s * (1 - s)));
        at(call.da, b, t)[c] = static_cast<Real>(dvalue * w.skip[c]);
        call.dscale[c] += static_cast<Real>(dvalue * normed[i]);
        call.dbias[c] += static_cast<Real>(dvalue);
        call.dskip[c] += static_cast<Real>(dvalue * a);
        mean_d += dnormed[i] / static_cast<double>(width);
        mean_dx += dnormed[i] * normed[i] / static_cast<double>(width);
      }
      for (int64_t i = 0; i < width; ++i)
        at(call.dh, b, t)[head + i] = static_cast<Real>(m.rstd * (dnormed[i] - mean_d - normed[i] * mean_dx));
    }
  }
}

#define TESSERA_INSTANTIATE(Real)                                                           \
  template void depthwise_forward_ref(const DepthwiseForwardOf<Real>&, int64_t, int64_t);   \
  template void depthwise_backward_ref(const DepthwiseBackwardOf<Real>&, int64_t, int64_t); \
  template void headwise_forward_ref(const HeadwiseForwardOf<Real>&, int64_t, int64_t);     \
  template void headwise_backward_ref(const HeadwiseBackwardOf<Real>&, int64_t, int64_t);   \
  template void gates_forward_ref(const GatesForwardOf<Real>&, int64_t, int64_t);           \
  template void gates_backward_ref(const GatesBackwardOf<Real>&, int64_t, int64_t);         \
  template void head_norm_forward_ref(const HeadNormForwardOf<Real>&, int64_t, int64_t);    \
  template void head_norm_backward_ref(const HeadNormBackwardOf<Real>&, int64_t, int64_t);
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(float)

namespace reference {
namespace {

void narrow(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) write_element(to, Element::bf16, i, from[i]);
}

}  // namespace

extern const MixerFunctions mixer_functions;
const MixerFunctions mixer_functions = {
    depthwise_forward_ref<float>, depthwise_backward_ref<float>, headwise_forward_ref<float>,
    headwise_backward_ref<float>, gates_forward_ref<float>,      gates_backward_ref<float>,
    head_norm_forward_ref<float>, head_norm_backward_ref<float>, narrow};

}  // namespace reference
}  // namespace tessera::kernels
