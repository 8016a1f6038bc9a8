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

// Documents of both splits. Fails where one cannot be read, stands in the set twice or in both splits, after listing
// `show` findings.
void check_texts(const data::SourceConfig& config, int64_t show, bool as_json);

}  // namespace tessera::cli
