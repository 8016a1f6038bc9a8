// Captions as files store them, and their possible problems.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Returns one caption per line, trimmed, without empty lines. Throws an error that names `where` for bytes
// that are not UTF-8.
std::vector<std::string> captions_of_lines(std::string_view text, const std::string& where);

// Reads {"captions": ["…", …]} or {"caption": "…"}. Returns none if an object has neither. Errors name
// `where`.
std::vector<std::string> captions_of_json(const nlohmann::json& object, const std::string& where);

// True if texts are captions instead of names of classes: most differ, and they have three words on average.
bool are_captions(const std::vector<std::string>& texts);

// The maximum size of a caption, in bytes.
inline constexpr size_t kMostCaptionBytes = 1 << 16;

// Returns one line per problem, each with the sample's name: an empty caption, a duplicate, a caption cut off
// ("…" at its end), control characters.
std::vector<std::string> caption_problems(const RawSample& sample);

struct CaptionStatistics {
  int64_t images = 0, captions = 0, distinct = 0;
  double words = 0;    // mean per caption
  size_t longest = 0;  // bytes
};
// Computes them on at most `count` randomly drawn samples; images = 0 if the source has no captions.
CaptionStatistics caption_statistics(const Source& source, int64_t count);

}  // namespace tessera::data
