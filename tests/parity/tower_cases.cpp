// components/model_clip_tiny, model_clip_hf, model_siglip_hf, model_siglip_openclip, model_coca_tiny, generate_coca,
// zeroshot_prompts: OpenCLIP's and Hugging Face's models, loaded through their own names.
#include "core/error.h"
#include "models/base/capability.h"
#include "models/base/encoder.h"
#include "models/language/caption_search.h"
#include "tasks/base/zero_shot.h"
#include "tasks/pairs/pair_loss.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"
#include "weights/two_tower_published.h"

namespace tessera::parity::tower_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

// Hugging Face's configuration. Sizes are told by the tensors too.
models::TowerHints hints_of_hub(const Json& config, bool siglip) {
  models::TowerHints hints;
  ConfigReader image(config.at("vision_config"), "vision_config"),
      text(config.at("text_config"), "text_config");
  for (ConfigReader* one : {&image, &text})
    one->pass_over({"hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings",
                    "vocab_size", "image_size", "patch_size", "num_channels", "projection_dim",
                    "projection_size", "bos_token_id", "pad_token_id", "attention_dropout"});
  hints.image_heads = image.value("num_attention_heads", int64_t{0});
  hints.text_heads = text.value("num_attention_heads", int64_t{0});
  const char* usual = siglip ? "gelu_pytorch_tanh" : "quick_gelu";
  hints.image_activation = models::published_activation(image.value("hidden_act", usual), "vision_config");
  hints.text_activation = models::published_activation(text.value("hidden_act", usual), "text_config");
  hints.image_side = config.at("vision_config").value("image_size", int64_t{0});
  hints.image_eps = image.value("layer_norm_eps", 0.0), hints.text_eps = text.value("layer_norm_eps", 0.0);
  // Files of before 2023 say 2 and mean the largest id.
  if (const auto end = text.value("eos_token_id", int64_t{0}); end > 0 && end != 2 && !siglip)
    hints.end_token = end;
  image.finish(), text.finish();
  return hints;
}

// OpenCLIP's configuration.
models::TowerHints hints_of_open_clip(const Json& config) {
  models::TowerHints hints;
  const Json images = config.value("vision", Json::object()), texts = config.value("text", Json::object()),
             decoders = config.value("multimodal", Json::object());
  ConfigReader image(images, "vision"), text(texts, "text"), decoder(decoders, "multimodal");
  // What the tensors tell, and what is asked of the outputs. Without CoCa's decoder an attentional pooler has no tensors of
  // ours, and loading fails.
  image.pass_over({"layers", "patch_size", "mlp_ratio", "img_size", "embed_dim", "depth", "no_ln_pre",
                   "attentional_pool", "attn_pooler_queries", "output_tokens", "ls_init_value",
                   "patch_dropout"});
  text.pass_over({"context_length", "vocab_size", "width", "layers", "mlp_ratio", "embed_cls",
                  "output_tokens", "proj_bias", "proj_type", "ls_init_value"});
  decoder.pass_over({"context_length", "vocab_size", "width", "layers", "mlp_ratio"});
  if (image.has("width") && image.at("width").is_number())
    hints.image_heads = image.at("width").get<int64_t>() / image.value("head_width", int64_t{64});
  if (image.has("num_heads")) hints.image_heads = image.at("num_heads");
  image.pass_over({"head_width"});
  hints.text_heads = text.value("heads", int64_t{0});
  hints.decoder_heads = decoder.value("heads", int64_t{0});
  hints.pooler_heads = image.value("attn_pooler_heads", int64_t{8});
  if (image.has("image_size") && image.at("image_size").is_array())
    hints.image_rows = image.at("image_size")[0], hints.image_columns = image.at("image_size")[1];
  hints.text_told = config.contains("text");
  const std::string reads = image.value("pool_type", "tok"), at = text.value("pool_type", "argmax"),
                    positions = image.value("pos_embed_type", "learnable");
  check(reads == "tok" || reads == "avg", "an image tower read by '", reads, "' is not ours");
  check(at == "argmax" || at == "last" || at == "first" || at == "eos", "a text tower read at '", at,
        "' is not ours");
  check(positions == "learnable" || positions == "sin_cos_2d", "positions '", positions, "' are not known");
  hints.mean_of_patches = reads == "avg";
  hints.norm_after_mean = image.value("final_ln_after_pool", false);
  hints.text_read_last = at == "last", hints.text_read_first = at == "first";
  hints.text_sees_all = text.value("no_causal_mask", false);
  hints.pad_token = text.value("pad_id", int64_t{0});
  if (const auto end = text.value("eos_id", int64_t{0}); at == "eos") hints.end_token = end;
  const auto eps = [](ConfigReader& tower) {
    return tower.has("norm_kwargs") ? tower.at("norm_kwargs").value("eps", 0.0) : 0.0;
  };
  const auto takes_tanh = [](ConfigReader& tower) {
    return tower.has("act_kwargs") && tower.at("act_kwargs").value("approximate", "none") == "tanh";
  };
  hints.image_eps = eps(image), hints.text_eps = eps(text);
  const auto activation = [&](ConfigReader& tower) {
    return takes_tanh(tower)                   ? models::Activation::gelu_tanh
           : config.value("quick_gelu", false) ? models::Activation::quick_gelu
                                               : models::Activation::published;
  };
  hints.image_activation = activation(image), hints.text_activation = activation(text);
  image.finish(), text.finish(), decoder.finish();
  return hints;
}

