// nms_bench: 5,000 boxes at two thresholds, and of 80 classes.
#include "core/random.h"
#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/isa.h"
#include "kernels/nms/nms.h"

int main() {
  using namespace tessera;
  using namespace tessera::kernels;
  constexpr int64_t kCount = 5000;
  RandomStream stream(0, "nms bench");
  std::vector<float> boxes, scores;
  std::vector<int64_t> classes, keep(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const double x = stream.uniform(0, 800), y = stream.uniform(0, 800);
    for (const double value : {x, y, x + stream.uniform(4, 200), y + stream.uniform(4, 200)})
      boxes.push_back(static_cast<float>(value));
    scores.push_back(static_cast<float>(stream.uniform()));
    classes.push_back(stream.integer(0, 79));
  }
  const auto run = [&](const int64_t* of, double threshold) {
    nms(boxes.data(), scores.data(), of, kCount, threshold, keep.data());
  };
  const auto times = bench::measure({{"0.7", [&] { run(nullptr, 0.7); }},
                                     {"0.5", [&] { run(nullptr, 0.5); }},
                                     {"80 classes", [&] { run(classes.data(), 0.5); }}},
                                    1);
  std::printf("%d threads, %s: at 0.7 %.2f ms, at 0.5 %.2f ms, 80 classes at 0.5 %.2f ms\n", num_threads(),
              name_of(active_isa()), times[0].median * 1e3, times[1].median * 1e3, times[2].median * 1e3);
}
