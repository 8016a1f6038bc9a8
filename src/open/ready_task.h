// A trained task on its device, in the precision that it computes in.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "open/open_task.h"
#include "tasks/base/inputs.h"
#include "tasks/generate/feature_extractor.h"

namespace tessera {

// Returns the object as T, an ability that only some objects of its kind have; null if it lacks the ability.
// An ability is a class with virtual functions that such objects also derive from; its `kAbility`, if
// present, completes "… needs".
template <class T, class Object>
auto* ability_of(Object& object) {
  return dynamic_cast<std::conditional_t<std::is_const_v<Object>, const T, T>*>(&object);
}

}  // namespace tessera

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
  ReadyTask(OpenedTask opened, const std::string& device, const std::string& precision);

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

struct ExtractorOptions {
  models::FidProtocol protocol = models::FidProtocol::tf;  // of Inception-v3
  std::string model = {};                                  // size name, for files of other programs
  std::string key = {};                                    // PyTorch archives: the dictionary to read
  tasks::ExtractorPlace place = {};
};

struct OpenedExtractor {
  std::unique_ptr<tasks::FeatureExtractor> extractor;
  bool inception = false;
  std::vector<std::string> notes;  // for people
};

// Opens `path`: Inception-v3 of FID (pt_inception-2015-12-05, recognised by its tensors), or any file for
// open_task.
OpenedExtractor open_extractor(const std::string& path, const ExtractorOptions& options = {});

}  // namespace tessera::train
