#include "tasks/pretrain/patch_orders.h"

#include <algorithm>

namespace tessera::tasks {

void add_orders(data::Batch& batch, int64_t patches,
                const std::function<RandomStream(int64_t sample)>& stream_of) {
  const auto orders = batch.add({"order", DType::i64, {patches}}).values<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto order = stream_of(i).permutation(patches);
    std::copy(order.begin(), order.end(), orders.begin() + i * patches);
  }
}

void draw_orders(data::Batch& batch, int64_t patches, const char* purpose, const StepKey& key) {
  add_orders(batch, patches, [&](int64_t sample) {
    return RandomStream(key.seed, purpose, static_cast<uint64_t>(key.step),
                        static_cast<uint64_t>(batch.first + sample));
  });
}

}  // namespace tessera::tasks
