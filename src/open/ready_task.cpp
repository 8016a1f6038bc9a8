#include "open/ready_task.h"

#include "io/weights/weight_file.h"
#include "open/device.h"
#include "open/open_task.h"

namespace tessera::train {

ReadyTask::ReadyTask(const std::string& path, const OpenOptions& how, const std::string& device,
                     const std::string& precision)
    : device_(choose_device(device)),
      precision_(tasks::parse_precision(precision)),
      opened_(open_task(path, how)) {
  tasks::move(opened_.task->parts(), device_, parameter_type(precision_));
}

ReadyTask::ReadyTask(OpenedTask opened, const std::string& device, const std::string& precision)
    : device_(choose_device(device)),
      precision_(tasks::parse_precision(precision)),
      opened_(std::move(opened)) {
  tasks::move(opened_.task->parts(), device_, parameter_type(precision_));
}

torch::Tensor ReadyTask::moved(const torch::Tensor& images) const {
  return images.to(device_, parameter_type(precision_));
}

OpenedExtractor open_extractor(const std::string& path, const ExtractorOptions& options) {
  OpenedExtractor opened;
  opened.extractor =
      tasks::open_inception(weights_file_of(path), options.protocol, options.place, options.key);
  opened.inception = opened.extractor != nullptr;
  if (opened.inception) return opened;
  OpenedTask task = open_task(path, {.model = options.model, .key = options.key});
  opened.notes = std::move(task.notes);
  opened.extractor = tasks::make_backbone_extractor(
      task.task->backbones().at(0).model, task.task->classifier(), task.info.preprocess, task.info.model.name,
      checksum_of_weights(task.file), options.place);
  return opened;
}

}  // namespace tessera::train
