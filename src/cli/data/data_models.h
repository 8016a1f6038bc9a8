// `tessera data check --weights`: finds texts that exceed the context length of a model.
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

// Weights of a model that reads the texts of a set.
class TextReader {
 public:
  // Throws a usage error if their task reads no captions or conversations.
  explicit TextReader(const std::string& weights);
  // Adds the texts longer than the context to the findings about captions.
  void add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const;

 private:
  train::OpenedTask opened_;
  const tasks::TextLimit& limit_;
};

// `tessera data preview --matches RECIPE`: images as a detector is trained on them, with the anchors that belong to each object.

// Returns `count` images of the training set with the recipe's augmentation, at least `side` pixels wide:
// each object is a thick box, its assigned anchors are thin boxes of its colour. Throws a usage error if the
// recipe's task has no anchors.
std::vector<report::Cell> matched_cells(const std::string& recipe_file, const data::SourceConfig& source,
                                        int64_t count, int64_t seed, int side);

}  // namespace tessera::cli
