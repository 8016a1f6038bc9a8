// components/model_simmim*, model_maskfeat*, model_beit*: masked modelling with mask tokens. Each file holds several
// cases; their names begin with the case.

#include "core/error.h"
#include "models/base/patch_mask.h"
#include "nn/linear.h"
#include "tasks/pretrain/beit.h"
#include "tasks/pretrain/maskfeat.h"
#include "tasks/pretrain/simmim.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::masked_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

struct MaskToken : torch::nn::Module {
  explicit MaskToken(int64_t width) { value = register_parameter("mask_token", torch::zeros({width})); }
  Tensor value;
};

// A model with the modules of an objective, filled from a case.
struct Masked {
  std::shared_ptr<models::Backbone> model;
  models::MasksPatches* masker = nullptr;
  std::shared_ptr<MaskToken> token;

  Tensor map(const Tensor& images, const Tensor& mask, bool normed) const {
    return masker->masked_map(images, {mask.to(torch::kBool), token->value}, normed);
  }
};

// `inside` begins the published names of the model ("encoder."). Names of the other modules are those of ours.
Masked built(PublishedCase& one, const Golden& golden, const std::string& prefix,
             const models::ModelSpec& spec, const std::string& inside, std::vector<NamedModule> modules) {
  Masked masked;
  masked.model = models::build_backbone(spec, 0);
  masked.masker = &dynamic_cast<models::MasksPatches&>(*masked.model);
  masked.token = std::make_shared<MaskToken>(masked.masker->mask_width());
  std::vector<std::string> of_model;
  std::vector<train::NamePlace> places;
  for (const auto& [name, shape] : shapes_of(golden, prefix)) {
    const bool other = std::any_of(modules.begin(), modules.end(), [&, &name = name](const auto& module) {
      return name.starts_with(module.prefix);
    });
    if (name == inside + "mask_token")
      places.push_back({name, "mask_token"});
    else if (other)
      places.push_back({name, name});
    else
      of_model.push_back(name.substr(inside.size()));
  }
  for (train::NamePlace place : train::names_of_family(spec.family).ours(of_model)) {
    place.theirs = inside + place.theirs;
    places.push_back(std::move(place));
  }
  modules.insert(modules.end(), {{"", masked.model}, {"", masked.token}});
  one.load(modules, train::sources_of(places));
  return masked;
}

Value vit_settings(const Json& config) {
  Value settings(Value::Table{{"classes", int64_t{0}}});
  for (const auto& [theirs, ours] : {std::pair{"img_size", "image_size"},
                                     {"image", "image_size"},
                                     {"patch_size", "patch_size"},
                                     {"patch", "patch_size"},
                                     {"embed_dim", "dim"},
                                     {"dim", "dim"},
                                     {"depth", "depth"},
                                     {"num_heads", "heads"},
                                     {"heads", "heads"},
                                     {"mlp_ratio", "mlp_ratio"},
                                     {"qkv_bias", "qkv_bias"},
                                     {"num_classes", "classes"},
                                     {"init_values", "init_values"},
                                     {"attn_head_dim", "head_dim"},
                                     {"use_rel_pos_bias", "relative_table"},
                                     {"use_shared_rel_pos_bias", "shared_table"}})
    if (config.contains(theirs) && !config[theirs].is_null()) settings.set(ours, to_value(config[theirs]));
  settings.set("positions", config.value("use_abs_pos_emb", true) ? "learned" : "none");
  if (config.value("use_mean_pooling", false)) settings.set("global_pool", "avg");
  return settings;
}

// Compares every case of a file, in both precisions.
CaseResult check_cases(
    const Golden& golden,
    const std::function<void(Comparison&, const std::string& name, torch::ScalarType)>& run) {
  Comparison comparison;
  for (const std::string& name : golden.parts())
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) run(comparison, name, dtype);
  return comparison.result();
}

