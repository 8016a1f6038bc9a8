// `tessera data info|check` of plain texts, which have no images.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tools/check.h"
#include "open/open_task.h"
#include "tasks/base/text_limit.h"

namespace tessera::cli {

struct TextStatistics {
  int64_t documents = 0, bytes = 0, words = 0, distinct = 0;
  int64_t shortest = 0, longest = 0;  // words of a document
};
TextStatistics text_statistics(const data::Source& source);

void print_texts(const data::Source& source, const TextStatistics& statistics, const char* split);
nlohmann::ordered_json texts_info_json(const data::Source& source, const TextStatistics& statistics);

// Weights with a model that reads the texts of a set.
class TextReader {
 public:
  // Throws a usage error if their task reads no texts of images.
  explicit TextReader(const std::string& weights);
  // Adds the texts longer than the context to the findings about captions.
  void add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const;

 private:
  train::OpenedTask opened_;
  const tasks::TextLimit* limit_;
};

// Checks the documents of both splits. Fails after listing `show` findings if one cannot be read, or is in
// the set twice or in both splits.
void check_texts(const data::SourceConfig& config, int64_t show, bool as_json);

}  // namespace tessera::cli
