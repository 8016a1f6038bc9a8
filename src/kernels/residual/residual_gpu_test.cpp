// Residual sums for GPUs on the emulator, against the formulas in double.
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t samples, sample_rows, width;
  Element branch, residual;
  bool shared;  // one scale for all samples
};
// Widths around 256 columns, odd numbers of rows around warps, blocks and parts.
const Case kCases[] = {
    {1, 1, 8, Element::f32, Element::f32, true},      {2, 5, 24, Element::bf16, Element::f32, true},
    {3, 33, 264, Element::bf16, Element::f32, false}, {1, 70, 256, Element::bf16, Element::bf16, true},
    {7, 1, 192, Element::f32, Element::bf16, false},  {2, 65, 520, Element::bf16, Element::f32, true},
    {5, 8, 1024, Element::bf16, Element::f32, false},
};

struct Problem {
  explicit Problem(const Case& c)
      : rows(c.samples * c.sample_rows),
        of_sample(c.shared ? 0 : c.sample_rows),
        x(c.branch, normal(rows * c.width, 1)),
        residual(c.residual, normal(rows * c.width, 2)),
        dy(c.residual, normal(rows * c.width, 3)),
        scale(Element::f32, normal((c.shared ? 1 : c.samples) * c.width, 4)) {}
  // Returns the scale's number for number i of x.
  int64_t place(int64_t i, int64_t width) const {
    return (of_sample > 0 ? i / width / of_sample * width : 0) + i % width;
  }
  int64_t rows, of_sample;
  DeviceArray x, residual, dy, scale;
};

TEST(ResidualOnGpu, ForwardIsTheSum) {
  for (const Case& c : kCases) {
    Problem p(c);
    DeviceArray y(c.residual, p.x.count());
    run_emulated(&gpu::Table::residual,
                 {p.rows, c.width, p.x.rows(c.width), p.residual.rows(c.width), p.scale.as<float>(),
                  p.of_sample, y.rows_out(c.width)},
                 {&y});
    std::vector<double> want;
    for (int64_t i = 0; i < y.count(); ++i)
      want.push_back(p.residual.get(i) + p.scale.get(p.place(i, c.width)) * p.x.get(i));
    expect_rounded(y, want, 2e-6, text("case ", &c - kCases));
  }
}

TEST(ResidualOnGpu, BackwardIsTheGradientOfTheSum) {
  for (const Case& c : kCases) {
    Problem p(c);
    const int64_t samples = c.shared ? 1 : c.samples, of_sample = p.rows / samples;
    DeviceArray dx(c.branch, p.x.count()), dscale(Element::f32, samples * c.width),
        partial(Element::f32, samples * gpu::row_parts(of_sample) * c.width);
    run_emulated(&gpu::Table::residual_backward,
                 {p.rows, c.width, p.x.rows(c.width), p.dy.rows(c.width), p.scale.as<float>(), p.of_sample,
                  dx.rows_out(c.width), dscale.as<float>(), partial.as<float>()},
                 {&dx, &dscale});
    std::vector<double> of_x, of_scale(static_cast<size_t>(dscale.count()));
    for (int64_t i = 0; i < dx.count(); ++i) {
      of_x.push_back(p.scale.get(p.place(i, c.width)) * p.dy.get(i));
      of_scale[static_cast<size_t>(p.place(i, c.width))] += p.x.get(i) * p.dy.get(i);
    }
    expect_rounded(dx, of_x, 1e-6, text("case ", &c - kCases));
    expect_rounded(dscale, of_scale, 1e-5 * std::sqrt(static_cast<double>(of_sample)),
                   text("case ", &c - kCases, ", dscale"));
  }
}

TEST(ResidualOnGpu, TheScalesGradientMayBeLeftOut) {
  const Case c{2, 9, 40, Element::bf16, Element::f32, true};
  Problem p(c);
  DeviceArray dx(c.branch, p.x.count());
  run_emulated(&gpu::Table::residual_backward,
               {p.rows, c.width, p.x.rows(c.width), p.dy.rows(c.width), p.scale.as<float>(), 0,
                dx.rows_out(c.width), nullptr, nullptr},
               {&dx});
  std::vector<double> want;
  for (int64_t i = 0; i < dx.count(); ++i) want.push_back(p.scale.get(i % c.width) * p.dy.get(i));
  expect_rounded(dx, want, 1e-6, "dx");
}

}  // namespace
}  // namespace tessera::kernels
