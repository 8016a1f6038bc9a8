// LayerNorm and RMSNorm for GPUs on the emulator, against the definition in double.
#include "kernels/gpu/gpu_testing.h"
#include "kernels/linear/linear_backward.h"
#include "kernels/linear/linear_data.h"

namespace tessera::kernels::reference {
extern const LinearBackwardFunctions linear_backward;
}

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t rows, width;
  Element x, y;
  bool centred, affine;
};
// Widths around the border of every form, odd numbers of rows around warps, blocks and parts.
const Case kCases[] = {
    {1, 8, Element::f32, Element::f32, true, true},     {7, 24, Element::bf16, Element::bf16, false, true},
    {9, 192, Element::f32, Element::bf16, true, true},  {70, 200, Element::bf16, Element::f32, true, false},
    {33, 256, Element::f32, Element::bf16, true, true}, {40, 264, Element::f32, Element::f32, false, true},
    {9, 512, Element::bf16, Element::bf16, true, true}, {3, 520, Element::f32, Element::bf16, true, true},
    {35, 768, Element::f32, Element::f32, true, true},  {2, 1024, Element::bf16, Element::bf16, false, false},
    {5, 1032, Element::f32, Element::bf16, true, true}, {2, 2048, Element::f32, Element::f32, true, true},
    {3, 2056, Element::bf16, Element::f32, true, true}, {2, 4104, Element::f32, Element::bf16, true, true},
    {1, 8192, Element::f32, Element::f32, true, true},
};

std::string name_of(const Case& c) {
  return text(c.rows, " rows of ", c.width, c.x == Element::bf16 ? " bf16" : " fp32",
              c.centred ? "" : " RMS");
}

TEST(NormOnGpu, ForwardIsTheDefinition) {
  for (const Case& c : kCases) {
    const int64_t count = c.rows * c.width;
    DeviceArray x(c.x, normal(count, 1, 3, 2)), y(c.y, count), weight(Element::f32, normal(c.width, 2, 1)),
        bias(Element::f32, normal(c.width, 3));
    const float *w = c.affine ? weight.as<float>() : nullptr, *b = c.affine ? bias.as<float>() : nullptr;
    run_emulated(&gpu::Table::norm,
                 {c.rows, c.width, x.rows(c.width), w, b, 1e-5f, c.centred, y.rows_out(c.width)}, {&y});
    DeviceArray want(Element::f32, count);
    norm_forward_reference(
        {c.rows, c.width, x.rows(c.width), {w, b, 1e-5f, c.centred, 0}, want.rows_out(c.width)});
    // Sums of `width` numbers near 3, deviation 2, in float.
    expect_rounded(y, want.values(), 2e-5, name_of(c));
  }
}

TEST(NormOnGpu, BackwardIsTheDefinition) {
  for (const Case& c : kCases) {
    const int64_t count = c.rows * c.width;
    DeviceArray x(c.x, normal(count, 1, 3, 2)), dy(c.y, normal(count, 4)), dx(c.x, count),
        weight(Element::f32, normal(c.width, 2, 1)), dweight(Element::f32, c.width),
        dbias(Element::f32, c.width), partial(Element::f32, gpu::row_parts(c.rows) * 2 * c.width);
    const float* w = c.affine ? weight.as<float>() : nullptr;
    run_emulated(&gpu::Table::norm_backward,
                 {c.rows, c.width, x.rows(c.width), dy.rows(c.width), w, 1e-5f, c.centred,
                  dx.rows_out(c.width), dweight.as<float>(), dbias.as<float>(), partial.as<float>()},
                 {&dx, &dweight, &dbias});
    DeviceArray want(Element::f32, count);
    std::vector<float> sums(2 * c.width);
    NormBackward definition{c.rows,          c.width,          c.centred, 1e-5f,
                            x.rows(c.width), dy.rows(c.width), w,         want.rows_out(c.width)};
    definition.dweight = definition.dbias = sums.data();
    reference::linear_backward.norm(definition, 0, c.rows, sums.data());
    expect_rounded(dx, want.values(), 2e-5, name_of(c));
    const std::vector<double> all(sums.begin(), sums.end());
    const double tolerance = 2e-5 * std::sqrt(static_cast<double>(c.rows)) + 1e-6 * testing::largest(all);
    expect_rounded(dweight, {all.begin(), all.begin() + c.width}, tolerance, name_of(c) + ", dweight");
    expect_rounded(dbias, {all.begin() + c.width, all.end()}, tolerance, name_of(c) + ", dbias");
  }
}

