#include "tests/parity/text_case.h"

#include "core/error.h"
#include "core/text.h"
#include "models/language/language_model.h"
#include "models/language/seq2seq.h"
#include "tasks/base/losses.h"
#include "weights/adapter_config.h"
#include "weights/language_files.h"

namespace tessera::parity {

using Json = nlohmann::json;
using namespace models;

namespace {

Json without_nulls(const Json& tree) {
  if (!tree.is_object()) return tree;
  Json out = Json::object();
  for (const auto& [key, value] : tree.items())
    if (!value.is_null()) out[key] = without_nulls(value);
  return out;
}

}  // namespace

LanguageConfig decoder_config(Json config, const std::string& kind) {
  config["model_type"] = kind;
  config.erase("generate");
  return language_config_of(to_value(without_nulls(config)), "the golden's config");
}

namespace {

constexpr int64_t kIgnored = -100;

// The number that a name begins with: 3 of "3_row0".
int64_t number_in(const std::string& name) { return std::stoll(name); }

// Mean cross entropy of each token from those before it.
torch::Tensor next_token_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  return at::cross_entropy_loss(logits.slice(1, 0, -1).flatten(0, 1), labels.slice(1, 1).flatten(), {}, 1,
                                kIgnored);
}

std::vector<int64_t> ends_of(const Json& config) {
  if (!config.contains("eos_token_id")) return {};
  const Json& end = config["eos_token_id"];
  return end.is_array() ? end.get<std::vector<int64_t>>() : std::vector<int64_t>{end.get<int64_t>()};
}

GenerationOptions generation_options(const Json& config, int64_t prompt) {
  GenerationOptions options;
  options.max_new_tokens = config.contains("max_new_tokens") && config.at("max_new_tokens").is_number()
                               ? config.at("max_new_tokens").get<int64_t>()
                               : config.at("max_length").get<int64_t>() - prompt;
  options.ends = ends_of(config);
  options.pad = config.value("pad_token_id", int64_t{0});
  options.rules.repetition_penalty = config.value("repetition_penalty", 1.0);
  options.rules.no_repeat_ngram = config.value("no_repeat_ngram_size", int64_t{0});
  options.rules.min_new_tokens = config.value("min_new_tokens", int64_t{0});
  options.rules.min_length = config.value("min_length", int64_t{0});
  options.rules.bad_words = config.value("bad_words_ids", std::vector<std::vector<int64_t>>());
  options.beams = config.value("num_beams", int64_t{1});
  // As published: padding with token 0 counts as none where beams are filled up, with the end token then.
  if (options.beams > 1 && options.pad == 0 && !options.ends.empty()) options.pad = options.ends.front();
  options.returned = config.value("num_return_sequences", int64_t{1});
  options.length_penalty = config.value("length_penalty", 1.0);
  if (const auto early = config.find("early_stopping"); early != config.end())
    options.early_stop = !early->is_boolean() ? EarlyStop::never
                         : early->get<bool>() ? EarlyStop::yes
                                              : EarlyStop::no;
  return options;
}

// With what was read kept, and read anew for each token: the same tokens.
void check_generated(TextCase& text_case, const std::string& name, LanguageModel& model,
                     const torch::Tensor& prompt, const torch::Tensor& mask, const GenerationOptions& options,
                     const std::string& scores = "") {
  GenerationOptions padded = options;
  if (mask.defined()) padded.padding = padding_of(mask);
  for (const bool cached : {true, false}) {
    const auto next = next_token_model(model, {.mask = mask, .cached = cached}, options.beams);
    const Generated generated = generate(next, prompt, padded);
    text_case.tokens(name, generated.ids, options.pad);
    if (!scores.empty() && text_case.has("output." + scores)) text_case.output(scores, generated.scores);
  }
}

// generate/NAME/…: the settings are in the config.
void check_generate_cases(Comparison& comparison, const Golden& golden, LanguageModel& model,
                          torch::ScalarType dtype) {
  const Json cases = golden.config().value("generate", Json::object());
  for (const auto& [name, config] : cases.items()) {
    TextCase own(comparison, golden, "generate/" + name + "/", dtype);
    const torch::Tensor mask =
        own.has("input.attention_mask") ? own.input("attention_mask").to(torch::kBool) : torch::Tensor();
    const torch::Tensor ids = own.input("input_ids");
    check_generated(own, "sequences", model, ids, mask, generation_options(config, ids.size(1)),
                    "sequences_scores");
  }
}

// What the two small LLaMA goldens generate.
void check_llama_generation(TextCase& own, LanguageModel& model, const Json& config,
                            const torch::Tensor& ids) {
  GenerationOptions options{.max_new_tokens = 12, .ends = {config.at("eos").get<int64_t>()}};
  options.pad = config.at("pad").get<int64_t>();
  // Rows that met the end token are shorter, or padded: the longest tells how many were asked for, exactly where one has none.
  for (const char* key : {"generated.batch", "generated.row1"}) {
    if (!own.has(std::string("output.") + key)) continue;
    const torch::Tensor rows = own.tensor(std::string("output.") + key);
    const int64_t added = rows.size(-1) - ids.size(1);
    const bool open =
        (rows.view({-1, rows.size(-1)}).slice(1, ids.size(1)) != options.ends[0]).all(1).any().item<bool>();
    options.max_new_tokens = open ? added : std::max(options.max_new_tokens, added);
    if (open) break;
  }
  if (own.has("output.generated.batch")) check_generated(own, "generated.batch", model, ids, {}, options);
  if (own.has("output.generated.row1"))
    check_generated(own, "generated.row1", model, ids.slice(0, 1, 2), {}, options);
  const torch::Tensor row = ids.slice(0, 0, 1);
  for (const std::string& name : own.names("output.generated.beam")) {  // "3_row0"
    const std::string key = "generated.beam" + name;
    GenerationOptions beams = options;
    // Where all of its beams ended early the row is shorter than what was asked for.
    beams.max_new_tokens = std::max<int64_t>(8, own.tensor("output." + key).size(-1) - row.size(1));
    beams.beams = number_in(name);
    check_generated(own, key, model, row, {}, beams);
  }
  if (own.has("output.generated.row0_from_token4")) {
    const torch::Tensor mask = own.input("padded.mask").to(torch::kBool), padded = own.input("padded.ids");
    const int64_t length = mask[0].sum().item<int64_t>();
    const torch::Tensor prompt = padded.slice(0, 0, 1).slice(1, -length);
    check_generated(own, "generated.row0_from_token4", model, prompt, {}, options);
    // Padded on the left it goes on alike.
    const auto next = next_token_model(model, {.mask = mask}, 1);
    const torch::Tensor both = generate(next, padded, options).ids;
    own.tokens("generated.row0_from_token4", both.slice(0, 0, 1).slice(1, padded.size(1) - length),
               options.pad);
  }
}

void check_one_decoder(Comparison& comparison, const Golden& golden, const std::string& prefix,
                       const LanguageConfig& config, const Json& given) {
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    TextCase own(comparison, golden, prefix, dtype);
    LanguageModel model(config);
    own.load(model, [&](const std::string& name) { return train::decoder_places({name}, model).front(); });
    const torch::Tensor ids = own.input(own.has("input.ids") ? "ids" : "input_ids");
    const torch::Tensor mask = own.has("input.mask") ? own.input("mask").to(torch::kBool) : torch::Tensor();
    torch::Tensor first;
    const torch::Tensor last =
        model.hidden({.ids = ids, .mask = mask, .after_block = [&](int64_t block, const torch::Tensor& x) {
                        if (block == 0) first = x;
                      }});
    torch::Tensor logits = model.logits(last);
    if (mask.defined()) logits = logits * mask.unsqueeze(-1);  // what stands at padding has no meaning
    const std::string name = own.has("output.y") ? "y" : "logits";
    own.output(name, logits);
    // Of one block transformers gives what stands behind the last norm.
    const bool behind_first = config.kind == LanguageKind::gpt2 && config.depth > 1;
    if (own.has("output.hidden")) own.output("hidden", behind_first ? first : last);
    if (own.has("output.ce_loss")) own.output("ce_loss", next_token_loss(logits, own.input("labels")));
    if (own.has("output.padded.logits_valid")) {
      const torch::Tensor padded_mask = own.input("padded.mask").to(torch::kBool);
      const torch::Tensor padded = model.forward({.ids = own.input("padded.ids"), .mask = padded_mask});
      own.output("padded.logits_valid", padded * padded_mask.unsqueeze(-1));
    }
    own.gradients();
    for (const std::string& from : own.names("output.greedy_from_")) {
      const int64_t prompt = number_in(from), all = own.tensor("output.greedy_from_" + from).size(1);
      check_generated(own, "greedy_from_" + from, model, ids.slice(1, 0, prompt), {},
                      {.max_new_tokens = all - prompt});
    }
    check_generate_cases(comparison, golden, model, dtype);
    if (given.contains("bos")) check_llama_generation(own, model, given, ids);
    if (own.has("output.teacher_forced_logits_generated")) {
      const torch::Tensor all = own.tensor("output.generated.batch");
      const torch::Tensor want = own.tensor("output.teacher_forced_logits_generated");
      const torch::Tensor scores = model.forward({.ids = all});
      own.output("teacher_forced_logits_generated", scores.slice(1, scores.size(1) - want.size(1)));
    }
  }
}

