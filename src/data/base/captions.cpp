#include "data/base/captions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/info.h"

namespace tessera::data {
namespace {

std::string checked(std::string_view caption, const std::string& where) {
  if (!is_utf8(caption)) fail(where, ": a caption is no UTF-8 text");
  if (caption.size() > kMostCaptionBytes)
    fail(where, ": a caption has ", caption.size(), " bytes, at most ", kMostCaptionBytes, " are read");
  return std::string(trim(caption));
}

}  // namespace

std::vector<std::string> captions_of_lines(std::string_view text, const std::string& where) {
  std::vector<std::string> captions;
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // the byte order mark of UTF-8
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::string caption = checked(text.substr(0, end), where); !caption.empty())
      captions.push_back(std::move(caption));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return captions;
}

std::vector<std::string> captions_of_json(const nlohmann::json& object, const std::string& where) {
  std::vector<std::string> captions;
  if (!object.is_object()) return captions;
  for (const char* key : {"caption", "captions"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;  // img2dataset writes null where a page has none
    if (!found->is_string() && !found->is_array())
      fail(where, ": '", key, "' is ", found->type_name(), ", must be text or an array of texts");
    for (const auto& caption : found->is_array() ? *found : nlohmann::json::array({*found})) {
      if (!caption.is_string())
        fail(where, ": '", key, "' holds ", caption.type_name(), ", must be an array of texts");
      captions.push_back(checked(caption.get_ref<const std::string&>(), where));
    }
  }
  return captions;
}

bool are_captions(const std::vector<std::string>& texts) {
  const std::set<std::string_view> distinct(texts.begin(), texts.end());
  int64_t words = 0;
  for (const std::string& one : texts) words += 1 + std::ranges::count(trim(one), ' ');
  return 2 * distinct.size() > texts.size() && words >= 3 * std::ssize(texts);
}

std::vector<std::string> caption_problems(const RawSample& sample) {
  std::vector<std::string> lines;
  const std::vector<std::string>& captions = sample.annotation.captions;
  std::set<std::string> seen;
  for (const std::string& caption : captions) {
    const std::string shown = printable(caption, 60);
    if (trim(caption).empty())
      lines.push_back(text(sample.name, ": has an empty caption"));
    else if (!seen.insert(caption).second)
      lines.push_back(text(sample.name, ": has the caption '", shown, "' twice"));
    else if (caption.ends_with("\u2026") || (caption.ends_with("...") && caption.size() > 60))
      lines.push_back(text(sample.name, ": the caption '", shown, "' was cut"));
    else if (std::any_of(caption.begin(), caption.end(),
                         [](char c) { return (c >= 0 && c < ' ') || c == 127; }))
      lines.push_back(text(sample.name, ": the caption '", shown, "' holds control characters"));
  }
  return lines;
}

CaptionStatistics caption_statistics(const Source& source, int64_t count) {
  CaptionStatistics out;
  std::set<std::string> distinct;
  int64_t words = 0;
  for (const int64_t index : draw_indices(source, count, 0)) try {
      const std::vector<std::string> captions = source.read(index).annotation.captions;
      out.images += !captions.empty();
      for (const std::string& caption : captions) {
        ++out.captions;
        distinct.insert(caption);
        out.longest = std::max(out.longest, caption.size());
        bool inside = false;
        for (const char c : caption) {
          words += c != ' ' && !inside;
          inside = c != ' ';
        }
      }
    } catch (const Error&) {
      continue;  // reported by `data check`
    }
  out.distinct = std::ssize(distinct);
  if (out.captions > 0) out.words = static_cast<double>(words) / static_cast<double>(out.captions);
  return out;
}

}  // namespace tessera::data
