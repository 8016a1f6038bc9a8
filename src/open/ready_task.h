// A trained task on its device, in the precision that it computes in.
#pragma once

#include "ops/torch.h"

#include <string>

#include "core/ability.h"
#include "core/error.h"
#include "open/open_task.h"
#include "tasks/base/inputs.h"

namespace tessera::train {

// Returns the task as T. If it lacks the ability, throws a usage error with the file, its task and the need
// of `who` ("`tessera segment`", "--beams").
template <class T>
T& require(const OpenedTask& opened, const std::string& who) {
  if (T* able = ability_of<T>(*opened.task)) return *able;
  fail_usage("'", opened.file, "' was trained for task ", tasks::task_name(opened.info.task), "; ", who,
             " needs ", T::kAbility);
}

class ReadyTask {
 public:
  // `device` and `precision` as in options: "auto", "bf16".
  ReadyTask(const std::string& path, const OpenOptions& how, const std::string& device,
            const std::string& precision);

  tasks::Task& task() const { return *opened_.task; }
  const OpenedTask& opened() const { return opened_; }
  const WeightsInfo& info() const { return opened_.info; }
  const std::string& file() const { return opened_.file; }
  torch::Device device() const { return device_; }
  tasks::Precision precision() const { return precision_; }
  template <class T>
  T& require(const std::string& who) const {
    return train::require<T>(opened_, who);
  }

  // Returns images on the device, in the type of the parameters.
  torch::Tensor moved(const torch::Tensor& images) const;
  tasks::AutocastScope autocast() const { return {device_, precision_}; }

 private:
  torch::Device device_;
  tasks::Precision precision_;
  OpenedTask opened_;
};

}  // namespace tessera::train