// What the shapes do not tell.
models::TowerHints hints_of(const Golden& golden) {
  const Json& config = golden.config();
  return config.contains("vision_config") ? hints_of_hub(config, golden.name.starts_with("model_siglip"))
                                          : hints_of_open_clip(config);
}

struct Towers {
  models::PublishedTowers published;
  std::shared_ptr<models::Backbone> backbone;
  std::shared_ptr<models::TwoTower> pair;
  std::shared_ptr<models::Coca> coca;

  explicit Towers(const Golden& golden)
      : published(models::describe_towers(shapes_of(golden), hints_of(golden))) {
    backbone = models::build_backbone({"", published.family, published.image}, 0);
    // Positions by a formula are parameters of the published class too, but not trained.
    if (golden.config().value("vision", Json::object()).value("pos_embed_type", "") == "sin_cos_2d")
      backbone->named_parameters()["pos_embed"].set_requires_grad(false);
    if (published.coca)
      coca = std::make_shared<models::Coca>(published.captioner);
    else
      pair = std::make_shared<models::TwoTower>(published.towers);
  }

  std::vector<NamedModule> modules() const {
    const std::shared_ptr<torch::nn::Module> rest = coca ? std::static_pointer_cast<torch::nn::Module>(coca)
                                                         : std::static_pointer_cast<torch::nn::Module>(pair);
    return {{models::kImageTower, backbone}, {"", rest}};
  }
  models::TokenEncoder& encoder() const { return dynamic_cast<models::TokenEncoder&>(*backbone); }
  models::Coca::Side image(const Tensor& images) const {
    return coca->image(encoder().encode(encoder().tokenise(images)).tokens);
  }
};

// Mean loss of the pairs in the form that the model was trained by.
Tensor loss_of(const Towers& towers, const Tensor& images, const Tensor& texts) {
  const Tensor own = torch::arange(images.size(0), torch::kInt64);
  const models::TwoTower& pair = *towers.pair;
  if (towers.published.siglip)
    return tasks::sigmoid_pairs(images, texts, pair.scale(), pair.logit_bias, own).sum / images.size(0);
  return (tasks::softmax_pairs(images, texts, pair.scale(), own).sum +
          tasks::softmax_pairs(texts, images, pair.scale(), own).sum) /
         (2 * images.size(0));
}

