#include "tasks/base/validation_pass.h"

namespace tessera::tasks {

void each_batch(const EvaluateOptions& options, data::Loader& loader,
                const std::function<void(data::Batch& batch, int64_t before)>& see, std::string_view what) {
  int64_t whole = 0, done = 0;  // samples of all processes, and of this one
  while (auto batch = loader.next()) {
    const int64_t before = whole;
    whole += batch->whole;
    if (batch->size == 0) continue;  // the last batch has fewer samples than processes
    see(*batch, before);
    done += batch->size;
    if (options.progress && !options.progress(done))
      throw Error(ErrorKind::interrupted, text("interrupted after ", done, " evaluated ", what));
  }
}

}  // namespace tessera::tasks
