// winograd_bench [side in out batch]: time of the convolutions in UperNet's and FPN's heads, and the
// throughput that a direct convolution of that speed would have (GFLOP/s of the definition's multiply-adds).
#include <cstdlib>

#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/isa.h"
#include "kernels/testing.h"
#include "kernels/winograd/winograd.h"

namespace tessera::kernels {
namespace {

void report(int64_t side, int64_t in, int64_t out, int64_t batch) {
  const WinogradGrid grid{batch, side, side, in, out};
  const int64_t cells = batch * side * side;
  const std::vector<float> x = testing::normal(cells * in, 1), dy = testing::normal(cells * out, 2);
  const std::vector<float> weight = testing::normal(9 * in * out, 3);
  std::vector<float> y(dy.size()), dweight(weight.size()),
      packed(static_cast<size_t>(winograd_packed_count(in, out)));
  const WinogradWeights pack{weight.data(), in, out, in * 9, 9, false, packed.data()};
  winograd_pack(pack);
  const WinogradForward forward{.grid = grid, .x = x.data(), .packed = packed.data(), .y = y.data()};
  const WinogradGradients gradients{.grid = grid, .x = x.data(), .dy = dy.data(), .weight = dweight.data()};
  const auto times = bench::measure({{"pack", [&] { winograd_pack(pack); }},
                                     {"forward", [&] { winograd_forward(forward); }},
                                     {"gradients", [&] { winograd_gradients(gradients); }}},
                                    0.5);
  const double gflop = 18e-9 * static_cast<double>(cells * in * out);
  std::printf(
      "%3ld x %-3ld %4ld to %-4ld B%-3ld pack %7.2f ms, forward %8.2f ms %6.1f GFLOP/s, weights' gradient "
      "%8.2f ms %6.1f GFLOP/s\n",
      static_cast<long>(side), static_cast<long>(side), static_cast<long>(in), static_cast<long>(out),
      static_cast<long>(batch), times[0].median * 1e3, times[1].median * 1e3, gflop / times[1].median,
      times[2].median * 1e3, gflop / times[2].median);
}

void run(int argc, char** argv) {
  std::printf("%d threads, %s\n", num_threads(), name_of(active_isa()));
  if (argc == 5)
    return report(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
  report(64, 512, 512, 1);  // UperNet's second map
  report(64, 256, 256, 1);  // FPN and RPN
  report(32, 256, 256, 1);
  report(14, 256, 256, 32);  // mask head
  report(56, 64, 64, 4);     // ResNet-50's stages
  report(28, 128, 128, 4);
  report(14, 256, 256, 4);
  report(7, 512, 512, 4);
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