// A mask of a permutation of the units.
void check_units(Comparison& comparison, const Golden& golden, const std::string& name) {
  const Json& config = golden.config()[name];
  const auto side = config["mask_patch_size"].get<int64_t>(),
             units = config["input_size"].get<int64_t>() / side;
  const tasks::MaskUnits grid{units, units, side / config["model_patch_size"].get<int64_t>()};
  const Tensor order = golden.tensor(name + "/input.permutation").to(torch::kInt64).contiguous();
  const std::vector<int64_t> mask =
      tasks::simmim_mask(grid, {order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + order.numel()},
                         tasks::simmim_masked(grid.count(), config["mask_ratio"]));
  const Tensor want = golden.tensor(name + "/output.mask").to(torch::kInt64);
  comparison.equal(name, torch::tensor(mask).view_as(want), want);
}

void check_simmim_model(Comparison& comparison, const Golden& golden, const std::string& name,
                        torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  models::ModelSpec spec;
  if (config.contains("depths")) {
    Json swin = config;
    for (const char* key : {"ape", "encoder_stride", "mask_patch_size", "mask_ratio"}) swin.erase(key);
    swin["num_classes"] = 0;
    Value settings = swin_spec(swin).settings;
    if (config.value("ape", false)) settings.set("positions", "learned");
    spec = models::resolve_model("swin", settings);
  } else {
    spec = models::resolve_model("vit", vit_settings(config));
  }
  const auto stride = config["encoder_stride"].get<int64_t>();
  PublishedCase one(comparison, golden, dtype, name + "/");
  const auto shape = golden.view(name + "/param.decoder.0.weight").shape;
  const auto decoder = std::make_shared<nn::LinearImpl>(shape[1], shape[0]);
  const Masked model = built(one, golden, name + "/", spec, "encoder.", {{"decoder.0.", decoder}});
  const Tensor images = one.input("x"), mask = one.input("mask");
  const Tensor map = model.map(images, mask, /*normed=*/true);
  const Tensor predicted = tasks::simmim_images(decoder->forward(map.permute({0, 2, 3, 1})), stride);
  const int64_t patch = images.size(2) / mask.size(1);
  const Tensor pixels = mask.repeat_interleave(patch, 1).repeat_interleave(patch, 2).to(dtype);
  const Tensor loss = tasks::simmim_errors(predicted, images, pixels).sum() / (pixels.sum() + 1e-5) / 3;
  one.output("x_rec", predicted);
  one.output("loss", loss.view({1}));
  one.gradients();
}

CaseResult check_simmim(const Golden& golden) {
  return check_cases(golden, [&](Comparison& comparison, const std::string& name, torch::ScalarType dtype) {
    if (name.starts_with("mask/"))
      check_units(comparison, golden, name);
    else
      check_simmim_model(comparison, golden, name, dtype);
  });
}

tasks::MaskFeatConfig maskfeat_config(const Json& config) {
  tasks::MaskFeatConfig out;
  if (config.value("target", "hog").starts_with("pixels")) out.target = tasks::MaskFeatTarget::pixels;
  return out;
}

// The masked rows of [batch, patches, numbers].
Tensor masked_rows(const Tensor& rows, const Tensor& mask) {
  return rows.flatten(0, 1).index_select(0, mask.flatten().nonzero().squeeze(1));
}

void check_maskfeat_loss(PublishedCase& one, const Json& config, const Tensor& all, const Tensor& images,
                         const Tensor& mask) {
  const Tensor predicted = masked_rows(all, mask);
  const Tensor target = masked_rows(
      tasks::maskfeat_targets(images, images.size(2) / mask.size(1), maskfeat_config(config)), mask);
  one.output("prediction", predicted);
  one.output("target", target);
  one.output("loss", (predicted - target).square().mean().view({1}));
  one.gradients();
}

