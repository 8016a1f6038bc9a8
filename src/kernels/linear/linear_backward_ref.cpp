// The definition of linear_backward.h: plain loops in double.
#include <cmath>
#include <vector>

#include "kernels/linear/linear_backward.h"
#include "kernels/reference.h"

namespace tessera::kernels::reference {
namespace {

double at(const Rows& rows, int64_t r, int64_t c) {
  return read_element(rows.data, rows.element, r * rows.row + c);
}
void put(const RowsOut& rows, int64_t r, int64_t c, double value) {
  write_element(rows.data, rows.element, r * rows.row + c, value);
}

void activation(const ActivationBackward& call, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < call.columns; ++c) {
      const double x = at(call.before, r, c), dy = at(call.dy, r, c);
      if (call.gated) {
        const double gate = at(call.gate_before, r, c), s = 1 / (1 + std::exp(-gate));
        put(call.dbefore, r, c, dy * gate * s);
        put(call.dgate, r, c, dy * x * (s + gate * s * (1 - s)));
      } else if (call.with_tanh) {
        const double root = std::sqrt(2 / std::acos(-1.0)), t = std::tanh(root * (x + 0.044715 * x * x * x));
        put(call.dbefore, r, c, dy * 0.5 * (1 + t + x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)));
      } else {
        const double cumulative = 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
        const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
        put(call.dbefore, r, c, dy * (cumulative + x * density));
      }
    }
}

void norm(const NormBackward& call, int64_t begin, int64_t end, float* sums) {
  const auto count = static_cast<double>(call.columns);
  std::vector<double> x(static_cast<size_t>(call.columns)), g(x.size()), dy(x.size());
  for (int64_t r = begin; r < end; ++r) {
    double mean = 0, variance = 0, shift = 0, slope = 0;
    for (size_t c = 0; c < x.size(); ++c) {
      x[c] = at(call.x, r, static_cast<int64_t>(c)), dy[c] = at(call.dy, r, static_cast<int64_t>(c));
      g[c] = dy[c] * (call.weight ? call.weight[c] : 1);
      if (call.centred) mean += x[c] / count, shift += g[c] / count;
    }
    for (const double v : x) variance += (v - mean) * (v - mean) / count;
    const double factor = 1 / std::sqrt(variance + call.eps);
    for (double& v : x) v = (v - mean) * factor;
    for (size_t c = 0; c < x.size(); ++c) slope += g[c] * x[c] / count;
    for (size_t c = 0; c < x.size(); ++c) {
      put(call.dx, r, static_cast<int64_t>(c), factor * (g[c] - shift - x[c] * slope));
      if (call.dweight) sums[c] += static_cast<float>(dy[c] * x[c]);
      if (call.dbias) sums[x.size() + c] += static_cast<float>(dy[c]);
    }
  }
}

void scale(const SampleScaleBackward& call, int64_t begin, int64_t end, float* sums) {
  for (int64_t c = 0; c < call.columns; ++c) {
    double total = 0;
    for (int64_t r = begin; r < end; ++r) {
      const double before = at(call.before, r, c), dy = at(call.dy, r, c);
      put(call.dbefore, r, c, dy * call.scale[c]);
      total += dy * before;
    }
    if (call.dscale) sums[c] += static_cast<float>(total);
  }
}

}  // namespace

extern const LinearBackwardFunctions linear_backward;
const LinearBackwardFunctions linear_backward = {activation, norm, scale};

}  // namespace tessera::kernels::reference
