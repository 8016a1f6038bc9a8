#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "tests/parity/case.h"
#include "text/tokeniser.h"
#include "text/tokeniser_steps.h"
#include "text/unicode.h"

namespace tessera::parity::tokeniser_cases {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// CLIP's own merges, a file of the project.
Tokeniser clip_tokeniser() {
  return Tokeniser::load(TESSERA_TEST_DATA "/clip_bpe/bpe_simple_vocab_16e6.txt.gz");
}

std::string id_text(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += text(out.empty() ? "" : " ", id);
  return printable(out, 120);
}

void compare_ids(Comparison& comparison, const std::string& what, const std::vector<int32_t>& got,
                 const Json& want) {
  const auto wanted = want.get<std::vector<int32_t>>();
  comparison.holds(what, got == wanted, "ids " + id_text(got) + ", must be " + id_text(wanted));
}

void compare_text(Comparison& comparison, const std::string& what, const std::string& got, const Json& want) {
  const auto wanted = want.get<std::string>();
  comparison.holds(what, got == wanted,
                   "decodes to '" + printable(got, 80) + "', must be '" + printable(wanted, 80) + "'");
}

void compare_stream(Comparison& comparison, const std::string& what, const Tokeniser& tokeniser,
                    const std::vector<int32_t>& ids) {
  StreamDecoder stream(tokeniser);
  std::string pieces;
  bool whole = true;
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id);
    whole = whole && is_utf8(piece);
    pieces += piece;
  }
  pieces += stream.finish();
  comparison.holds(what + " in a stream", whole, "a piece ends within a character");
  compare_text(comparison, what + " in a stream", pieces, tokeniser.decode(ids));
}

void check_case(Comparison& comparison, const std::string& file, const Tokeniser& tokeniser,
                const Json& item) {
  const std::string given = item.at("text").get<std::string>();
  const std::string what = file + " '" + printable(given, 40) + "'";
  const auto ids = tokeniser.encode(given);
  compare_ids(comparison, what, ids, item.at("ids"));
  compare_text(comparison, what, tokeniser.decode(ids), item.at("decoded"));
  if (item.contains("decoded_with_special"))
    compare_text(comparison, what + " with special tokens", tokeniser.decode(ids, false),
                 item["decoded_with_special"]);
  const Encoding plain = tokeniser.encode_with_offsets(given, false);
  if (item.contains("ids_plain")) compare_ids(comparison, what + " plain", plain.ids, item["ids_plain"]);
  if (item.contains("offsets")) {
    const Json& wanted = item["offsets"];
    bool equal = wanted.size() == plain.offsets.size();
    std::string got;
    for (size_t i = 0; i < plain.offsets.size(); ++i) {
      const TokenSpan& span = plain.offsets[i];
      equal = equal && wanted[i][0] == span.start && wanted[i][1] == span.end;
      got += text("[", span.start, ",", span.end, "]");
    }
    comparison.holds(what + " offsets", equal, got + ", must be " + printable(wanted.dump(), 200));
  }
  compare_stream(comparison, what, tokeniser, ids);
}

CaseResult check_tokeniser(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  for (const Json& name : config.at("files")) {
    const std::string file = name.get<std::string>();
    const std::string base = fs::path(file).filename().string();
    const Tokeniser loaded =
        Tokeniser::load((fs::path(golden.directory) / ".." / "components" / file).string());
    // What travels in a weights file must be the same tokeniser.
    const Tokeniser tokeniser = Tokeniser::from_definition(loaded.definition(), base);
    if (config.contains("vocab_size"))
      comparison.holds(base, tokeniser.size() == config["vocab_size"],
                       text("has ", tokeniser.size(), " tokens, must have ", config["vocab_size"].dump()));
    for (const Json& item : golden.meta.at("cases")) {
      if (!fs::path(file).string().ends_with(".model")) {
        check_case(comparison, base, tokeniser, item);
        continue;
      }
      const std::string given = item.at("text").get<std::string>();
      const std::string what = base + " '" + printable(given, 40) + "'";
      const auto ids = tokeniser.encode(given, false);
      compare_ids(comparison, what, ids, item.at("sp_ids"));
      compare_text(comparison, what, tokeniser.decode(ids), item.at("sp_decoded"));
      compare_stream(comparison, what, tokeniser, ids);
    }
  }
  return comparison.result();
}

CaseResult check_clip_captions(const Golden& golden) {
  const Tokeniser tokeniser = clip_tokeniser();
  Comparison comparison;
  const Json& items = golden.config().at("items");
  for (const Json& item : items) {
    const std::string given = item.at("text").get<std::string>();
    const std::string what = "'" + printable(given, 40) + "'";
    const std::string cleaned = item.at("cleaned").get<std::string>();
    const auto ids = tokeniser.encode(cleaned, false);
    compare_ids(comparison, what, ids, item.at("ids"));
    compare_ids(comparison, what + " as given", tokeniser.encode(given, false), item.at("ids"));
    compare_text(comparison, what, tokeniser.decode(ids, false), item.at("decoded"));
  }
  for (const std::string& name : golden.names("output.tokens")) {
    // "77_truncated", "16_truncated_first8"
    const torch::Tensor want = golden.tensor("output.tokens" + name, torch::kInt64);
    std::vector<int64_t> got;
    for (int64_t row = 0; row < want.size(0); ++row) {
      const auto fitted =
          tokeniser.fit(items.at(static_cast<size_t>(row)).at("cleaned").get<std::string>(), want.size(1), 0);
      got.insert(got.end(), fitted.ids.begin(), fitted.ids.end());
      if (want.size(1) == 77) {
        const Json& long_ones = golden.config().at("too_long_for_77");
        const bool is_long = std::find(long_ones.begin(), long_ones.end(), row) != long_ones.end();
        comparison.holds(text("text ", row), (fitted.cut > 0) == is_long, "the wrong texts were cut");
      }
    }
    comparison.equal("tokens" + name, torch::tensor(got, torch::kInt64).view(want.sizes()), want);
  }
  return comparison.result();
}

CaseResult check_clip_vocabulary(const Golden& golden) {
  const Tokeniser tokeniser = clip_tokeniser();
  const Json& config = golden.config();
  Comparison comparison;
  comparison.holds("size", tokeniser.size() == config.at("vocab_size"), text("is ", tokeniser.size()));
  for (const auto& [byte, name] : config.at("byte_to_unicode").items()) {
    std::string ours;
    tokens::append_utf8(tokens::byte_character(static_cast<unsigned char>(std::stoi(byte))), ours);
    comparison.holds("byte " + byte, ours == name, "has another character");
  }
  for (const auto& [token, id] : config.at("sample_vocab").items())
    comparison.holds("token " + token, tokeniser.find(token) == id.get<int32_t>(), "has another id");
  for (const auto& [word, pieces] : config.at("bpe_words").items()) {
    std::string ours;
    for (const int32_t id : tokeniser.encode(word, false))
      ours += (ours.empty() ? "" : " ") + tokeniser.token(id);
    compare_text(comparison, "word " + word, ours, pieces);
  }
  return comparison.result();
}

const Registered registered({
    {"tokeniser", check_tokeniser, {"components/tok_"}},
    {"clip_captions", check_clip_captions, {"components/tok_clip_bpe"}},
    {"clip_vocabulary", check_clip_vocabulary, {"components/tok_clip_vocab"}},
});

}  // namespace
}  // namespace tessera::parity::tokeniser_cases
