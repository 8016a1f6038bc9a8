#include "open/open_extractor.h"

#include "io/weights/weight_file.h"
#include "open/open_task.h"

namespace tessera::train {

OpenedExtractor open_extractor(const std::string& path, const ExtractorOptions& options) {
  OpenedExtractor opened;
  opened.extractor = tasks::open_inception(weights_file_of(path), options.protocol, options.place);
  opened.inception = opened.extractor != nullptr;
  if (opened.inception) return opened;
  OpenedTask task = open_task(path, {.model = options.model});
  opened.notes = std::move(task.notes);
  opened.extractor = tasks::make_backbone_extractor(
      task.task->backbones().at(0).model, task.task->classifier(), task.info.preprocess, task.info.model.name,
      checksum_of_weights(task.file), options.place);
  return opened;
}

}  // namespace tessera::train
