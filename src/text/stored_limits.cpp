#include "text/tokeniser.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "text/tokeniser_steps.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLongest = int64_t{1} << 22;  // limits the memory that a hostile file can claim

[[noreturn]] void refuse(const char* key, const Json& is, const char* must) {
  fail_usage("the tokeniser's ", key, " is ", printable(is.dump(), 40), ", must be ", must);
}

// Returns 0 for null.
int64_t length_of(const Json& settings, const char* key) {
  const Json& given = settings.contains(key) ? settings[key] : Json();
  if (given.is_null()) return 0;
  if (!given.is_number_integer() || given.get<double>() < 0 || given.get<double>() > kLongest)
    refuse(key, given, "0 to 4194304");
  return given.get<int64_t>();
}

bool is_left(const Json& settings) {
  const Json direction = settings.value("direction", Json("Right"));
  if (direction != "Left" && direction != "Right") refuse("direction", direction, "Left or Right");
  return direction == "Left";
}

// Returns the number of the template's tokens before the text.
size_t tokens_before(const Encoding& all, const Encoding& own) {
  for (size_t first = 0; first + own.ids.size() <= all.ids.size(); ++first) {
    const auto at = static_cast<std::ptrdiff_t>(first);
    if (std::equal(own.ids.begin(), own.ids.end(), all.ids.begin() + at) &&
        std::equal(own.offsets.begin(), own.offsets.end(), all.offsets.begin() + at))
      return first;
  }
  return 0;
}

void truncate(Encoding& all, const Encoding& own, const Json& settings) {
  if (settings.value("strategy", "") == "OnlySecond")
    refuse("truncation.strategy", settings["strategy"], "LongestFirst or OnlyFirst for a single text");
  const auto most = static_cast<size_t>(length_of(settings, "max_length"));
  const size_t others = all.ids.size() - own.ids.size(), room = most - std::min(most, others);
  if (own.ids.size() <= room) return;
  const size_t cut = own.ids.size() - room, first = tokens_before(all, own) + (is_left(settings) ? 0 : room);
  const auto from = static_cast<std::ptrdiff_t>(first), to = static_cast<std::ptrdiff_t>(first + cut);
  all.ids.erase(all.ids.begin() + from, all.ids.begin() + to);
  all.offsets.erase(all.offsets.begin() + from, all.offsets.begin() + to);
}

void pad(Encoding& all, const Json& settings) {
  const Json strategy = settings.value("strategy", Json("BatchLongest"));
  auto length = std::ssize(all.ids);
  if (strategy.is_object() && strategy.contains("Fixed"))
    length = std::max(length, length_of(strategy, "Fixed"));
  else if (strategy != "BatchLongest")
    refuse("padding.strategy", strategy, R"("BatchLongest" or {"Fixed": length})");
  if (const int64_t multiple = length_of(settings, "pad_to_multiple_of"); multiple > 0)
    length = (length + multiple - 1) / multiple * multiple;
  const auto more = static_cast<size_t>(length - std::ssize(all.ids));
  const auto id = static_cast<int32_t>(length_of(settings, "pad_id"));
  const bool left = is_left(settings);
  all.ids.insert(left ? all.ids.begin() : all.ids.end(), more, id);
  all.offsets.insert(left ? all.offsets.begin() : all.offsets.end(), more, TokenSpan{});
}

}  // namespace

Encoding encode_as_stored(const Tokeniser& tokeniser, std::string_view text, bool special) {
  const Json tree = Json::parse(tokeniser.definition());
  const auto part = [&](const char* key) { return tree.value(key, Json()); };
  Encoding all = tokeniser.encode_with_offsets(text, special);
  try {
    if (const Json settings = part("truncation"); settings.is_object())
      truncate(all, special ? tokeniser.encode_with_offsets(text, false) : all, settings);
    if (const Json settings = part("padding"); settings.is_object()) pad(all, settings);
  } catch (const Json::exception&) {
    fail_usage("the tokeniser's truncation or padding has a value of another type");
  }
  return all;
}

namespace tokens {
namespace {

int64_t steps_in(const Json& part) {
  int64_t steps = part.is_object() ? 1 : 0;
  if (part.is_object())
    for (const Json& value : part)
      if (value.is_array())
        for (const Json& inner : value) steps += steps_in(inner);
  return steps;
}

}  // namespace

void check_steps(const Json& tree, const std::string& where) {
  constexpr int64_t kMostSteps = 256;
  constexpr size_t kLongestAdded = 1024;
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"})
    if (const int64_t steps = tree.contains(key) ? steps_in(tree[key]) : 0; steps > kMostSteps)
      fail(where, ": its ", key, " has ", steps, " steps, must have at most ", kMostSteps);
  const Json added = tree.value("added_tokens", Json::array());
  for (const Json& entry : added)
    if (const std::string content = entry.value("content", ""); content.size() > kLongestAdded)
      fail(where, ": the added token '", printable(content, 20), "' has more than ", kLongestAdded, " bytes");
}

}  // namespace tokens

}  // namespace tessera
