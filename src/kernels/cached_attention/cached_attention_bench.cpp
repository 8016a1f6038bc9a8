// cached_attention_bench [heads kv_heads keys dim batch]: the time per step, and the cache's bytes per
// second.
#include <cstdlib>

#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/cached_attention/cached_attention.h"
#include "kernels/isa.h"

namespace tessera::kernels {
namespace {

// Several caches take turns, like the blocks of a model, so each comes from memory.
constexpr int64_t kBlocks = 30;

void report(int64_t heads, int64_t kv_heads, int64_t keys, int64_t dim, int64_t batch) {
  const int64_t size = batch * kv_heads * keys * dim;
  std::vector<float> tokens(static_cast<size_t>(batch * heads * dim), 0.1f), out(tokens.size());
  std::vector<float> cache(static_cast<size_t>(2 * kBlocks * size), 0.1f);
  const auto of_tokens = [&](int64_t count) {
    return HeadRows{tokens.data(), Element::f32, count * dim, dim, dim};
  };
  const auto run = [&](Element element) {
    for (int64_t block = 0; block < kBlocks; ++block) {
      float* at = cache.data() + 2 * block * size;
      const auto part = [&](float* data) {
        return HeadRowsOut{data, element, kv_heads * keys * dim, keys * dim, dim};
      };
      cached_attention({batch,
                        heads,
                        kv_heads,
                        keys,
                        dim,
                        0.125f,
                        of_tokens(heads),
                        of_tokens(kv_heads),
                        of_tokens(kv_heads),
                        part(at),
                        part(at + size),
                        {out.data(), Element::f32, heads * dim, dim, dim}});
    }
  };
  const auto times =
      bench::measure({{"fp32", [&] { run(Element::f32); }}, {"bf16", [&] { run(Element::bf16); }}}, 1);
  for (int i = 0; i < 2; ++i)
    std::printf("heads %ld / %ld keys %ld dim %ld batch %ld %s %8.1f us a block %6.1f GB/s\n",
                static_cast<long>(heads), static_cast<long>(kv_heads), static_cast<long>(keys),
                static_cast<long>(dim), static_cast<long>(batch), i ? "bf16" : "fp32",
                times[i].median / kBlocks * 1e6,
                1e-9 * static_cast<double>(2 * kBlocks * size * (i ? 2 : 4)) / times[i].median);
}

void run(int argc, char** argv) {
  std::printf("%d threads, %s\n", num_threads(), name_of(active_isa()));
  if (argc == 6)
    return report(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                  std::atoll(argv[5]));
  report(12, 12, 640, 64, 1);
  report(9, 3, 640, 64, 1);
  report(9, 3, 640, 64, 8);
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) { tessera::kernels::run(argc, argv); }
