// `tessera data check --weights`: texts that are longer than a model reads.
#pragma once

#include <string>

#include "data/tools/check.h"
#include "open/open_task.h"
#include "tasks/base/text_limit.h"

namespace tessera::cli {

// Weights with a model that reads the texts of a set.
class TextReader {
 public:
  // Throws a usage error if their task reads no texts of images.
  explicit TextReader(const std::string& weights);
  // Adds the texts longer than the context to the findings about captions.
  void add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const;

 private:
  train::OpenedTask opened_;
  const tasks::TextLimit& limit_;
};

}  // namespace tessera::cli
