#include "weights/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "text/unicode.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;  // ordered: the first pattern that matches counts
using tokens::Pattern;

constexpr int64_t kLargestRank = 4096;

// Returns the value of a key, or null if it is absent.
const Json* value_of(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null() ? &*found : nullptr;
}

std::string word_in(const Json& config, const char* key, const std::string& otherwise) {
  const Json* value = value_of(config, key);
  return value && value->is_string() ? value->get<std::string>() : otherwise;
}

bool flag_in(const Json& config, const char* key) {
  const Json* value = value_of(config, key);
  return value && *value == true;
}

bool says_nothing(const Json& value) {
  return value == false || ((value.is_array() || value.is_object()) && value.empty());
}

// Throws a usage error for settings that change the result or need more than two tensors per layer.
// `fan_in_fan_out` is ignored, as in PEFT: the storage order follows from the model.
void refuse_what_is_not_understood(const Json& config, const std::string& path) {
  if (const std::string kind = word_in(config, "peft_type", "LORA"); kind != "LORA")
    fail_usage(path, ": peft_type is '", printable(kind), "', must be LORA");
  if (const std::string bias = word_in(config, "bias", "none");
      bias != "none" && bias != "all" && bias != "lora_only")
    fail_usage(path, ": bias is '", printable(bias), "', must be none, all or lora_only");
  for (const char* key : {"layer_replication", "layers_pattern", "lora_bias", "target_parameters",
                          "trainable_token_indices", "use_qalora", "use_bdlora", "alora_invocation_tokens"})
    if (const Json* value = value_of(config, key); value && !says_nothing(*value))
      fail_usage(path, ": ", key, " is not understood");
}

int64_t rank_of(const Json& value, const std::string& path, const std::string& key) {
  if (!value.is_number_integer() || value < 1 || value > kLargestRank)
    fail(path, ": ", printable(key), " must be a whole number from 1 to ", kLargestRank);
  return value.get<int64_t>();
}

double alpha_of(const Json& value, const std::string& path, const std::string& key) {
  check(value.is_number() && std::isfinite(value.get<double>()), path, ": ", printable(key),
        " must be a number");
  return value.get<double>();
}

std::vector<std::string> names_in(const Json& value, const std::string& path, const char* key) {
  std::vector<std::string> names;
  if (value.is_array())
    for (const Json& name : value)
      if (name.is_string()) names.push_back(name.get<std::string>());
  check(!names.empty() && names.size() == value.size(), path, ": ", key, " must be a list of names");
  return names;
}

bool matches(const Pattern& pattern, const std::string& name) {
  const std::optional<tokens::Match> match = pattern.find(tokens::to_code_points_lossy(name), 0);
  return match && match->start == 0;
}

// Compiles an expression that must match a whole name or, with end_of_name, the end of a name after a dot.
Pattern whole_name(const std::string& expression, const std::string& where) {
  return Pattern("^(?:" + expression + ")$", where);
}
Pattern end_of_name(const std::string& expression, const std::string& where) {
  return Pattern("^(?:.*\\.)?(?:" + expression + ")$", where);
}

// Reads a table that maps expressions to numbers; `read` checks each number.
template <class Number, class Read>
std::vector<std::pair<Pattern, Number>> read_patterns(const Json& config, const std::string& path,
                                                      const char* key, const Read& read) {
  std::vector<std::pair<Pattern, Number>> patterns;
  const Json* table = value_of(config, key);
  if (!table) return patterns;
  check(table->is_object(), path, ": ", key, " must be a table of names and numbers");
  for (const auto& [expression, number] : table->items()) {
    const std::string where = text(key, ".", expression);
    patterns.emplace_back(end_of_name(expression, text(path, ": ", printable(where))),
                          read(number, path, where));
  }
  return patterns;
}

// Returns a layer's block number, the first numeric part of its name, or -1.
int64_t block_of(const std::string& name) {
  for (const std::string& part : split(name, '.'))
    if (!part.empty() && part.size() < 9 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return std::stoll(part);
  return -1;
}

}  // namespace

