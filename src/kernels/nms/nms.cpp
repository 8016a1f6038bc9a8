// One box against all later ones, for one instruction set. Per-ISA; built without contraction to
// multiply-adds.
#include "kernels/nms/nms.h"

#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

void suppress(const NmsBoxes& b, int64_t by, int64_t from, int64_t count, float threshold, uint8_t* gone) {
  const vf left = splat(b.left[by]), top = splat(b.top[by]), right = splat(b.right[by]),
           bottom = splat(b.bottom[by]), area = splat(b.area[by]), limit = splat(threshold);
  for (int64_t i = from; i < count; i += W) {
    const int64_t n = count - i;
    const vf width = max(min(right, get(b.right + i, n)) - max(left, get(b.left + i, n)), vf{});
    const vf height = max(min(bottom, get(b.bottom + i, n)) - max(top, get(b.top + i, n)), vf{});
    const vf inside = width * height;
    const vi over = inside / (area + get(b.area + i, n) - inside) > limit;
    for (int64_t lane = 0; lane < W && lane < n; ++lane) gone[i + lane] |= (uint8_t)(over[lane] & 1);
  }
}

}  // namespace

extern const NmsFunctions nms_functions;
const NmsFunctions nms_functions = {suppress};

}  // namespace tessera::kernels::TESSERA_ISA
