// mlstm_mixer_bench [channels side batch]: microseconds per token, forward and backward, fp32 and bf16, for
// the widths and image sizes of Vision-LSTM.
#include <cstdlib>

#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/mlstm_mixer/mlstm_mixer_cases.h"

namespace tessera::kernels {
namespace {

using testing::MixerCase;
using testing::MixerProblem;

void report(const MixerCase& c) {
  MixerProblem p(c);
  mlstm_mixer_forward(p.forward());
  MlstmMixerForward inference = p.forward();
  inference.saved = {};
  const auto times = bench::measure({{"forward", [&] { mlstm_mixer_forward(inference); }},
                                     {"backward", [&] { mlstm_mixer_backward(p.backward()); }}},
                                    0.7);
  const double tokens = static_cast<double>(c.batch * p.T);
  std::printf("C%-5ld T%-6ld B%-3ld %-5s forward %7.3f us a token (fastest %7.3f), backward %7.3f (%7.3f)\n",
              static_cast<long>(c.channels), static_cast<long>(p.T), static_cast<long>(c.batch),
              c.element == Element::f32 ? "fp32" : "bf16", times[0].median / tokens * 1e6,
              times[0].fastest / tokens * 1e6, times[1].median / tokens * 1e6,
              times[1].fastest / tokens * 1e6);
}

void run(int argc, char** argv) {
  std::printf("%d threads, %s\n", num_threads(), name_of(active_isa()));
  if (argc != 4) {
    for (const MixerCase& c : testing::mixer_bench_cases()) report(c);
    return;
  }
  for (const Element element : {Element::f32, Element::bf16})
    report(testing::published_mixer_case(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]),
                                         element));
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