std::string kind_of(const std::string& name) {
  if (name.find("gpt2") != std::string::npos) return "gpt2";
  for (const char* kind : {"qwen2", "mistral", "bloom", "mpt"})
    if (name.find(kind) != std::string::npos) return kind;
  return "llama";
}

CaseResult check_decoder(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  if (config.contains("vocab_size")) {
    check_one_decoder(comparison, golden, "", decoder_config(config, kind_of(golden.name)), config);
    return comparison.result();
  }
  for (const auto& [name, inner] : config.items())
    check_one_decoder(comparison, golden, name + "/", decoder_config(inner, kind_of(name)), inner);
  return comparison.result();
}

CaseResult check_lora(const Golden& golden) {
  Comparison comparison;
  const train::AdapterConfig lora(nlohmann::ordered_json::parse(golden.config().at("lora").dump()),
                                  "the golden's lora");
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    TextCase own(comparison, golden, "", dtype);
    LanguageModel model(decoder_config(golden.config().at("base"), "llama"));
    adapt_layers(model, [&](const std::string& name) { return lora.layer(name); });
    const std::string wrapper = "base_model.model.";
    own.load(model, [&](std::string name) {
      name = name.substr(wrapper.size());
      for (const char* part : {".base_layer", ".default"})
        if (const size_t at = name.find(part); at != std::string::npos)
          name.erase(at, std::string(part).size());
      if (name.ends_with(".lora_magnitude_vector.weight")) name.resize(name.size() - 7);
      return named(name);
    });
    own.output("logits", model.forward({.ids = own.input("ids")}));
    own.gradients();
    for (const auto& entry : model.named_modules(std::string(), /*include_self=*/false))
      if (auto* projection = dynamic_cast<ProjectionImpl*>(entry.value().get())) projection->merge();
    for (const std::string& name : golden.names("merged.")) {
      const torch::Tensor want = golden.tensor("merged." + name);
      comparison.close("merged." + name, model.named_parameters()[name], want, 1e-6, 1e-6);
    }
    own.output("logits", model.forward({.ids = own.input("ids")}).detach());
  }
  return comparison.result();
}

