// Rotary position embedding on a GPU: x in, y out, eight channels a thread. The tables are small and stay in the cache.
#include "kernels/gpu/launch.h"
#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {

struct RotateKernel {
  using Call = Rotation;
  static constexpr int kThreads = 256, kShared = 0, kBlocks = 4;

  static TESSERA_DEVICE void load4(float (&to)[4], const float* from) {
    const Words words = *(const Words*)from;
    TESSERA_UNROLL for (int i = 0; i < 4; ++i) to[i] = as_float(words.w[i]);
  }

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    int64_t row, column;
    if (!place_of_eight(call.batch * call.heads * call.tokens, call.channels, at, kThreads, row, column))
      return;
    const int64_t token = row % call.tokens, of_head = row / call.tokens, head = of_head % call.heads,
                  sample = of_head / call.heads;
    float x[8];
    load8(x, call.x, call.element, sample * call.sample + head * call.head + token * call.token + column);
    if (column < call.rotated) {
      const int64_t place =
          sample * call.table_sample + head * call.table_head + token * (call.rotated / 2) + column / 2;
      float cos[4], sin[4];
      load4(cos, call.cos + place), load4(sin, call.sin + place);
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1], s = call.inverse ? -sin[i] : sin[i];
        x[2 * i] = a * cos[i] - b * s, x[2 * i + 1] = a * s + b * cos[i];
      }
    }
    store8(call.y, call.element, row * call.channels + column, x);
  }
};

namespace {

bool takes(const Rotation& call) {
  const int64_t rows = call.batch * call.heads * call.tokens;
  return eight_a_thread(rows, call.channels, RotateKernel::kThreads) && call.rotated % 8 == 0 &&
         call.rotated <= call.channels && vectors(call.x) && vectors(call.y) && vectors(call.cos) &&
         vectors(call.sin) && call.sample % 8 == 0 && call.head % 8 == 0 && call.token % 8 == 0;
}

int run(const Rotation& call, Stream stream) {
  return launch<RotateKernel>(
      call, grid_of_eight(call.batch * call.heads * call.tokens, call.channels, RotateKernel::kThreads),
      stream);
}

constexpr Form<Rotation> kRotate[] = {{"vectors", 80, 0, takes, run}};

}  // namespace

Forms<Rotation> rotate_forms() { return {kRotate, 1}; }

}  // namespace tessera::kernels::gpu
