// `tessera data info|check` of plain texts, which have no images.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "data/check.h"

namespace tessera::cli {

struct TextStatistics {
  int64_t documents = 0, bytes = 0, words = 0, distinct = 0;
  int64_t shortest = 0, longest = 0;  // words of a document
};
TextStatistics text_statistics(const data::Source& source);

void print_texts(const data::Source& source, const TextStatistics& statistics, const char* split);
nlohmann::ordered_json texts_info_json(const data::Source& source, const TextStatistics& statistics);

// Documents of both splits. Fails where one stands in the set twice or in both splits, after listing `show` findings.
void check_texts(const data::SourceConfig& config, int64_t show, bool as_json);

}  // namespace tessera::cli