namespace {

// Returns the most new tokens of the searches of a case. Outputs in which all texts ended are shorter.
int64_t limit_of(const TextCase& own, const std::vector<int64_t>& ends) {
  constexpr int64_t kUsual = 10;
  int64_t limit = kUsual;
  for (const std::string& name : own.names("output.")) {
    if (name != "greedy" && !name.starts_with("beam")) continue;
    const torch::Tensor tokens = own.tensor("output." + name).slice(1, 1);
    torch::Tensor ended = torch::zeros({tokens.size(0)}, torch::kBool);
    for (const int64_t end : ends) ended = ended | (tokens == end).any(1);
    if (!ended.all().item<bool>()) return tokens.size(1);
    limit = std::max(limit, tokens.size(1));
  }
  return limit;
}

}  // namespace

CaseResult check_t5(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, given] : golden.config().items())
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      TextCase own(comparison, golden, name + "/", dtype);
      const auto model = make_seq2seq(t5_config_of(to_value(given), "the golden's config"));
      own.load(*model, [](const std::string& published) { return named(published); });
      const torch::Tensor ids = own.input("ids"), mask = own.input("mask").to(torch::kBool);
      const torch::Tensor labels = own.input("labels");
      const torch::Tensor start =
          torch::full({labels.size(0), 1}, given.at("decoder_start_token_id").get<int64_t>(), torch::kInt64);
      torch::Tensor target = torch::cat({start, labels.slice(1, 0, -1)}, 1);
      target = target.masked_fill(target == kIgnored, given.at("pad_token_id").get<int64_t>());
      const torch::Tensor memory = model->encode(ids, mask);
      const torch::Tensor logits = model->decode(target, {}, memory, mask);
      own.output("encoder", memory);
      own.output("logits", logits);
      own.output("ce_loss", at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, 1, kIgnored));
      own.gradients();
      GenerationOptions options{.ends = ends_of(given), .pad = given.at("pad_token_id").get<int64_t>()};
      options.max_new_tokens = limit_of(own, options.ends);
      const auto search = [&](const std::string& output) {
        for (const bool cached : {true, false})
          own.tokens(output,
                     generate(next_token_model(*model, ids, mask, options.beams, cached), start, options).ids,
                     options.pad);
      };
      search("greedy");
      for (const std::string& beams : own.names("output.beam")) {
        options.beams = number_in(beams);
        if (options.pad == 0 && !options.ends.empty()) options.pad = options.ends.front();  // as for decoders
        search("beam" + beams);
      }
    }
  return comparison.result();
}

