#include "core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>

#include "core/control_characters.h"
#include "core/error.h"

namespace tessera {

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = line.find(separator, begin);
    parts.emplace_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

std::string_view trim(std::string_view line) {
  constexpr std::string_view blank = " \t\r\n";
  const size_t begin = line.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(blank) - begin + 1);
}

std::string lower(std::string_view line) {
  std::string out(line);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Counts insertions, deletions, substitutions, and swaps of neighbours.
static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> earlier(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    earlier.swap(above), above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], earlier[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kLongestWord = 100;  // limits the cost, which is the product of the lengths
  std::optional<std::string> best;
  constexpr size_t kShort = 4;  // up to this length a second edit gives an unrelated word
  size_t best_distance = (name.size() <= kShort ? 1 : std::max<size_t>(2, name.size() / 3)) + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size()),
                 shorter = std::min(name.size(), candidate.size());
    if (longer - shorter >= best_distance || longer > kLongestWord) continue;  // at least as many edits
    const size_t distance = edit_distance(lower(name), lower(candidate));
    const bool anything_left = distance < std::max(name.size(), candidate.size());
    if (distance < best_distance && anything_left) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto best = nearest(name, candidates);
  return best ? text(", did you mean '", *best, "'?") : "";
}

std::optional<int64_t> parse_int(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view digits) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string fixed(double value, int digits) {
  std::array<char, 64> buffer{};
  // The sign of a NaN depends on the processor.
  const int n = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, std::isnan(value) ? NAN : value);
  return std::string(buffer.data(), static_cast<size_t>(std::min<int>(n, buffer.size() - 1)));
}

static std::string scaled(double value, std::span<const char* const> units) {
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return text(fixed(value, digits), units[unit]);
}

std::string human_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> units = {" B", " kB", " MB", " GB", " TB"};
  return scaled(static_cast<double>(bytes), units);
}

std::string human_count(double count) {
  static constexpr std::array<const char*, 8> units = {"", " k", " M", " G", " T", " P", " E", " Z"};
  return scaled(count, units);
}

std::string human_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  std::array<char, 32> buffer{};
  if (total >= 3600)
    std::snprintf(buffer.data(), buffer.size(), "%ld:%02ld:%02ld", static_cast<long>(total / 3600),
                  static_cast<long>(total / 60 % 60), static_cast<long>(total % 60));
  else
    std::snprintf(buffer.data(), buffer.size(), "%02ld:%02ld", static_cast<long>(total / 60),
                  static_cast<long>(total % 60));
  return buffer.data();
}

std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string out(buffer.data(), end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = utf8_length(bytes, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::string printable(std::string_view name, size_t most) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    if (i >= most) return out + "...";
    const size_t length = utf8_length(name, i);
    const std::string_view character = name.substr(i, std::max<size_t>(length, 1));
    if (length == 0 || is_control(character))
      append_escaped(out, character);
    else
      out += character;
    i += character.size();
  }
  return out;
}

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kNoDigit = -1;

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}();

}  // namespace

std::string to_base64(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    uint32_t group = std::to_integer<uint32_t>(bytes[i]) << 16;
    if (left > 1) group |= std::to_integer<uint32_t>(bytes[i + 1]) << 8;
    if (left > 2) group |= std::to_integer<uint32_t>(bytes[i + 2]);
    out += kDigits[group >> 18];
    out += kDigits[group >> 12 & 63];
    out += left > 1 ? kDigits[group >> 6 & 63] : '=';
    out += left > 2 ? kDigits[group & 63] : '=';
  }
  return out;
}

std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::vector<std::byte> out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNoDigit) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<std::byte>(bits >> count));
  }
  return out;
}

}  // namespace tessera