void check_maskfeat_case(Comparison& comparison, const Golden& golden, const std::string& name,
                         torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  PublishedCase one(comparison, golden, dtype, name + "/");
  if (name.starts_with("hog/"))
    return one.output("y", tasks::hog(one.input("x").detach(), {.bins = config["nbins"],
                                                                .cell = config["pool"],
                                                                .window = config["gaussian_window"]}));
  const Tensor images = one.input("const_image").detach(), mask = one.input("const_mask").detach();
  const std::string head = name.starts_with("step") ? "" : "pred_head.";
  const auto shape = golden.view(name + "/param." + head + "projections.0.weight").shape;
  const auto layers = std::make_shared<tasks::MaskFeatLayers>(shape[1], shape[0]);
  if (head.empty()) {
    std::vector<train::NamePlace> places;
    for (const auto& [published, extents] : shapes_of(golden, name + "/"))
      places.push_back({published, published});
    one.load({{"", layers}}, train::sources_of(places));
    return check_maskfeat_loss(one, config, layers->forward(one.input("tokens").slice(1, 1)), images, mask);
  }
  Value settings = vit_settings(config);
  settings.set("final_norm", false);
  const Masked model =
      built(one, golden, name + "/", models::resolve_model("vit", settings), "", {{head, layers}});
  const Tensor map = model.map(images, mask, /*normed=*/false);
  const Tensor all = layers->forward(map.flatten(2).transpose(1, 2));
  one.output("prediction_all", all);
  check_maskfeat_loss(one, config, all, images, mask);
}

CaseResult check_maskfeat(const Golden& golden) {
  return check_cases(golden, [&](Comparison& comparison, const std::string& name, torch::ScalarType dtype) {
    check_maskfeat_case(comparison, golden, name, dtype);
  });
}

void check_beit_case(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  const models::ModelSpec spec = models::resolve_model("vit", vit_settings(config));
  PublishedCase one(comparison, golden, dtype, name + "/");
  if (config.contains("num_classes")) {
    const auto model = models::build_classifier(spec, 0);
    std::vector<std::string> published;
    for (const auto& [published_name, shape] : shapes_of(golden, name + "/"))
      published.push_back(published_name);
    one.load({{"", model->backbone}}, train::sources_of(train::names_of_family("vit").ours(published)));
    one.output("y", model->forward(one.input("x")));
    return one.gradients();
  }
  const auto shape = golden.view(name + "/param.lm_head.weight").shape;
  const auto head = std::make_shared<nn::LinearImpl>(shape[1], shape[0]);
  const Masked model = built(one, golden, name + "/", spec, "", {{"lm_head.", head}});
  const Tensor images = one.input("x"), mask = one.input("bool_masked_pos").detach().to(torch::kInt64);
  const int64_t patch = spec.settings.find("patch_size")->as_int();
  const Tensor map =
      model.map(images, mask.view({-1, images.size(2) / patch, images.size(3) / patch}), /*normed=*/true);
  const Tensor all = head->forward(map.flatten(2).transpose(1, 2));
  const Tensor scores = masked_rows(all, mask),
               tokens = golden.tensor(name + "/input.token_ids").to(torch::kInt64);
  const Tensor right = scores.argmax(1) == masked_rows(tokens.unsqueeze(2), mask).squeeze(1);
  one.output("logits_all", all);
  one.output("logits", scores);
  one.output("mim_acc", right.to(dtype).mean().view({1}));
  one.output("loss", (tasks::beit_losses(scores, tokens, mask).sum() / mask.sum().to(dtype)).view({1}));
  one.gradients();
}

CaseResult check_beit(const Golden& golden) {
  return check_cases(golden, [&](Comparison& comparison, const std::string& name, torch::ScalarType dtype) {
    check_beit_case(comparison, golden, name, dtype);
  });
}

const Registered registered({
    {"simmim", check_simmim, {"components/model_simmim"}},
    {"maskfeat", check_maskfeat, {"components/model_maskfeat"}},
    {"beit", check_beit, {"components/model_beit"}},
});

}  // namespace
}  // namespace tessera::parity::masked_cases
