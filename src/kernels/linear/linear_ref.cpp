// The definition of linear layers: plain loops, double sums. Integers are computed in float, as in the fast
// forms.
#include <cmath>

#include "kernels/linear/linear_data.h"
#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

std::vector<double> read_row(const Rows& rows, int64_t r, int64_t columns) {
  std::vector<double> values(static_cast<size_t>(columns));
  for (int64_t c = 0; c < columns; ++c) values[c] = read_element(rows.data, rows.element, r * rows.row + c);
  return values;
}

// Normalises row r of all rows.
void normalise(std::vector<double>& row, const RowNorm& norm, int64_t r) {
  const auto own = norm.sample_rows > 0 ? static_cast<size_t>(r / norm.sample_rows) * row.size() : 0;
  const auto count = static_cast<double>(row.size());
  double mean = 0, variance = 0;
  if (norm.centred)
    for (const double v : row) mean += v / count;
  for (const double v : row) variance += (v - mean) * (v - mean) / count;
  for (size_t c = 0; c < row.size(); ++c) {
    row[c] = (row[c] - mean) / std::sqrt(variance + norm.eps);
    if (norm.weight) row[c] *= norm.weight[own + c];
    if (norm.bias) row[c] += norm.bias[own + c];
  }
}

// Rounds the row to the arithmetic's precision; returns the factor of its products.
double prepare(std::vector<double>& row, Arithmetic arithmetic, float static_scale) {
  if (arithmetic == Arithmetic::f32) return 1;
  if (arithmetic == Arithmetic::bf16) {
    uint16_t bits = 0;
    for (double& v : row) {
      write_element(&bits, Element::bf16, 0, v);
      v = read_element(&bits, Element::bf16, 0);
    }
    return 1;
  }
  float largest = 0;
  bool finite = true;
  for (const double v : row) {
    finite = finite && std::isfinite(v);
    largest = std::max(largest, std::abs(static_cast<float>(v)));
  }
  if (!finite) return std::nan("");
  const float scale = static_scale > 0 ? static_scale : largest > 0 ? largest / 127.0f : 1.0f;
  for (double& v : row)
    v = std::nearbyint(std::min(127.0f, std::max(-128.0f, static_cast<float>(v) * (1.0f / scale))));
  return scale;
}

double output(const PackedLinearData& w, const PackedMatrix& matrix, const std::vector<double>& x,
              double scale, int64_t o) {
  double sum = 0;
  for (int64_t k = 0; k < w.in; ++k) sum += x[k] * matrix.plain[o * w.in + k];
  if (!matrix.scales.empty()) sum *= matrix.scales[o];
  return sum * scale + matrix.bias[o];
}

}  // namespace

void linear_forward_reference(const PackedLinearData& w, const LinearForward& call) {
  for (int64_t r = 0; r < call.rows; ++r) {
    std::vector<double> x = read_row(call.x, r, w.in);
    if (call.norm) normalise(x, *call.norm, r);
    const double scale = prepare(x, w.implementation.arithmetic, w.static_scale);
    for (int64_t o = 0; o < w.out; ++o) {
      double v = output(w, w.weight, x, scale, o);
      if (call.before.data) write_element(call.before.data, call.before.element, r * call.before.row + o, v);
      if (w.activation == Activation::gelu) v *= 0.5 * (1 + std::erf(v / std::sqrt(2.0)));
      if (w.activation == Activation::gelu_tanh)
        v *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
      if (w.activation == Activation::silu_gate) {
        const double g = output(w, w.gate, x, scale, o);
        if (call.gate_before.data)
          write_element(call.gate_before.data, call.gate_before.element, r * call.gate_before.row + o, g);
        v *= g / (1 + std::exp(-g));
      }
      if (!w.out_scale.empty()) v *= w.out_scale[o];
      if (call.sample_scale) v *= call.sample_scale[r / call.sample_rows * w.out + o];
      if (call.residual.data)
        v += read_element(call.residual.data, call.residual.element, r * call.residual.row + o);
      write_element(call.y.data, call.y.element, r * call.y.row + o, v);
    }
  }
}

void linear_gradients_reference(const LinearGradients& call) {
  std::vector<double> weight(static_cast<size_t>(call.in * call.out)), bias(static_cast<size_t>(call.out));
  for (int64_t r = 0; r < call.rows; ++r) {
    const std::vector<double> x = read_row(call.x, r, call.in), dy = read_row(call.dy, r, call.out);
    for (int64_t o = 0; o < call.out; ++o) {
      bias[o] += dy[o];
      for (int64_t k = 0; k < call.in; ++k) weight[o * call.in + k] += dy[o] * x[k];
    }
  }
  for (size_t i = 0; i < weight.size(); ++i) call.weight[i] = static_cast<float>(weight[i]);
  for (size_t i = 0; call.bias && i < bias.size(); ++i) call.bias[i] = static_cast<float>(bias[i]);
}

void norm_forward_reference(const NormForward& call) {
  for (int64_t r = 0; r < call.rows; ++r) {
    std::vector<double> row = read_row(call.x, r, call.columns);
    normalise(row, call.norm, r);
    for (int64_t c = 0; c < call.columns; ++c)
      write_element(call.y.data, call.y.element, r * call.y.row + c, row[c]);
  }
}

}  // namespace tessera::kernels
