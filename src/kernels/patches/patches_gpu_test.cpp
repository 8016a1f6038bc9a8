// Patches of images for GPUs on the emulator, against their definition.
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t batch, channels, height, width, patch;
  Element element;
  const char* form;
  bool channels_last = false;
  int64_t extra = 0;  // pixels between lines
};
const Case kCases[] = {
    {1, 1, 2, 2, 2, Element::f32, "pairs"},
    {3, 3, 10, 6, 2, Element::f32, "pairs"},
    {2, 6, 12, 20, 4, Element::bf16, "pairs"},
    {2, 3, 28, 42, 14, Element::f32, "pairs"},
    {1, 3, 30, 45, 14, Element::bf16, "pairs"},  // with a border
    {2, 1, 24, 8, 8, Element::bf16, "vectors"},
    {3, 3, 32, 48, 16, Element::f32, "vectors"},
    {2, 6, 40, 56, 16, Element::f32, "vectors"},  // with a border
    {1, 3, 64, 96, 32, Element::bf16, "vectors"},
    {2, 3, 32, 48, 16, Element::f32, "vectors", false, 8},
    {2, 3, 32, 48, 16, Element::f32, "pairs", false, 5},
    {2, 3, 16, 32, 16, Element::f32, "pairs", true},
    {65, 1, 4, 4, 4, Element::f32, "pairs"},
};

struct Problem {
  explicit Problem(const Case& c)
      : line(c.width + c.extra),
        images(c.element, normal(c.batch * c.channels * c.height * line, 1)),
        y(Element::bf16,
          c.batch * (c.height / c.patch) * (c.width / c.patch) * c.channels * c.patch * c.patch) {
    call = {c.batch, c.channels, c.height / c.patch, c.width / c.patch, c.patch, c.element, images.data()};
    call.sample = c.channels * c.height * line;
    call.channel = c.channels_last ? 1 : c.height * line;
    call.line = c.channels_last ? line * c.channels : line;
    call.pixel = c.channels_last ? c.channels : 1;
    call.y = y.as<uint16_t>();
  }
  // Returns the patches, rounded to bfloat16.
  std::vector<double> want() const {
    std::vector<double> all;
    for (int64_t patch = 0; patch < call.batch * call.rows * call.columns; ++patch) {
      const int64_t sample = patch / (call.rows * call.columns), row = patch / call.columns % call.rows,
                    column = patch % call.columns;
      for (int64_t channel = 0; channel < call.channels; ++channel)
        for (int64_t i = 0; i < call.patch; ++i)
          for (int64_t j = 0; j < call.patch; ++j)
            all.push_back(gpu::to_float(gpu::to_bf16(static_cast<float>(
                images.get(sample * call.sample + channel * call.channel +
                           (row * call.patch + i) * call.line + (column * call.patch + j) * call.pixel)))));
    }
    return all;
  }
  int64_t line;
  DeviceArray images, y;
  gpu::PatchRows call;
};

const char* form_of(const gpu::PatchRows& call) {
  const auto* form = gpu::choose_form(tessera_gpu_table()->patch_rows, 90, call);
  return form ? form->name : "none";
}

TEST(PatchesOnGpu, AreTheRowsOfTheImages) {
  for (const Case& c : kCases) {
    Problem p(c);
    EXPECT_STREQ(form_of(p.call), c.form) << "case " << &c - kCases;
    run_emulated(&gpu::Table::patch_rows, p.call, {&p.y});
    EXPECT_EQ(p.y.values(), p.want()) << "case " << &c - kCases;
  }
}

TEST(PatchesOnGpu, OddPatchesAndImagesWithoutPatchesAreDeclined) {
  for (const int64_t patch : {1, 7}) {
    Problem p({1, 3, 14, 14, patch, Element::f32, "none"});
    EXPECT_STREQ(form_of(p.call), "none") << patch;
  }
  Problem p(kCases[0]);
  for (int64_t gpu::PatchRows::*size :
       {&gpu::PatchRows::batch, &gpu::PatchRows::rows, &gpu::PatchRows::columns, &gpu::PatchRows::channels}) {
    gpu::PatchRows call = p.call;
    call.*size = 0;
    EXPECT_STREQ(form_of(call), "none");
    call.*size = int64_t{1} << 32;
    EXPECT_STREQ(form_of(call), "none");
  }
}

}  // namespace
}  // namespace tessera::kernels
