#include "open/open_extractor.h"

#include <algorithm>

#include "core/error.h"
#include "io/files/file.h"
#include "io/weights/weight_file.h"
#include "open/open_task.h"
#include "open/weights.h"

namespace tessera::train {
namespace {

const TensorView* find(const WeightFile& file, const std::string& name) {
  const auto& tensors = file.tensors();
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& view) { return view.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

OpenedExtractor open_extractor(const std::string& path, const ExtractorOptions& options) {
  OpenedExtractor opened;
  const std::string file_name = weights_file_of(path);
  {
    const WeightFile file(file_name);
    if (find(file, "Mixed_7c.branch_pool.conv.weight")) {
      const auto network = std::make_shared<models::InceptionFid>();
      models::load_inception(
          *network,
          [&](const std::string& name) {
            const TensorView* view = find(file, name);
            return view ? to_tensor(*view) : torch::Tensor();
          },
          "'" + file_name + "'");
      opened.inception = true;
      opened.extractor = tasks::make_inception_extractor(network, options.protocol,
                                                         checksum_of_weights(file_name), options.place);
      return opened;
    }
  }
  OpenedTask task = open_task(path, {.model = options.model});
  opened.notes = std::move(task.notes);
  opened.extractor = tasks::make_backbone_extractor(
      task.task->backbones().at(0).model, task.task->classifier(), task.info.preprocess, task.info.model.name,
      checksum_of_weights(task.file), options.place);
  return opened;
}

std::unique_ptr<tasks::FeatureExtractor> open_extractor_at(const std::string& path,
                                                           const tasks::ExtractorPlace& place) {
  return open_extractor(path, {.place = place}).extractor;
}

}  // namespace tessera::train
