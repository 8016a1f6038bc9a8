// Small text functions: splitting, "did you mean", and readable quantities.
#pragma once

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
std::string fixed(double value, int digits);  // 0.1234 with that many digits after the point

// Returns the shortest decimal form that reads back as the same double ("0.1", "1e-06"); integers keep a
// ".0".
std::string shortest(double value);

// Returns an external name for an error line: control characters and broken UTF-8 as \xNN, cut at `most`
// bytes with "...".
std::string printable(std::string_view name, size_t most = 200);

// True if the bytes are well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view bytes);

}  // namespace tessera