bool stands_in(const std::string& tensor, const std::string& end) {
  for (size_t dot = tensor.find('.'); dot != std::string::npos; dot = tensor.find('.', dot + 1))
    if (std::string_view(tensor).substr(0, dot).ends_with(end)) return true;
  return false;
}

AdapterConfig::AdapterConfig(const Json& config, const std::string& path) {
  check(config.is_object(), path, " is no object");
  refuse_what_is_not_understood(config, path);
  const Json *rank = value_of(config, "r"), *alpha = value_of(config, "lora_alpha");
  change_.rank = rank_of(rank ? *rank : Json(), path, "r");
  change_.alpha = alpha_of(alpha ? *alpha : Json(), path, "lora_alpha");
  change_.by_root = flag_in(config, "use_rslora");
  change_.with_magnitude = flag_in(config, "use_dora");
  const std::string biases = word_in(config, "bias", "none");
  biases_ = biases == "all" ? Biases::all : biases == "lora_only" ? Biases::adapted : Biases::none;
  if (const Json* saved = value_of(config, "modules_to_save"); saved && !says_nothing(*saved))
    saved_ = names_in(*saved, path, "modules_to_save");

  const Json* targets = value_of(config, "target_modules");
  check(targets, path, ": target_modules must be a list of names");
  if (!targets->is_string())
    chosen_.ends = targets_ = names_in(*targets, path, "target_modules");
  else if (*targets == "all-linear")
    all_layers_ = true;
  else
    chosen_.whole = whole_name(targets->get<std::string>(), path + ": target_modules");
  if (const Json* excluded = value_of(config, "exclude_modules"); excluded && !says_nothing(*excluded)) {
    if (excluded->is_string())
      excluded_.whole = whole_name(excluded->get<std::string>(), path + ": exclude_modules");
    else
      excluded_.ends = names_in(*excluded, path, "exclude_modules");
  }
  if (const Json* blocks = value_of(config, "layers_to_transform")) {
    const Json list = blocks->is_array() ? *blocks : Json::array({*blocks});
    for (const Json& block : list) {
      check(block.is_number_integer() && block >= 0, path, ": layers_to_transform must be numbers of blocks");
      blocks_.push_back(block.get<int64_t>());
    }
  }
  ranks_ = read_patterns<int64_t>(config, path, "rank_pattern", rank_of);
  alphas_ = read_patterns<double>(config, path, "alpha_pattern", alpha_of);
}

bool AdapterConfig::Names::hold(const std::string& name) const {
  if (whole && matches(*whole, name)) return true;
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return models::ends_with_name(name, end); });
}

std::optional<models::LowRank> AdapterConfig::layer(const std::string& name) const {
  if (!(all_layers_ || chosen_.hold(name)) || excluded_.hold(name)) return std::nullopt;
  if (!blocks_.empty() && std::find(blocks_.begin(), blocks_.end(), block_of(name)) == blocks_.end())
    return std::nullopt;
  models::LowRank change = change_;
  const auto fits = [&](const auto& entry) { return matches(entry.first, name); };
  if (const auto own = std::find_if(ranks_.begin(), ranks_.end(), fits); own != ranks_.end())
    change.rank = own->second;
  if (const auto own = std::find_if(alphas_.begin(), alphas_.end(), fits); own != alphas_.end())
    change.alpha = own->second;
  return change;
}

bool AdapterConfig::replaces(const std::string& tensor) const {
  const size_t last = tensor.rfind('.');
  if (last == std::string::npos) return false;
  if (tensor.substr(last) == ".bias" &&
      (biases_ == Biases::all || (biases_ == Biases::adapted && layer(tensor.substr(0, last)))))
    return true;
  return std::any_of(saved_.begin(), saved_.end(),
                     [&](const std::string& end) { return stands_in(tensor, end); });
}

AdapterConfig read_adapter_config(const std::string& path) {
  return AdapterConfig(parse_json<Json>(read_text(path), path), path);
}

}  // namespace tessera::train
