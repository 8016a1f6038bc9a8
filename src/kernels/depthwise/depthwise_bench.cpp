// depthwise_bench [side channels batch]: GFLOP/s of the stages of ConvNeXt-T, fp32 and bf16.
#include <cstdlib>

#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/isa.h"

namespace tessera::kernels {
namespace {

void report(int64_t side, int64_t channels, int64_t batch) {
  const auto count = static_cast<size_t>(batch * side * side * channels);
  const std::vector<float> x(count, 0.5f), weight(static_cast<size_t>(49 * channels), 0.25f);
  std::vector<float> y(count);
  std::vector<uint16_t> rounded(count);
  DepthwiseConvolution call{batch,        side,          side,    channels, x.data(),
                            Element::f32, weight.data(), nullptr, y.data(), Element::f32};
  DepthwiseConvolution narrow = call;
  narrow.y = rounded.data(), narrow.y_element = Element::bf16;
  const auto times = bench::measure({{"fp32", [&] { depthwise_convolution(call); }},
                                     {"fp32 to bf16", [&] { depthwise_convolution(narrow); }}},
                                    0.5);
  const double gflop = 2e-9 * 49 * static_cast<double>(count);
  std::printf("%3ld x %-3ld C%-5ld B%-3ld fp32 %7.3f ms %6.1f GFLOP/s, to bf16 %7.3f ms %6.1f GFLOP/s\n",
              static_cast<long>(side), static_cast<long>(side), static_cast<long>(channels),
              static_cast<long>(batch), times[0].median * 1e3, gflop / times[0].median, times[1].median * 1e3,
              gflop / times[1].median);
}

void run(int argc, char** argv) {
  std::printf("%d threads, %s\n", num_threads(), name_of(active_isa()));
  if (argc == 4) return report(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]));
  for (const auto& [side, channels] : {std::pair<int64_t, int64_t>{56, 96}, {28, 192}, {14, 384}, {7, 768}})
    report(side, channels, 8);
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
