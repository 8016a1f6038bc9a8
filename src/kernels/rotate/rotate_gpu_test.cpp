// Rotary position embedding for GPUs on the emulator, against the formula in double.
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t batch, heads, tokens, channels, rotated;
  Element element;
  bool of_heads, of_samples;  // the tables
  bool packed;                // x is in the middle of (B,T,3,H,C)
};
const Case kCases[] = {
    {1, 1, 1, 8, 8, Element::f32, false, false, false}, {2, 3, 17, 64, 64, Element::bf16, false, false, true},
    {2, 2, 5, 24, 16, Element::f32, true, false, true}, {3, 2, 33, 40, 40, Element::bf16, false, true, false},
    {2, 4, 9, 32, 8, Element::bf16, true, true, true},  {1, 2, 50, 128, 128, Element::f32, true, true, false},
};

// x, tables and output of a case.
struct Problem {
  explicit Problem(const Case& c)
      : cos(Element::f32, uniform(tables(c) * c.tokens * c.rotated / 2, 2, -1, 1)),
        sin(Element::f32, uniform(tables(c) * c.tokens * c.rotated / 2, 3, -1, 1)),
        x(c.element, normal(c.batch * c.heads * c.tokens * c.channels * (c.packed ? 3 : 1), 1)),
        y(c.element, c.batch * c.heads * c.tokens * c.channels) {
    const int64_t bytes = c.element == Element::f32 ? 4 : 2, table = c.tokens * c.rotated / 2;
    call.batch = c.batch, call.heads = c.heads, call.tokens = c.tokens, call.channels = c.channels;
    call.rotated = c.rotated, call.element = c.element;
    call.x = c.packed ? x.as<char>() + bytes * c.heads * c.channels : x.as<char>();
    call.head = c.packed ? c.channels : c.tokens * c.channels;
    call.token = c.packed ? 3 * c.heads * c.channels : c.channels;
    call.sample = (c.packed ? 3 : 1) * c.tokens * c.heads * c.channels;
    call.cos = cos.as<float>(), call.sin = sin.as<float>();
    call.table_head = c.of_heads ? table : 0;
    call.table_sample = c.of_samples ? table * (c.of_heads ? c.heads : 1) : 0;
    call.y = y.data();
  }
  static int64_t tables(const Case& c) { return (c.of_heads ? c.heads : 1) * (c.of_samples ? c.batch : 1); }

  // Returns the rotated x by its definition.
  std::vector<double> want() const {
    std::vector<double> all;
    for (int64_t row = 0; row < call.batch * call.heads * call.tokens; ++row) {
      const int64_t t = row % call.tokens, h = row / call.tokens % call.heads,
                    b = row / call.tokens / call.heads;
      const auto value = [&](int64_t c) {
        return double{
            read_element(call.x, call.element, b * call.sample + h * call.head + t * call.token + c)};
      };
      for (int64_t c = 0; c < call.channels; ++c) {
        const int64_t place = b * call.table_sample + h * call.table_head + t * (call.rotated / 2) + c / 2;
        if (c >= call.rotated) {
          all.push_back(value(c));
          continue;
        }
        const double turn = (c % 2 == 0) == call.inverse ? 1 : -1;  // the sign of the sine's term
        all.push_back(value(c) * call.cos[place] +
                      turn * value(c % 2 == 0 ? c + 1 : c - 1) * call.sin[place]);
      }
    }
    return all;
  }
  DeviceArray cos, sin, x, y;
  gpu::Rotation call;
};

TEST(RotateOnGpu, IsTheRotationAndItsInverse) {
  for (const Case& c : kCases)
    for (const bool inverse : {false, true}) {
      Problem p(c);
      p.call.inverse = inverse;
      run_emulated(&gpu::Table::rotate, p.call, {&p.y});
      expect_rounded(p.y, p.want(), 1e-6, text("case ", &c - kCases, inverse ? ", back" : ""));
    }
}

TEST(RotateOnGpu, OddChannelsAreDeclined) {
  Problem p(kCases[1]);
  const auto taken = [&](int64_t rotated, int64_t token) {
    gpu::Rotation call = p.call;
    call.rotated = rotated, call.token = token;
    return gpu::choose_form(tessera_gpu_table()->rotate, 90, call) != nullptr;
  };
  EXPECT_TRUE(taken(64, 576));
  EXPECT_FALSE(taken(60, 576));
  EXPECT_FALSE(taken(72, 576));
  EXPECT_FALSE(taken(64, 580));
}

}  // namespace
}  // namespace tessera::kernels
