// bi_wkv_bench: a layer of VRWKV-T (192 channels), a sample.
#include "core/random.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/bi_wkv/bi_wkv.h"
#include "kernels/isa.h"

namespace tessera::kernels {
namespace {

void report(int64_t tokens) {
  const int64_t channels = 192;
  RandomStream stream(0, "bi_wkv bench");
  std::vector<float> k(static_cast<size_t>(tokens * channels)), u(static_cast<size_t>(channels));
  for (float& value : k) value = static_cast<float>(stream.normal());
  const std::vector<float> w(u.size(), 1.0f / static_cast<float>(tokens));
  std::vector<float> y(k.size()), gk(k.size()), gv(k.size()), gw(u.size()), gu(u.size());
  const FloatRows rows{k.data(), tokens * channels, channels};
  const auto out = [&](std::vector<float>& to) {
    return FloatRowsOut{to.data(), tokens * channels, channels};
  };
  const BiWkv call{1, tokens, channels, w.data(), u.data(), rows, rows};
  const BiWkvForward forward{call, out(y)};
  const BiWkvBackward backward{call, rows, out(gk), out(gv), gw.data(), gu.data()};
  const auto times = bench::measure(
      {{"forward", [&] { bi_wkv(forward); }}, {"backward", [&] { bi_wkv_backward(backward); }}}, 1);
  std::printf("%ld tokens: forward %.2f ms, backward %.2f ms\n", static_cast<long>(tokens),
              times[0].median * 1e3, times[1].median * 1e3);
}

}  // namespace
}  // namespace tessera::kernels

int main() {
  using namespace tessera;
  std::printf("%d threads, %s\n", num_threads(), kernels::name_of(kernels::active_isa()));
  for (const int64_t tokens : {196, 784, 3136, 12544}) kernels::report(tokens);
}