void run_towers(Comparison& compare, const Golden& golden, torch::ScalarType dtype) {
  const Towers towers(golden);
  PublishedCase one(compare, golden, dtype);
  one.load(towers.modules(), train::sources_of(towers.published.places));
  const bool open_clip = golden.has("output.image_features");
  models::Taps taps;
  const Tensor ids = one.input(golden.has("input.ids") ? "ids" : "text");
  models::Encoded encoded;
  Tensor embedded;
  if (towers.published.family == "vit") {
    encoded = towers.encoder().encode(towers.encoder().tokenise(one.input("image")), {.taps = &taps});
    embedded = towers.encoder().pool(encoded);
  } else {
    embedded = towers.backbone->embed(one.input("image"), {});
  }
  const Tensor image = towers.pair->image(embedded);
  Tensor text = towers.pair->text(ids);
  const Tensor unit_image = models::normalised_rows(image), unit_text = models::normalised_rows(text);
  const auto logits = [&] {
    const Tensor products = towers.pair->scale() * unit_image.mm(unit_text.t());
    return towers.pair->logit_bias.defined() ? products + towers.pair->logit_bias : products;
  };
  for (const std::string& name : golden.names("output.")) {
    const auto as = [&](const Tensor& got) {
      one.output(name, got.reshape(golden.view("output." + name).shape));
    };
    // OpenCLIP's CLIP gives its vectors as they are, its other classes those of length 1.
    const bool plain =
        open_clip && golden.tensor("output." + name, torch::kFloat64).dim() == 2 &&
        (golden.tensor("output." + name, torch::kFloat64).norm(2, {1}) - 1).abs().max().item<double>() > 1e-3;
    if (name == "image_features" || name == "image_embeds")
      as(plain ? image : unit_image);
    else if (name == "text_features" || name == "text_embeds")
      as(plain ? text : unit_text);
    else if (name == "logits" || name == "logits_per_image")
      as(logits());
    else if (name == "logits_per_text")
      as(logits().t());
    else if (name == "loss_value")
      as(loss_of(towers, unit_image, unit_text));
    else if (name == "vision_last_hidden_state")
      as(towers.published.siglip ? encoded.tokens : encoded.last);
    else if (name == "penultimate")
      as(taps.kept.at("blocks." + std::to_string(towers.backbone->block_count() - 2)));
    else if (name == "text_last_hidden_state")
      as(towers.pair->text_tower().encode(ids,
                                          golden.has("input.mask") ? one.input("mask").ne(0) : Tensor()));
    else
      compare.holds("output." + name, false, "not computed");
  }
  one.gradients();
}

CaseResult check_towers(const Golden& golden) {
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) run_towers(compare, golden, dtype);
  return compare.result();
}

CaseResult check_coca(const Golden& golden) {
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const Towers towers(golden);
    PublishedCase one(compare, golden, dtype);
    one.load(towers.modules(), train::sources_of(towers.published.places));
    const Tensor ids = one.input("text");
    const models::Coca::Side image = towers.image(one.input("image")), text = towers.coca->text(ids);
    one.output("image_features", models::normalised_rows(image.embed));
    one.output("text_features", models::normalised_rows(text.embed));
    one.output("logits", towers.coca->decode(image.tokens, text.tokens.slice(1, 0, ids.size(1) - 1)));
    if (golden.has("output.labels")) compare.equal("labels", ids.slice(1, 1), golden.tensor("output.labels"));
    one.gradients();
  }
  return compare.result();
}

