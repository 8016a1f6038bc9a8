// Small text functions: splitting, "did you mean", readable quantities and lists, base64.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::vector<std::string> split(std::string_view line, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string_view trim(std::string_view line);
std::string lower(std::string_view line);

// Returns the candidate with the smallest edit distance, if it is close enough for a typo.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

// Returns ", did you mean 'x'?" or "", as the end of an error line.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// Convert a whole string; return nothing if characters remain or the value does not fit.
std::optional<int64_t> parse_int(std::string_view digits);
std::optional<double> parse_double(std::string_view digits);

std::string human_bytes(uint64_t bytes);      // 1.3 GB (powers of 1000)
std::string human_count(double count);        // 22.1 M
std::string human_duration(double seconds);   // 1:02:03 or 02:03
std::string fixed(double value, int digits);  // Returns 0.1234 with that many digits after the point.

// Returns the shortest decimal form that reads back as the same double ("0.1", "1e-06"); integers keep a
// ".0".
std::string shortest(double value);

// Returns an external name for an error line: control characters and broken UTF-8 as \xNN, cut at `most`
// bytes with "...".
std::string printable(std::string_view name, size_t most = 200);

// True if the bytes are well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view bytes);

// Returns a number with its noun: "1 image", "3 images". `plural` is for nouns that do not just add an s:
// counted(n, "class", "classes").
inline std::string counted(int64_t count, std::string_view noun, std::string_view plural = {}) {
  std::string out = std::to_string(count) + " ";
  if (count == 1) return out.append(noun);
  return plural.empty() ? out.append(noun) + "s" : out.append(plural);
}

// Returns "a, b, c, d and 8 more" for an error line: at most `most` names, each made printable and cut at
// `bytes`.
inline std::string some_of(std::span<const std::string> names, size_t most = 4, size_t bytes = 200) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    out += (i > 0 ? ", " : "") + printable(names[i], bytes);
  return names.size() > most ? out + " and " + std::to_string(names.size() - most) + " more" : out;
}

// Base64 (RFC 4648, section 4): images in pages and records, character maps of tokenisers.

std::string to_base64(std::span<const std::byte> bytes);
// Returns nothing if a character is not a base64 digit or if final digits are missing. Padding is optional.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace tessera
