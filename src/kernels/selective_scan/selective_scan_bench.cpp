// selective_scan_bench: one direction of a layer of Vim-T (384 channels, 16 states), per sample.
#include "core/random.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/isa.h"
#include "kernels/selective_scan/selective_scan.h"

namespace tessera::kernels {
namespace {

void report(int64_t tokens) {
  const int64_t channels = 384, states = 16;
  RandomStream stream(0, "selective_scan bench");
  const auto normal = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(stream.normal());
    return values;
  };
  const std::vector<float> x = normal(tokens * channels), b = normal(tokens * states), d = normal(channels),
                           a(static_cast<size_t>(channels * states), -1.0f);
  const FloatRows wide{x.data(), tokens * channels, channels}, narrow{b.data(), tokens * states, states};
  SelectiveScan call;
  call.batch = 1, call.tokens = tokens, call.channels = channels, call.states = states;
  call.u = call.delta = call.z = wide, call.b = call.c = narrow, call.a = a.data(), call.d = d.data();
  std::vector<float> y(x.size()), kept(static_cast<size_t>(scan_kept(call))), gu(x.size()), gdelta(x.size()),
      gz(x.size()), gb(b.size()), gc(b.size()), ga(a.size()), gd(d.size());
  const auto out = [&](std::vector<float>& to) {
    return FloatRowsOut{to.data(), tokens * channels, channels};
  };
  const SelectiveScanForward forward{call, out(y), nullptr, kept.data()};
  const SelectiveScanBackward backward{call,      wide,      kept.data(), out(gu),   out(gdelta), out(gz),
                                       gb.data(), gc.data(), ga.data(),   gd.data(), nullptr};
  const auto times = bench::measure({{"forward", [&] { selective_scan(forward); }},
                                     {"backward", [&] { selective_scan_backward(backward); }}},
                                    1);
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