CaseResult check_coca_captions(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const torch::NoGradGuard no_grad;
    const Towers towers(golden);
    PublishedCase one(compare, golden, dtype);
    one.load(towers.modules(), train::sources_of(towers.published.places));
    const models::Coca::Side image = towers.image(one.input("image"));
    const auto next = [&](const Tensor& ids, const Tensor& rows) {
      const int64_t most = towers.coca->config().text.context_length;
      const Tensor seen = ids.size(1) > most ? ids.slice(1, ids.size(1) - most) : ids;
      return towers.coca->decode(image.tokens.index_select(0, rows), towers.coca->text(seen).tokens)
          .select(1, -1);
    };
    const int64_t images = image.tokens.size(0);
    const models::CaptionSearch base{
        .start = config.at("sot"), .end = config.at("eot"), .pad = config.at("pad")};
    if (golden.has("output.first_logits"))
      one.output("first_logits",
                 next(torch::full({images, 1}, base.start, torch::kInt64), torch::arange(images)));
    for (const auto& [name, given] : config.at("cases").items()) {
      models::CaptionSearch search = base;
      search.longest = given.value("seq_len", int64_t{30});
      search.shortest = given.value("min_seq_len", int64_t{5});
      search.repetition_penalty = given.value("repetition_penalty", 1.0);
      if (given.contains("num_beams"))
        search.beams = given["num_beams"], search.groups = given.value("num_beam_groups", 1);
      search.raw_scores = true;
      Tensor got = models::search_captions(images, search, next);
      const Tensor want = golden.tensor("output." + name);
      // A fixed length is padded behind the end.
      if (given.value("fixed_output_length", false) && got.size(1) < search.longest)
        got = torch::cat({got, torch::full({images, search.longest - got.size(1)}, base.pad, torch::kInt64)},
                         1);
      compare.equal((dtype == torch::kFloat64 ? "float64 " : "float32 ") + name, got, want.to(torch::kInt64));
    }
  }
  return compare.result();
}

CaseResult check_zero_shot_prompts(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const auto names = config.at("classnames").get<std::vector<std::string>>(),
             templates = config.at("templates").get<std::vector<std::string>>();
  if (std::ssize(templates) == std::ssize(tasks::imagenet_templates()))
    compare.holds("templates", templates == tasks::imagenet_templates(), "are others than ours");
  const Json& text = config.at("text");
  models::TextTowerConfig settings;
  settings.vocab_size = text.at("vocab_size"), settings.context_length = text.at("context_length");
  settings.dim = text.at("width"), settings.heads = text.at("heads"), settings.depth = text.at("layers");
  settings.embed_dim = text.at("embed_dim");
  if (text.value("quick_gelu", false)) settings.mlp = models::TextMlp::quick_gelu;
  std::vector<std::string> published;
  for (const std::string& name : golden.names("param."))
    if (name != "logit_scale" && name != "token_embedding.rows") published.push_back(name);
  const std::vector<train::TensorSource> sources =
      train::sources_of(train::find_name_table("open_clip", "clip")->ours(published));
  const Tensor ids = golden.tensor("input.ids");
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const torch::NoGradGuard no_grad;
    const auto tower = std::make_shared<models::TextTower>(settings);
    tower->to(dtype);
    std::map<std::string, Tensor> ours;
    for (const auto& entry : tower->named_parameters()) ours["text." + entry.key()] = entry.value();
    for (const train::TensorSource& source : sources) {
      Tensor& to = ours.at(source.ours);
      to.copy_(train::assemble(source, [&](const std::string& name) {
                 return golden.tensor("param." + name, dtype);
               }).reshape(to.sizes()));
    }
    const Tensor rows = golden.tensor("param.token_embedding.rows", dtype);
    const auto used = config.at("tokens_used").get<std::vector<int64_t>>();
    ours.at("text.token_embedding.weight").index_copy_(0, torch::tensor(used, torch::kInt64), rows);
    int64_t next = 0;  // prompts come in the order of the stored ids
    const Tensor classes = tasks::zero_shot_classes(
        names, templates,
        [&](const std::vector<std::string>& texts) {
          const int64_t count = std::ssize(texts);
          next += count;
          return tower->forward(ids.slice(0, next - count, next));
        },
        97);
    compare.close(dtype == torch::kFloat64 ? "float64 classifier" : "float32 classifier", classes.t(),
                  golden.tensor("output.classifier"), dtype == torch::kFloat64 ? 1e-6 : 1e-4,
                  dtype == torch::kFloat64 ? 1e-7 : 1e-5);
  }
  return compare.result();
}

const Registered registered({
    {"towers", check_towers, {"components/model_siglip", "components/model_clip"}},
    {"coca", check_coca, {"components/model_coca"}},
    {"coca_captions", check_coca_captions, {"components/generate_coca"}},
    {"zero_shot_prompts", check_zero_shot_prompts, {"components/zeroshot_prompts"}},
});

}  // namespace
}  // namespace tessera::parity::tower_cases
