// `tessera data check --weights`: texts that are longer than a model reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/tools/check.h"
#include "open/open_task.h"
#include "report/grid.h"
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

// `tessera data preview --matches RECIPE`: images as a detector is trained on them, with the anchors that belong to each object.

// Returns `count` images of the training set with the recipe's augmentation, at least `side` pixels wide:
// every object as a thick box, its assigned anchors as thin ones of its colour. Throws a usage error if the
// recipe's task has no anchors.
std::vector<report::Cell> matched_cells(const std::string& recipe_file, const data::SourceConfig& source,
                                        int64_t count, int64_t seed, int side);

}  // namespace tessera::cli
