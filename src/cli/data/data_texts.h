// `tessera data check --weights`: texts that are longer than a model reads.
#pragma once

#include <string>

#include "data/tools/check.h"
#include "open/open_task.h"
#include "tasks/base/text_limit.h"

namespace tessera::cli {

// Weights whose model reads the texts of a set.
class TextReader {
 public:
  // A usage error where their task reads no texts of images.
  explicit TextReader(const std::string& weights);
  // Adds the texts that are longer than the model reads to what is found of captions.
  void add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const;

 private:
  train::OpenedTask opened_;
  const tasks::TextLimit& limit_;
};

}  // namespace tessera::cli