// Weights of each sample: each sample's gradients are those of its rows alone.
TEST(NormOnGpu, BackwardOfSamplesIsThatOfEach) {
  constexpr int64_t kSamples = 3;
  for (const Case& c : kCases) {
    const int64_t rows = kSamples * c.rows, count = rows * c.width, numbers = kSamples * c.width;
    DeviceArray x(c.x, normal(count, 1, 3, 2)), dy(c.y, normal(count, 4)), dx(c.x, count),
        weight(Element::f32, normal(numbers, 2, 1)), dweight(Element::f32, numbers),
        dbias(Element::f32, numbers), partial(Element::f32, kSamples * gpu::row_parts(c.rows) * 2 * c.width);
    run_emulated(&gpu::Table::norm_backward,
                 {rows, c.width, x.rows(c.width), dy.rows(c.width), weight.as<float>(), 1e-5f, c.centred,
                  dx.rows_out(c.width), dweight.as<float>(), dbias.as<float>(), partial.as<float>(), c.rows},
                 {&dx, &dweight, &dbias});
    DeviceArray want(Element::f32, count);
    std::vector<double> of_weight, of_bias;
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      const int64_t first = sample * c.rows * c.width;
      const auto part = [&](DeviceArray& all) {
        return Rows{static_cast<char*>(all.data()) + first * (all.element() == Element::f32 ? 4 : 2),
                    all.element(), c.width};
      };
      std::vector<float> sums(2 * c.width);
      NormBackward definition{c.rows,
                              c.width,
                              c.centred,
                              1e-5f,
                              part(x),
                              part(dy),
                              weight.as<float>() + sample * c.width,
                              {want.as<float>() + first, Element::f32, c.width}};
      definition.dweight = definition.dbias = sums.data();
      reference::linear_backward.norm(definition, 0, c.rows, sums.data());
      of_weight.insert(of_weight.end(), sums.begin(), sums.begin() + c.width);
      of_bias.insert(of_bias.end(), sums.begin() + c.width, sums.end());
    }
    expect_rounded(dx, want.values(), 2e-5, name_of(c));
    const double rounding = 2e-5 * std::sqrt(static_cast<double>(c.rows));
    expect_rounded(dweight, of_weight, rounding + 1e-6 * testing::largest(of_weight),
                   name_of(c) + ", dweight");
    expect_rounded(dbias, of_bias, rounding + 1e-6 * testing::largest(of_bias), name_of(c) + ", dbias");
  }
}

TEST(NormOnGpu, WhatLoadsOf16BytesCannotReadIsDeclined) {
  DeviceArray x(Element::f32, normal(64, 1)), y(Element::f32, 64);
  const auto taken = [&](int64_t width, int64_t stride, int64_t shift) {
    gpu::NormForward call{2,
                          width,
                          {x.as<float>() + shift, Element::f32, stride},
                          nullptr,
                          nullptr,
                          1e-5f,
                          true,
                          y.rows_out(width)};
    return gpu::choose_form(tessera_gpu_table()->norm, 90, call) != nullptr;
  };
  EXPECT_TRUE(taken(16, 32, 0));
  EXPECT_FALSE(taken(15, 32, 0));
  EXPECT_FALSE(taken(16, 33, 0));
  EXPECT_FALSE(taken(16, 32, 1));
  EXPECT_FALSE(taken(8200, 8200, 0));
}

}  // namespace
}  // namespace tessera::kernels
