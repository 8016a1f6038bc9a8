// Activations for GPUs on the emulator, against their formulas in double and differences of those.
#include <functional>

#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;
using gpu::ActivationKind;

double value(ActivationKind kind, double x) {
  if (kind == ActivationKind::silu) return x / (1 + std::exp(-x));
  if (kind == ActivationKind::gelu) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double slope(ActivationKind kind, double x) {
  constexpr double kStep = 1e-5;
  return (value(kind, x + kStep) - value(kind, x - kStep)) / (2 * kStep);
}

struct Case {
  ActivationKind kind;
  int64_t rows, width;
  Element element;
  bool gated, halves;  // halves: x and gate are the halves of one tensor's rows
};
const Case kCases[] = {
    {ActivationKind::gelu, 1, 8, Element::f32, false, false},
    {ActivationKind::gelu, 37, 136, Element::bf16, false, false},
    {ActivationKind::gelu_tanh, 5, 384, Element::f32, false, false},
    {ActivationKind::gelu_tanh, 3, 24, Element::bf16, true, true},
    {ActivationKind::silu, 9, 264, Element::bf16, true, true},
    {ActivationKind::silu, 257, 8, Element::f32, true, false},
    {ActivationKind::silu, 2, 1024, Element::bf16, false, false},
};

// x, gate and dy of a case.
struct Problem {
  explicit Problem(const Case& c)
      : stride(c.halves ? 2 * c.width : c.width),
        in(c.element, uniform(c.rows * stride, 1, -7, 7)),
        other(c.element, normal(c.rows * stride, 2)),
        dy(c.element, normal(c.rows * c.width, 3)),
        bytes(c.element == Element::f32 ? 4 : 2) {
    x = {in.data(), c.element, stride};
    if (c.gated)
      gate = c.halves ? Rows{in.as<char>() + c.width * bytes, c.element, stride} : other.rows(stride);
  }
  int64_t stride;
  DeviceArray in, other, dy;
  int64_t bytes;
  Rows x, gate;
};

double at(const Rows& rows, int64_t i, int64_t width) {
  return read_element(rows.data, rows.element, i / width * rows.row + i % width);
}

TEST(ActivationOnGpu, ForwardIsTheFormula) {
  for (const Case& c : kCases) {
    Problem p(c);
    DeviceArray y(c.element, c.rows * c.width);
    run_emulated(&gpu::Table::activation, {c.kind, c.rows, c.width, p.x, p.gate, y.rows_out(c.width)}, {&y});
    std::vector<double> want;
    for (int64_t i = 0; i < y.count(); ++i)
      want.push_back(value(c.kind, at(p.x, i, c.width)) * (c.gated ? at(p.gate, i, c.width) : 1));
    expect_rounded(y, want, 5e-6, text("case ", &c - kCases));
  }
}

TEST(ActivationOnGpu, BackwardIsTheSlope) {
  for (const Case& c : kCases) {
    Problem p(c);
    DeviceArray dx(c.element, c.rows * c.width), dgate(c.element, c.rows * c.width);
    gpu::ActivationBackward call{
        c.kind, c.rows, c.width, p.x, p.gate, p.dy.rows(c.width), dx.rows_out(c.width), {}};
    if (c.gated) call.dgate = dgate.rows_out(c.width);
    run_emulated(&gpu::Table::activation_backward, call, {&dx});
    std::vector<double> of_x, of_gate;
    for (int64_t i = 0; i < dx.count(); ++i) {
      const double x = at(p.x, i, c.width), dy = p.dy.get(i);
      of_x.push_back(dy * slope(c.kind, x) * (c.gated ? at(p.gate, i, c.width) : 1));
      of_gate.push_back(dy * value(c.kind, x));
    }
    expect_rounded(dx, of_x, 1e-5, text("case ", &c - kCases));
    if (c.gated) expect_rounded(dgate, of_gate, 2e-5, text("case ", &c - kCases, ", gate"));
  }
}

TEST(ActivationOnGpu, FarValuesAreExact) {
  DeviceArray x(Element::f32, {-200, -40, -10, 10, 40, 200, 0, -0.0f}), y(Element::f32, 8);
  for (const auto kind : {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu}) {
    run_emulated(&gpu::Table::activation, {kind, 1, 8, x.rows(8), {}, y.rows_out(8)}, {&y});
    for (const int64_t i : {0, 1, 6, 7}) EXPECT_NEAR(y.get(i), 0, 1e-15);
    for (const int64_t i : {4, 5}) EXPECT_EQ(y.get(i), x.get(i));
    EXPECT_NEAR(y.get(2), value(kind, -10), 1e-9);
  }
}

}  // namespace
}  // namespace tessera::kernels
