// roi_align_bench: 512 boxes on a map of 256 x 64 x 64 to 7 x 7 and 14 x 14 bins, one sample per cell.
#include "core/random.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/isa.h"
#include "kernels/roi_align/roi_align.h"

namespace tessera::kernels {
namespace {

void report(int64_t bins) {
  const int64_t channels = 256, side = 64, rois = 512;
  RandomStream stream(0, "roi_align bench");
  std::vector<float> boxes;
  for (int64_t k = 0; k < rois; ++k) {
    const double x = stream.uniform(0, 200), y = stream.uniform(0, 200);
    for (const double value : {0.0, x, y, x + stream.uniform(8, 150), y + stream.uniform(8, 150)})
      boxes.push_back(static_cast<float>(value));
  }
  const std::vector<float> x(static_cast<size_t>(channels * side * side), 0.5f);
  std::vector<float> y(static_cast<size_t>(rois * channels * bins * bins)), gx(x.size());
  const RoiAlign<float> call{1, channels, side, side, rois, boxes.data(), 0.25, true, 0, bins, bins};
  const auto times = bench::measure({{"forward", [&] { roi_align(call, x.data(), y.data()); }},
                                     {"backward", [&] { roi_align_backward(call, y.data(), gx.data()); }}},
                                    1);
  std::printf("%ld x %ld bins: forward %.2f ms, backward %.2f ms\n", static_cast<long>(bins),
              static_cast<long>(bins), times[0].median * 1e3, times[1].median * 1e3);
}

}  // namespace
}  // namespace tessera::kernels

int main() {
  using namespace tessera;
  std::printf("%d threads, %s\n", num_threads(), kernels::name_of(kernels::active_isa()));
  for (const int64_t bins : {7, 14}) kernels::report(bins);
}
