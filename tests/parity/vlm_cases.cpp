#include "core/error.h"
#include "models/language/flamingo.h"
#include "models/language/llava.h"
#include "tests/parity/text_case.h"
#include "weights/language_files.h"
#include "weights/name_tables.h"

namespace tessera::parity::vlm_cases {
namespace {

using Json = nlohmann::json;
using namespace models;

constexpr torch::ScalarType kBoth[] = {torch::kFloat64, torch::kFloat32};

std::shared_ptr<Backbone> tower(Value::Table settings) {
  settings.emplace_back("classes", 0);
  return build_backbone(resolve_model("vit", Value(std::move(settings))), 0, Init::skip);
}

double ratio(const Json& config, const char* hidden, const char* dim) {
  return config.at(hidden).get<double>() / config.at(dim).get<double>();
}

// CLIP's tower as transformers or OpenCLIP describe it.
std::shared_ptr<Backbone> clip_tower(const Json& config) {
  const bool hub = config.contains("hidden_size");
  const auto dim = config.at(hub ? "hidden_size" : "width").get<int64_t>();
  const auto heads =
      hub ? config.at("num_attention_heads").get<int64_t>() : dim / config.at("head_width").get<int64_t>();
  const Activation activation =
      published_activation(config.value("hidden_act", hub ? "quick_gelu" : "gelu"), "the tower");
  const auto side = config.at("image_size").get<int64_t>(), patch = config.at("patch_size").get<int64_t>();
  return tower({{"image_size", side / patch * patch},
                {"patch_size", patch},
                {"drop_border", side % patch != 0},
                {"dim", dim},
                {"depth", config.at(hub ? "num_hidden_layers" : "layers").get<int64_t>()},
                {"heads", heads},
                {"mlp_ratio",
                 hub ? ratio(config, "intermediate_size", "hidden_size") : config.value("mlp_ratio", 4.0)},
                {"mlp", name_of(activation)},
                {"norm_eps", config.value("layer_norm_eps", 1e-5)},
                {"pre_norm", true}});
}

// What transformers' config.json would say.
Value llava_settings(const Json& config) {
  const std::string select =
      config.value("vision_feature_select_strategy", config.value("select", std::string("patch")));
  const bool full = select.starts_with("full") || select.starts_with("cls_patch");
  check(full || select.starts_with("patch") || select == "default", "select '", select,
        "' is a setting unknown here");
  Json hub = {{"vision_feature_layer", config.at("select_layer")},
              {"vision_feature_select_strategy", full ? "full" : "default"}};
  for (const char* key : {"projector_hidden_act", "multimodal_projector_bias"})
    if (config.contains(key)) hub[key] = config[key];
  return to_value(hub);
}

// How many tokens of the text a generated row [1, tokens] begins with: those were given, or at least could have been.
int64_t prompt_length(const torch::Tensor& text, const torch::Tensor& generated) {
  const torch::Tensor whole = generated.flatten();
  const int64_t most = std::min(text.size(0), whole.size(0) - 1);
  int64_t length = 0;
  while (length < most && text[length].item<int64_t>() == whole[length].item<int64_t>()) ++length;
  check(length > 0, "the generated row does not begin with the text");
  return length;
}

torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  return next_token_loss_sum(logits, labels) / (labels.slice(1, 1) != kIgnoredLabel).sum();
}

train::NamePlace llava_place(const std::string& name, const LanguageModel& language) {
  return train::language_places({name}, "llava", language.config().tied ? language.embedding_name() : "")
      .front();
}

CaseResult check_llava(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  const auto image_token = config.at("image_token_id").get<int64_t>();
  for (const torch::ScalarType dtype : kBoth) {
    TextCase own(comparison, golden, "", dtype);
    const auto vision = clip_tower(config.at("vision"));
    Llava model(llava_config_of(llava_settings(config), vision->block_count(), "the golden's config"), vision,
                std::make_shared<LanguageModel>(decoder_config(
                    config.at("text"), config.at("text").value("model_type", std::string("llama")))));
    own.load(model, [&](const std::string& name) { return llava_place(name, model.language()); });
    const torch::Tensor ids = own.input("ids"), mask = own.input("mask").to(torch::kBool);
    const torch::Tensor features = model.image_features(own.input("image"));
    const torch::Tensor logits =
        model.language().forward({.embedded = model.embed(ids, image_token, features), .mask = mask}) *
        mask.unsqueeze(-1);
    own.output("image_features", features.flatten(0, 1));
    own.output("logits", logits);
    own.output("ce_loss", mean_loss(logits, own.input("labels")));
    own.gradients();
    // All three namings lead to the same places.
    if (config.contains("names"))
      for (const Json& names : config["names"])
        for (const Json& name : names) {
          if (!name.is_string()) continue;
          const train::NamePlace a = llava_place(names[0].get<std::string>(), model.language()),
                                 b = llava_place(name.get<std::string>(), model.language());
          comparison.holds(name.get<std::string>(),
                           a.ours == b.ours && a.join.ours.first == b.join.ours.first, "is called " + b.ours);
        }
    const torch::NoGradGuard no_grad;
    const torch::Tensor want = own.tensor("output.greedy_row0");
    const int64_t prompt = prompt_length(ids[0], want);
    const torch::Tensor first = ids.slice(0, 0, 1).slice(1, 0, prompt);
    const int64_t images = (first == image_token).sum().item<int64_t>() / features.size(1);
    const GenerationOptions options{.max_new_tokens = want.size(1) - prompt,
                                    .rules = {.bad_words = {{image_token}}}};
    for (const bool cached : {true, false}) {
      const auto next = next_token_model(
          model.language(),
          {.embedded = model.embed(first, image_token, features.slice(0, 0, images)), .cached = cached}, 1);
      own.tokens("greedy_row0", generate(next, first, options).ids, -1);
    }
  }
  return comparison.result();
}

CaseResult check_flamingo(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  const Json &perceiver = config.at("perceiver"), &gated = config.at("gated");
  for (const torch::ScalarType dtype : kBoth) {
    TextCase own(comparison, golden, "", dtype);
    Flamingo model({.resampler = {.dim = perceiver.at("dim").get<int64_t>(),
                                  .depth = perceiver.at("depth").get<int64_t>(),
                                  .heads = perceiver.at("heads").get<int64_t>(),
                                  .head_dim = perceiver.at("dim_head").get<int64_t>(),
                                  .latents = perceiver.at("num_latents").get<int64_t>(),
                                  .mlp_ratio = perceiver.at("ff_mult").get<int64_t>()},
                    .gated = {.dim = gated.at("dim").get<int64_t>(),
                              .media_dim = gated.at("dim_visual").get<int64_t>(),
                              .heads = gated.at("heads").get<int64_t>(),
                              .head_dim = gated.at("dim_head").get<int64_t>(),
                              .mlp_ratio = gated.at("ff_mult").get<int64_t>()},
                    .every = config.at("every").get<int64_t>(),
                    .media_token = config.at("media_token_id").get<int64_t>()},
                   clip_tower(config.at("vision")),
                   std::make_shared<LanguageModel>(decoder_config(config.at("lm"), "llama")));
    own.load(model, [&](const std::string& name) {
      return train::names_of_family("flamingo").ours({name}).front();
    });
    const torch::Tensor ids = own.input("ids"), mask = own.input("mask").to(torch::kBool);
    const torch::Tensor media = model.media(own.input("image"));
    const torch::Tensor logits = model.forward(ids, mask, media) * mask.unsqueeze(-1);
    own.output("resampled", media);
    own.output("logits", logits);
    own.output("ce_loss", mean_loss(logits, own.input("labels")));
    own.gradients();
    const torch::NoGradGuard no_grad;
    const torch::Tensor want = own.tensor("output.greedy_row0"),
                        first = ids.slice(0, 0, 1).slice(1, 0, prompt_length(ids[0], want));
    const auto next = model.next_token_model(first, media.slice(0, 0, 1), 1);
    own.tokens("greedy_row0", generate(next, first, {.max_new_tokens = want.size(1) - first.size(1)}).ids,
               -1);
  }
  return comparison.result();
}

CaseResult check_frozen(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  const Json& encoder = config.at("encoder");
  for (const torch::ScalarType dtype : kBoth) {
    TextCase own(comparison, golden, "", dtype);
    Frozen model({.tokens = config.at("k").get<int64_t>()},
                 tower({{"image_size", to_value(encoder.at("img_size"))},
                        {"class_token", encoder.value("class_token", true)},
                        {"patch_size", encoder.at("patch_size").get<int64_t>()},
                        {"dim", encoder.at("embed_dim").get<int64_t>()},
                        {"depth", encoder.at("depth").get<int64_t>()},
                        {"heads", encoder.at("num_heads").get<int64_t>()},
                        {"mlp_ratio", encoder.at("mlp_ratio").get<double>()},
                        {"global_pool", encoder.at("global_pool").get<std::string>()}}),
                 std::make_shared<LanguageModel>(decoder_config(config.at("lm"), "gpt2")));
    own.load(model, [&](const std::string& name) { return named(name); });
    const torch::Tensor mask = own.input("mask").to(torch::kBool), labels = own.input("labels");
    const torch::Tensor prefix = model.prefix(own.input("image"));
    torch::Tensor logits = model.forward(prefix, own.input("ids"), mask);
    const torch::Tensor all_labels =
        torch::cat({torch::full({labels.size(0), prefix.size(1)}, kIgnoredLabel, torch::kInt64), labels}, 1);
    own.output("prefix", prefix);
    own.output("ce_loss", mean_loss(logits, all_labels));
    // Rows of padding have no meaning where the golden has none.
    const torch::Tensor want = own.tensor("output.logits");
    logits = logits * (want.abs().sum(-1, true) > 0);
    own.output("logits", logits);
    own.gradients();
  }
  return comparison.result();
}

CaseResult check_flamingo_blocks(const Golden& golden) {
  Comparison comparison;
  const Json &r = golden.config().at("resampler"), &g = golden.config().at("gated");
  const auto replace = [](std::string name, const std::string& from, const std::string& to) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    return name;
  };
  const auto feed = [&](std::string name) {
    return replace(replace(replace(name, ".norm.", ".0."), ".fc1.", ".1."), ".fc2.", ".3.");
  };
  for (const torch::ScalarType dtype : kBoth) {
    {
      TextCase own(comparison, golden, "resampler/", dtype);
      Resampler model(ResamplerConfig{.dim = r.at("d").get<int64_t>(),
                                      .depth = r.at("depth").get<int64_t>(),
                                      .heads = r.at("heads").get<int64_t>(),
                                      .head_dim = r.at("dim_head").get<int64_t>(),
                                      .latents = r.at("latents").get<int64_t>(),
                                      .mlp_ratio = r.at("ff_mult").get<int64_t>(),
                                      .frames = r.at("frames").get<int64_t>()});
      own.load(*model, [&](const std::string& name) {
        if (name.starts_with("attn.") || name.starts_with("ff.")) {
          const bool attention = name.starts_with("attn.");
          const std::string rest = name.substr(attention ? 5 : 3), number = rest.substr(0, rest.find('.'));
          const std::string inner = rest.substr(number.size());
          return named("layers." + number + (attention ? ".0" + inner : ".1" + feed(inner)));
        }
        return named(name);
      });
      own.output("y", model->forward(own.input("x")));
      own.gradients();
    }
    TextCase own(comparison, golden, "gated/", dtype);
    GatedCrossAttention model(GatedConfig{.dim = g.at("d").get<int64_t>(),
                                          .media_dim = g.at("dv").get<int64_t>(),
                                          .heads = g.at("heads").get<int64_t>(),
                                          .head_dim = g.at("dim_head").get<int64_t>(),
                                          .mlp_ratio = g.at("ff_mult").get<int64_t>()});
    own.load(*model, [&](const std::string& name) {
      if (name.starts_with("ff.")) return named("ff" + feed(name.substr(2)));
      return named(name.ends_with("_gate") ? name : "attn." + name);
    });
    const torch::Tensor places = golden.tensor("gated/input.loc", torch::kInt64).cumsum(1);
    own.output("y", model->forward(own.input("x"), own.input("media"), places));
    own.gradients();
  }
  return comparison.result();
}

