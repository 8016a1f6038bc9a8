// Opens a feature extractor from a weights file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/generate/feature_extractor.h"

namespace tessera::train {

struct ExtractorOptions {
  models::FidProtocol protocol = models::FidProtocol::tf;  // of Inception-v3
  std::string model = {};                                  // size name, for files of other programs
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