CaseResult check_transformer(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  for (const char* form : {"post_norm", "pre_norm"})
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      if (golden.names(std::string(form) + "/param.").empty()) continue;
      TextCase own(comparison, golden, std::string(form) + "/", dtype);
      const auto model = make_seq2seq({.kind = Seq2SeqKind::transformer,
                                       .vocabulary = config.at("vocab").get<int64_t>(),
                                       .dim = config.at("d_model").get<int64_t>(),
                                       .heads = config.at("heads").get<int64_t>(),
                                       .hidden = config.at("ff").get<int64_t>(),
                                       .encoder_depth = config.at("layers")[0].get<int64_t>(),
                                       .decoder_depth = config.at("layers")[1].get<int64_t>(),
                                       .pre_norm = form == std::string("pre_norm")});
      own.load(*model, [](const std::string& published) { return named(published); });
      const torch::Tensor source = own.input("src"), source_mask = ~own.input("src_pad").to(torch::kBool),
                          target_mask = ~own.input("tgt_pad").to(torch::kBool), labels = own.input("labels");
      const torch::Tensor memory = model->encode(source, source_mask);
      const torch::Tensor logits = model->decode(own.input("tgt"), target_mask, memory, source_mask);
      const auto pad = config.at("pad").get<int64_t>();
      own.output("logits", logits * target_mask.unsqueeze(-1));
      own.output("ls_loss", at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, 1, pad,
                                                   config.at("label_smoothing").get<double>()));
      own.gradients();
      const torch::Tensor start = torch::full({1, 1}, config.at("bos").get<int64_t>(), torch::kInt64);
      for (int64_t row = 0; row < source.size(0); ++row) {
        GenerationOptions options{.max_new_tokens = config.value("max_tokens", int64_t{12}),
                                  .ends = {config.at("eos").get<int64_t>()},
                                  .pad = pad};
        const torch::Tensor one = source.slice(0, row, row + 1),
                            one_mask = source_mask.slice(0, row, row + 1);
        own.tokens(text("greedy_row", row),
                   generate(next_token_model(*model, one, one_mask, 1), start, options).ids, pad);
        options.length_penalty = config.value("length_penalty", 0.6);
        options.gnmt_length = true;
        options.early_stop = EarlyStop::never;
        for (const std::string& name : own.names("output.beam")) {  // "4_row0"
          if (!name.ends_with(text("_row", row))) continue;
          options.beams = number_in(name);
          const Generated best =
              generate(next_token_model(*model, one, one_mask, options.beams), start, options);
          own.tokens("beam" + name, best.ids, pad);
          own.output("beam" + name + "_score", best.scores);
        }
      }
    }
  return comparison.result();
}

