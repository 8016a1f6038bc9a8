// Patches of images as rows on a GPU: every number is read once and written once, in bfloat16.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {

// A block has numbers of one row of patches, a thread kWide neighbours of one line of a patch: eight in one load, or two.
template <int kWide>
struct PatchRowsKernel {
  using Call = PatchRows;
  static constexpr int kThreads = 128, kShared = 0, kBlocks = 8;

  static TESSERA_DEVICE float load(const Call& call, int64_t index) {
    return call.element == Element::bf16 ? to_float(((const bf16*)call.images)[index])
                                         : ((const float*)call.images)[index];
  }

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const uint32_t patch = (uint32_t)call.patch, area = patch * patch, width = (uint32_t)call.channels * area;
    const uint32_t place = ((uint32_t)at.x * kThreads + (uint32_t)thread()) * kWide;
    if (place >= (uint32_t)call.columns * width) return;
    const uint32_t column = place / width, in_row = place % width, channel = in_row / area,
                   in_patch = in_row % area, line = in_patch / patch, pixel = in_patch % patch;
    const int64_t from = at.z * call.sample + channel * call.channel + (at.y * patch + line) * call.line +
                         (int64_t)(column * patch + pixel) * call.pixel;
    const int64_t to = (at.z * call.rows + at.y) * call.columns * width + place;
    if (kWide == 8) {
      float x[8];
      load8(x, call.images, call.element, from);
      store8(call.y, Element::bf16, to, x);
    } else {
      *(uint32_t*)(call.y + to) = pack(load(call, from), load(call, from + call.pixel));
    }
  }
};

namespace {

constexpr int64_t kMostBlocks = 65535;  // in the second and third direction of a grid

int64_t numbers_of_row(const PatchRows& call) {
  return call.columns * call.channels * call.patch * call.patch;
}

template <int kWide>
bool fits(const PatchRows& call) {
  return call.batch > 0 && call.batch <= kMostBlocks && call.rows > 0 && call.rows <= kMostBlocks &&
         call.columns > 0 && call.channels > 0 && call.patch > 0 && call.patch % kWide == 0 &&
         numbers_of_row(call) < int64_t{1} << 30 && vectors(call.y);
}
bool takes_vectors(const PatchRows& call) {
  return fits<8>(call) && call.pixel == 1 && vectors(call.images) && call.sample % 8 == 0 &&
         call.channel % 8 == 0 && call.line % 8 == 0;
}

template <int kWide>
int run(const PatchRows& call, Stream stream) {
  using Kernel = PatchRowsKernel<kWide>;
  constexpr int64_t kOfBlock = kWide * Kernel::kThreads;
  return launch<Kernel>(call, {(numbers_of_row(call) + kOfBlock - 1) / kOfBlock, call.rows, call.batch},
                        stream);
}

constexpr Form<PatchRows> kPatches[] = {{"vectors", 80, 0, takes_vectors, run<8>},
                                        {"pairs", 80, 0, fits<2>, run<2>}};

}  // namespace

Forms<PatchRows> patch_rows_forms() { return {kPatches, 2}; }

}  // namespace tessera::kernels::gpu
