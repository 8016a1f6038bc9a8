#include "text/tokeniser.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/published_config.h"
#include "core/text.h"
#include "io/files/json.h"

namespace tessera {
namespace {

using nlohmann::json;

struct TokenizerConfig {
  std::string tokenizer_class;
  bool do_lower_case = true;
  Value pad_token;

  template <class V>
  void visit(V& v) {
    v("tokenizer_class", tokenizer_class, "SiglipTokenizer cleans texts");
    v("do_lower_case", do_lower_case, "of that class");
    v("pad_token", pad_token, "a token, or {content}");
  }
};

json replace(const json& pattern, const char* by) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", by}};
}

json steps_of(const TextPreparation& preparation) {
  json steps = json::array();
  if (preparation.remove_underscores) steps.push_back(replace({{"String", "_"}}, " "));
  if (preparation.remove_punctuation) steps.push_back(replace({{"Regex", R"([!-/:-@\[-`{-~])"}}, ""));
  if (preparation.lower) steps.push_back({{"type", "Lowercase"}});
  if (steps.empty()) return steps;
  steps.push_back(replace({{"Regex", R"(\s+)"}}, " "));
  steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  return steps;
}

}  // namespace

TextPreparation preparation_of(const Value& tokenizer_config) {
  std::vector<std::string> unread;  // repeats the tokeniser's own file
  const auto config = read_published<TokenizerConfig>(tokenizer_config, "tokenizer_config.json", unread);
  TextPreparation out;
  if (config.tokenizer_class.starts_with("Siglip"))
    out.remove_punctuation = out.ends = true, out.lower = config.do_lower_case;
  const Value* content = config.pad_token.is_table() ? config.pad_token.find("content") : &config.pad_token;
  if (content && content->is_string()) out.pad = content->as_string();
  return out;
}

Tokeniser prepared(const Tokeniser& tokeniser, const TextPreparation& preparation) {
  json tree = json::parse(tokeniser.definition());
  if (json steps = steps_of(preparation); !steps.empty()) {
    if (tree.contains("normalizer") && !tree["normalizer"].is_null()) steps.push_back(tree["normalizer"]);
    tree["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  }
  if (const int32_t end = tokeniser.special().end; preparation.ends && end >= 0) {
    const std::string& name = tokeniser.token(end);
    tree["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", json{{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                                              {{"SpecialToken", {{"id", name}, {"type_id", 0}}}}}},
                              {"special_tokens", {{name, {{"ids", json::array({end})}}}}}};
  }
  if (!preparation.pad.empty()) {
    if (!tokeniser.find(preparation.pad))
      fail("tokenizer_config.json: pad_token '", printable(preparation.pad),
           "' is no token of the tokeniser");
    tree["pad_token"] = preparation.pad;
  }
  return Tokeniser::from_definition(tree.dump(), "the prepared tokeniser");
}

}  // namespace tessera
