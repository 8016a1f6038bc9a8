// components/model_poolformer*, model_vanillanet*, model_eva02*, model_aim*: the families that the papers compare
// with. Each file holds several cases.

#include <numeric>
#include <sstream>

#include "core/error.h"
#include "models/backbones/baselines.h"
#include "models/base/encoder.h"
#include "nn/position.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::baseline_cases {
namespace {

using Input = std::function<torch::Tensor(const std::string&)>;
using Json = nlohmann::json;

// All cases of a file; `check_part` compares one.
CaseResult check_parts(const Golden& golden, const std::function<CaseResult(const Golden&)>& check_part) {
  std::string passed;
  for (const std::string& name : golden.parts()) {
    const CaseResult one = check_part(golden.part(name));
    if (one.outcome != Outcome::passed) return {one.outcome, name + ": " + one.detail};
    passed += (passed.empty() ? "" : "; ") + name + ": " + one.detail;
  }
  return CaseResult::pass(passed);
}

// Our settings for the arguments in `names` (theirs to ours) that the config has.
Value settings_of(const Json& config, const std::vector<std::pair<const char*, const char*>>& names) {
  Value settings;
  for (const auto& [theirs, ours] : names)
    if (config.contains(theirs)) settings.set(ours, to_value(config[theirs]));
  return settings;
}

NamedOutputs scores(models::Classifier& model, const Input& input) {
  return {{"y", model.forward(input("x"))}};
}

NamedOutputs stage_maps(models::Classifier& model, const Input& input) {
  std::vector<int64_t> stages(static_cast<size_t>(model.backbone->block_count()));
  std::iota(stages.begin(), stages.end(), 0);
  const std::vector<torch::Tensor> maps = model.backbone->features(input("x"), stages);
  NamedOutputs outputs;
  for (size_t i = 0; i < maps.size(); ++i) outputs["feat" + std::to_string(i)] = maps[i];
  return outputs;
}

CaseResult check_poolformer(const Golden& golden) {
  return check_parts(golden, [](const Golden& one) {
    const Json& config = one.config();
    Value settings = settings_of(config, {{"dims", "dims"},
                                          {"depths", "depths"},
                                          {"embed_dims", "dims"},
                                          {"layers", "depths"},
                                          {"num_classes", "classes"},
                                          {"mlp_ratio", "mlp_ratio"},
                                          {"pool_size", "pool_size"}});
    const bool second = config.value("act", "gelu").starts_with("StarReLU");
    settings.set("version", int64_t{second ? 2 : 1});
    settings.set("init_values", config.value("layer_scale", true) ? 1e-5 : 0.0);
    settings.set("form", config.contains("embed_dims") ? "published" : "timm");
    const bool maps = config.value("fork_feat", false);
    settings.set("stage_norms", maps);
    if (maps) settings.set("classes", int64_t{0});
    return compare_model(one, models::resolve_model("poolformer", settings), maps ? stage_maps : scores);
  });
}

CaseResult check_vanillanet(const Golden& golden) {
  return check_parts(golden, [](const Golden& one) {
    const Json& config = one.config();
    Value settings = settings_of(config, {{"dims", "dims"},
                                          {"strides", "strides"},
                                          {"ada_pool", "ada_pool"},
                                          {"num_classes", "classes"},
                                          {"act_num", "act_num"},
                                          {"deploy", "merged"}});
    if (config.contains("act_learn")) settings.set("slope_epochs", int64_t{1});
    settings.set("head_width", to_value(config["num_classes"]));
    return compare_model(one, models::resolve_model("vanillanet", settings),
                         [&](models::Classifier& model, const Input& input) {
                           auto buffers = model.backbone->named_buffers();
                           if (torch::Tensor* slope = buffers.find("act_learn"))
                             slope->fill_(config["act_learn"].get<double>());
                           return scores(model, input);
                         });
  });
}

CaseResult check_eva02(const Golden& golden) {
  return check_parts(golden, [](const Golden& one) {
    const Json& config = one.config();
    Value settings = settings_of(config, {{"img_size", "image_size"},
                                          {"patch_size", "patch_size"},
                                          {"embed_dim", "dim"},
                                          {"depth", "depth"},
                                          {"num_heads", "heads"},
                                          {"mlp_ratio", "mlp_ratio"},
                                          {"num_classes", "classes"},
                                          {"qkv_bias", "qkv_bias"},
                                          {"qkv_fused", "qkv_fused"},
                                          {"qk_norm", "qk_norm"},
                                          {"scale_mlp", "scale_mlp"},
                                          {"scale_attn_inner", "scale_attn_inner"},
                                          {"global_pool", "global_pool"},
                                          {"class_token", "class_token"},
                                          {"use_abs_pos_emb", "positions"},
                                          {"rope_temperature", "rope_theta"}});
    settings.set("mlp", config.value("swiglu_mlp", false) ? "swiglu" : "gelu");
    settings.set("rotary", config.value("use_rot_pos_emb", false));
    if (config.contains("init_values") && !config["init_values"].is_null())
      settings.set("init_values", to_value(config["init_values"]));
    settings.set("reference_grid", int64_t{0});
    if (config.contains("ref_feat_shape"))
      settings.set("reference_grid", to_value(config["ref_feat_shape"][0]));
    return compare_model(
        one, models::resolve_model("eva02", settings), [&](models::Classifier& model, const Input& input) {
          models::Taps taps{.wanted = [](const std::string& name) { return name == "tokens"; }, .kept = {}};
          NamedOutputs outputs{{"y", model.forward(input("x"), models::Context{.taps = &taps})}};
          outputs["tokens"] = taps.kept.at("tokens");
          if (one.has("output.rope_sin_cos")) {
            auto& encoder = dynamic_cast<models::TokenEncoder&>(*model.backbone);
            const models::Tokens tokens = encoder.tokenise(input("x"));
            const torch::Tensor angles = tokens.extras.rotation.angles.slice(0, tokens.before);
            outputs["rope_sin_cos"] = torch::cat({angles.sin(), angles.cos()}, 1).repeat_interleave(2, 1);
          }
          return outputs;
        });
  });
}

// A block's output as tokens.
torch::Tensor tokens_of(const torch::Tensor& map) { return map.flatten(2).transpose(1, 2); }

NamedOutputs aim_outputs(const Golden& golden, models::Classifier& model, const Input& input) {
  const torch::Tensor x = input("x");
  NamedOutputs outputs;
  auto& encoder = dynamic_cast<models::TokenEncoder&>(*model.backbone);
  models::Tokens tokens = encoder.tokenise(x);
  std::vector<int64_t> blocks;
  for (const std::string& block : golden.names("output.feat")) blocks.push_back(std::stoi(block));
  if (golden.has("input.mask"))
    tokens.extras.bias = models::prefix_bias(input("mask").to(torch::kBool).logical_not()).to(x.dtype());
  const models::Encoded encoded = encoder.encode(tokens, {}, blocks);
  for (size_t i = 0; i < blocks.size(); ++i)
    outputs["feat" + std::to_string(blocks[i])] = tokens_of(encoded.maps[i]);
  outputs["tokens"] = tokens.x;
  outputs["y"] = golden.has("input.mask") ? encoded.tokens : model.forward(x);
  return outputs;
}

CaseResult check_aim_model(const Golden& golden) {
  const Json& config = golden.config();
  Value settings = settings_of(config, {{"img_size", "image_size"},
                                        {"patch_size", "patch_size"},
                                        {"embed_dim", "dim"},
                                        {"num_blocks", "depth"},
                                        {"num_heads", "heads"},
                                        {"mlp_ratio", "mlp_ratio"},
                                        {"num_channels", "in_channels"},
                                        {"probe_layers", "probe_layers"},
                                        {"num_classes", "classes"}});
  std::vector<std::string> absent;
  if (golden.has("input.mask")) {  // the trunk alone
    settings.set("classes", int64_t{0});
    settings.set("probe_layers", int64_t{1});
    absent = {"head.cls_token", "head.k.weight", "head.v.weight"};
  }
  return compare_model(
      golden, models::resolve_model("aim", settings),
      [&](models::Classifier& model, const Input& input) { return aim_outputs(golden, model, input); },
      absent);
}

// "sincos/ROWSxCOLUMNS_WIDTH".
void check_aim_tables(Comparison& comparison, const Golden& golden) {
  for (const std::string& name : golden.names("sincos/")) {
    int64_t rows = 0, columns = 0, width = 0;
    char cross = 0, line = 0;
    std::istringstream(name) >> rows >> cross >> columns >> line >> width;
    check(cross == 'x' && line == '_' && width > 0, golden.name, ": a table '", name, "'");
    const torch::Tensor want = golden.tensor("sincos/" + name);
    comparison.close(name, nn::sincos_2d(rows, columns, width).view_as(want), want, 1e-6, 1e-6);
  }
}

CaseResult check_aim(const Golden& golden) {
  Comparison tables;
  check_aim_tables(tables, golden);
  if (tables.count() > 0 && tables.result().outcome != Outcome::passed) return tables.result();
  return check_parts(golden, check_aim_model);
}

const Registered registered({
    {"poolformer", check_poolformer, {"components/model_poolformer"}},
    {"vanillanet", check_vanillanet, {"components/model_vanillanet"}},
    {"eva02", check_eva02, {"components/model_eva02"}},
    {"aim", check_aim, {"components/model_aim"}},
});

}  // namespace
}  // namespace tessera::parity::baseline_cases
