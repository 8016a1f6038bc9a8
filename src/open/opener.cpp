// Opens weights for tasks that begin with others, such as a teacher or a codec.
#include "io/weights/array_file.h"
#include "nn/linear.h"
#include "open/open_task.h"
#include "tasks/base/registry.h"

namespace tessera::train {
namespace {

class Opener final : public tasks::WeightsOpener {
 public:
  std::string file_of(const std::string& path) const override { return weights_file_of(path); }
  tasks::OpenedWeights open(const std::string& path, int64_t side) const override {
    const nn::OwnRowsScope whole(nullptr);
    OpenedTask opened = open_task(path, {.size = side});
    return {.task = std::move(opened.task),
            .name = tasks::task_name(opened.info.task),
            .preprocess = opened.info.preprocess,
            .metadata = opened.info.task_metadata,
            .file = opened.file,
            .checksum = checksum_of_weights(opened.file)};
  }
};

}  // namespace

std::shared_ptr<const tasks::WeightsOpener> weights_opener() { return std::make_shared<Opener>(); }

OpenedCodec open_codec(const std::string& path) {
  return open_codec(path, [](const std::string& other) { return weights_file_of(other); });
}

}  // namespace tessera::train
