#include "open/ready_task.h"

#include "open/device.h"

namespace tessera::train {

ReadyTask::ReadyTask(const std::string& path, const OpenOptions& how, const std::string& device,
                     const std::string& precision)
    : device_(choose_device(device)),
      precision_(tasks::parse_precision(precision)),
      opened_(open_task(path, how)) {
  tasks::move(opened_.task->parts(), device_, parameter_type(precision_));
}

torch::Tensor ReadyTask::moved(const torch::Tensor& images) const {
  return images.to(device_, parameter_type(precision_));
}

}  // namespace tessera::train
