// Captions as files hold them, and what may be wrong with them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// A caption a line, trimmed; empty lines are none. Bytes that are no UTF-8 are an error that names `where`.
std::vector<std::string> captions_of_lines(std::string_view text, const std::string& where);

// {"captions": ["…", …]} or {"caption": "…"}; none where an object has neither. Errors name `where`.
std::vector<std::string> captions_of_json(const nlohmann::json& object, const std::string& where);

// The longest caption that is read, in bytes.
inline constexpr size_t kMostCaptionBytes = 1 << 16;

// What a person should look at in the captions of a sample, a line each, with the sample's name: none, an empty one, one
// twice, one that was cut in the middle of a word ("…" or an open quote at its end tells), control characters.
std::vector<std::string> caption_problems(const RawSample& sample);

struct CaptionStatistics {
  int64_t images = 0, captions = 0, distinct = 0;
  double words = 0;    // mean of a caption
  size_t longest = 0;  // bytes
};
// Of at most `count` samples that are drawn; images = 0 where the source has no captions.
CaptionStatistics caption_statistics(const Source& source, int64_t count);

}  // namespace tessera::data