CaseResult check_token_rules(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  const torch::Tensor ids = golden.tensor("input.ids", torch::kInt64),
                      scores = golden.tensor("input.scores", torch::kFloat64);
  for (const Json& item : config.at("cases")) {
    const std::string name = item.get<std::string>();
    const auto number = [&](const char* prefix) {
      return name.starts_with(prefix) ? parse_double(name.substr(std::string(prefix).size())) : std::nullopt;
    };
    TokenRules rules;
    std::vector<int64_t> ends;
    bool ties = false;  // the order of equal values decides
    if (const auto value = number("temperature_")) rules.temperature = *value;
    if (const auto value = number("top_k_")) rules.top_k = static_cast<int64_t>(*value);
    if (const auto value = number("top_p_")) rules.top_p = *value, ties = true;
    if (const auto value = number("min_p_")) rules.min_p = *value;
    if (const auto value = number("typical_")) rules.typical_p = *value, ties = true;
    if (const auto value = number("epsilon_")) rules.epsilon = *value;
    if (const auto value = number("repetition_penalty_")) rules.repetition_penalty = *value;
    if (const auto value = number("no_repeat_ngram_")) rules.no_repeat_ngram = static_cast<int64_t>(*value);
    if (name == "bad_words")
      rules.bad_words = config.at("bad_words").get<std::vector<std::vector<int64_t>>>();
    if (name.starts_with("min_length_")) {
      const std::vector<std::string> words = split(name, '_');
      rules.min_length = parse_int(words.at(2)).value();
      ends = {parse_int(words.at(4)).value()};
    }
    if (name == "combined") {
      const Json parts = config.value("combined", Json::object());
      rules = {.repetition_penalty = parts.value("repetition_penalty", 1.2),
               .no_repeat_ngram = parts.value("no_repeat_ngram", int64_t{2}),
               .temperature = parts.value("temperature", 0.9),
               .top_k = parts.value("top_k", int64_t{10}),
               .top_p = parts.value("top_p", 0.9)};
      ties = true;
    }
    torch::Tensor got = apply_rules(scores, ids, rules, ends, 0, true);
    torch::Tensor want = golden.tensor("output." + name + ".scores", torch::kFloat64);
    torch::Tensor shares = got.softmax(1),
                  wanted = golden.tensor("output." + name + ".probabilities", torch::kFloat64);
    got = got.masked_fill(got.isinf(), -1e30);
    if (ties) {  // the last row has equal values
      const int64_t rows = got.size(0) - 1;
      got = got.slice(0, 0, rows), want = want.slice(0, 0, rows), shares = shares.slice(0, 0, rows),
      wanted = wanted.slice(0, 0, rows);
    }
    comparison.equal(name + " removed", got < -1e29, want < -1e29);
    comparison.close(name, got, want, 1e-6, 1e-6);
    comparison.close(name + " probabilities", shares, wanted, 1e-5, 1e-6);
  }
  return comparison.result();
}

const Registered registered({
    {"decoder",
     check_decoder,
     {"components/model_llama", "components/model_gpt2", "components/model_alibi_lm"}},
    {"lora", check_lora, {"components/lora_"}},
    {"t5", check_t5, {"components/model_t5"}},
    {"transformer", check_transformer, {"components/model_transformer_seq2seq"}},
    {"token_rules", check_token_rules, {"components/text_generation"}},
});

}  // namespace
}  // namespace tessera::parity