CaseResult check_vision_language_parts(const Golden& golden) {
  Comparison comparison;
  const auto image_token = golden.config().at("image_token_id").get<int64_t>();
  for (const torch::ScalarType dtype : kBoth) {
    TextCase own(comparison, golden, "llava_mlp/", dtype);
    const torch::Tensor x = own.input("x"), want = own.tensor("output.y");
    Projector model(x.size(-1), want.size(-1));
    own.load(*model, [&](const std::string& name) {
      return named((name.starts_with("0.") ? "linear_1." : "linear_2.") + name.substr(2));
    });
    own.output("y", model->forward(x));
    own.gradients();

    const torch::Tensor features = golden.tensor("splice/input.image_features", dtype),
                        table = golden.tensor("splice/input.embedding", dtype);
    const torch::Tensor given = golden.tensor("splice/input.ids", torch::kInt64).contiguous();
    const std::vector<int64_t> ids(given.data_ptr<int64_t>(), given.data_ptr<int64_t>() + given.numel());
    const auto expanded =
        torch::tensor(expand_image_tokens(ids, image_token, features.size(1)), torch::kInt64);
    const torch::Tensor places = (expanded == image_token).unsqueeze(0);
    const torch::Tensor embedded =
        splice(torch::embedding(table, expanded).unsqueeze(0), places, features.flatten(0, 1));
    comparison.equal("splice", embedded.squeeze(0), golden.tensor("splice/output.embeds", dtype));
    comparison.equal("splice labels", expanded.masked_fill(places[0], kIgnoredLabel),
                     golden.tensor("splice/output.labels", torch::kInt64));
  }
  for (const std::string& name : golden.names("simvlm/output.mask.")) {  // "prefix3.total7"
    const int64_t prefix = std::stoll(name.substr(6)),
                  total = std::stoll(name.substr(name.find("total") + 5));
    comparison.equal(name, prefix_mask(prefix, total), golden.tensor("simvlm/output.mask." + name));
  }
  const torch::Tensor want = golden.tensor("simvlm/output.batched_mask"),
                      prefixes = golden.tensor("simvlm/input.prefix_len"),
                      valid = golden.tensor("simvlm/input.valid_len");
  for (int64_t i = 0; i < want.size(0); ++i) {
    const torch::Tensor keys = torch::arange(want.size(2)) < valid[i];
    comparison.equal("batched mask", prefix_mask(prefixes[i].item<int64_t>(), want.size(1)) & keys, want[i]);
  }
  return comparison.result();
}

const Registered registered({
    {"llava", check_llava, {"components/model_llava"}},
    {"flamingo", check_flamingo, {"components/model_flamingo"}},
    {"frozen", check_frozen, {"components/model_frozen"}},
    {"flamingo_blocks", check_flamingo_blocks, {"components/block_flamingo"}},
    {"vision_language_parts", check_vision_language_parts, {"components/block_vlm_misc"}},
});

}  // namespace
}  // namespace tessera::parity::vlm_cases
