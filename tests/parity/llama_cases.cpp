// models/vllama_*, models/illama_*: VisionLLaMA (plain) and iLLaMA.
#include <algorithm>
#include <regex>
#include <set>

#include "core/error.h"
#include "models/backbones/baselines.h"
#include "models/base/encoder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

// Settings that the published classes name as timm does.
Value common_settings(const Json& config) {
  static const std::map<std::string, std::string> names = {
      {"img_size", "image_size"},     {"patch_size", "patch_size"}, {"num_classes", "classes"},
      {"in_chans", "in_channels"},    {"embed_dim", "dim"},         {"depth", "depth"},
      {"num_heads", "heads"},         {"qkv_bias", "qkv_bias"},     {"mlp_ratio", "mlp_ratio"},
      {"drop_path_rate", "drop_path"}};
  Value settings;
  for (const auto& [key, ours] : names)
    if (config.contains(key)) settings.set(ours, to_value(config[key]));
  return settings;
}

// Hidden width of mmpretrain's layers: LLaMA's sizes it from a number of channels that is widened already.
int64_t mmpretrain_hidden(const std::string& ffn, int64_t channels) {
  if (ffn == "llama_mlp") return nn::llama_hidden(channels);
  if (ffn == "swiglu_fused") return (2 * channels / 3 + 7) / 8 * 8;
  check(ffn == "origin", "mmpretrain's ffn_type '", ffn, "' is not known");
  return channels;
}

// mmpretrain's names; its backbone for fine-tuning has no head.
void masked_pretraining_settings(const Json& config, Value& settings) {
  const Json& arch = config["arch"];
  const std::string ffn = config.value("layer_cfgs", Json::object()).value("ffn_type", "llama_mlp");
  settings.set("dim", to_value(arch["embed_dims"]));
  settings.set("depth", to_value(arch["num_layers"]));
  settings.set("heads", to_value(arch["num_heads"]));
  settings.set("mlp", ffn == "origin" ? "gelu" : "swiglu_packed");
  settings.set("mlp_hidden", mmpretrain_hidden(ffn, arch["feedforward_channels"].get<int64_t>()));
  settings.set("init_values", config.value("layer_scale_init_value", 0.0));
  settings.set("classes", 0);
  // ln1 of all tokens, ln2 of their mean; tokens and maps have the first alone.
  const bool mean = config.value("out_type", "avg_featmap") == "avg_featmap",
             tokens = config.value("final_norm", true);
  settings.set("token_norm", mean && tokens);
  settings.set("final_norm", mean || tokens);
}

// Fails for an argument that nothing here reads.
void check_visionllama_arguments(const Json& config) {
  static const std::set<std::string> read = {
      "img_size", "patch_size", "num_classes", "in_chans", "embed_dim", "depth", "num_heads", "qkv_bias",
      "mlp_ratio", "blk_cls", "norm_layer", "use_cls_token", "auto_scale", "theta", "rpe_ratio", "share_rpe",
      "cls_pos", "use_abs", "lr_pe", "scale", "base_size", "input_hw", "out_indices", "rpe_flags",
      // mmpretrain
      "arch", "layer_cfgs", "layer_scale_init_value", "out_type", "final_norm", "with_cls_token",
      // without effect in evaluation
      "drop_rate", "attn_drop_rate", "drop_path_rate", "stochastic_depth_decay", "skip_first_dp"};
  for (const auto& [key, value] : config.items())
    check(read.contains(key) || value.is_null(), "VisionLLaMA's '", key, "' = ", value.dump(),
          " is a setting unknown here");
  const Json flags = config.value("rpe_flags", Json::array());
  check(std::all_of(flags.begin(), flags.end(), [](const Json& on) { return on == true; }),
        "VisionLLaMA's 'rpe_flags' = ", flags.dump(), " is a setting unknown here");
}

double number_after(const std::string& text_in, const std::string& key, double otherwise) {
  std::smatch match;
  return std::regex_search(text_in, match, std::regex(key + "\\s*=\\s*([-+0-9.eE]+)")) ? std::stod(match[1])
                                                                                       : otherwise;
}

}  // namespace

models::ModelSpec visionllama_spec(const Golden& golden) {
  const Json& config = golden.config();
  const std::string source = golden.meta.value("source_class", "");
  check_visionllama_arguments(config);
  Value settings = common_settings(config);
  settings.set("rope_grid", "square");
  if (source == "VisionTransformerRotate") {
    settings.set("class_token", false);
    settings.set("norm_before_mean", true);
    settings.set("rope", "1d");
    settings.set("rope_scale", config.value("scale", 1.0));
    const std::string notes = golden.meta.value("notes", "");
    if (notes.find("reset_ntk_scale") != std::string::npos) {
      settings.set("rope_ntk_scale", number_after(notes, "scale", 1));
      settings.set("rope_ntk_factor", number_after(notes, "factor", 1));
    }
  } else {
    settings.set("class_token", config.value("use_cls_token", false));
    settings.set("auto_scale", config.value("auto_scale", false));
    settings.set("rope_theta", config.value("theta", 10000.0));
    settings.set("rope_ratio", config.value("rpe_ratio", 1.0));
    settings.set("rope_shared", config.value("share_rpe", true));
    settings.set("class_position", config.value("cls_pos", -1.0));
    if (config.value("use_abs", false))
      settings.set("positions", config.value("lr_pe", true) ? "learned" : "sincos");
  }
  // The segmentation backbone's anchor is a number of tokens, and its grid is the image's.
  if (config.contains("base_size"))
    settings.set("rope_anchor", config["base_size"].get<double>() * config["patch_size"].get<double>());
  if (source == "VisionLLaMASEG") {
    settings.set("rope_grid", "input");
    settings.set("classes", 0);
    settings.set("final_norm", false);
  }
  if (config.contains("arch")) masked_pretraining_settings(config, settings);
  const std::string block = config.value("blk_cls", "LAMABlock");
  if (block == "LAMABlockNoLS" || block == "RBlockRMSNorm" || block == "RBlock")
    settings.set("init_values", 0.0);
  if (block == "LSRBlockRMSNorm" || block == "RBlockRMSNorm" || block == "RBlock")
    settings.set("mlp", "gelu");
  if (config.value("norm_layer", "LN1e-6") == "RMS") settings.set("norm", "rms");
  return models::resolve_model("visionllama", settings);
}

models::ModelSpec illama_spec(const Json& config) {
  Value settings = common_settings(config);
  settings.set("soft_mask", config.value("soft_mask_rate", 0.0));
  return models::resolve_model("illama", settings);
}

namespace {

CaseResult check_visionllama(const Golden& golden) {
  const Json& config = golden.config();
  const bool maps_only = config.contains("out_indices");
  const std::string kind = config.value("out_type", "avg_featmap");  // mmpretrain
  const auto run = [&](models::Classifier& model, const auto& input) {
    if (kind == "featmap" || kind == "raw") {
      auto& encoder = dynamic_cast<models::TokenEncoder&>(*model.backbone);
      const models::Encoded encoded = encoder.encode(encoder.tokenise(input("x")));
      return NamedOutputs{{"out", kind == "raw" ? encoded.tokens : encoded.map_of(encoded.tokens)}};
    }
    if (!maps_only) return NamedOutputs{{"out", model.forward(input("x"))}};
    const auto maps = model.backbone->features(input("x"), config["out_indices"].get<std::vector<int64_t>>());
    NamedOutputs outputs;
    for (size_t i = 0; i < maps.size(); ++i) outputs["feat" + std::to_string(i)] = maps[i];
    return outputs;
  };
  return compare_model(golden, visionllama_spec(golden), run);
}

CaseResult check_illama(const Golden& golden) {
  return compare_model(golden, illama_spec(golden.config()),
                       [](models::Classifier& model, const auto& input) {
                         return NamedOutputs{{"out", model.forward(input("x"))}};
                       });
}

CaseResult check_rms_norm(const Golden& golden) {
  const Json& config = golden.config();
  return compare_function(golden, [&](const Leaves& leaves) {
    nn::RmsNorm norm(config["dim"].get<int64_t>(), config["eps"].get<double>());
    norm->weight = leaves.at("param.weight");
    return NamedOutputs{{"out", norm(leaves.at("input.x"))}};
  });
}

CaseResult check_illama_schedules(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, entry] : golden.config().items()) {
    const bool drop = name.starts_with("drop_schedule");
    const std::string mode = entry["mode"];  // dropout's "early" is the mask's "soft"
    const models::RateSchedule schedule{
        .rate = entry[drop ? "drop_rate" : "soft_mask_rate"],
        .epochs = entry["epochs"],
        .steps_per_epoch = entry["niter_per_ep"],
        .cutoff_epoch = entry["cutoff_epoch"],
        .mode = parse_enum<models::RateMode>(mode == "early" ? "soft" : mode, "mode"),
        .shape = parse_enum<models::RateShape>(entry["schedule"], "schedule")};
    comparison.close(name, torch::tensor(models::rates(schedule), torch::kFloat64),
                     golden.tensor("output." + name), 0, 1e-15);
  }
  return comparison.result();
}

CaseResult check_weight_selection(const Golden& golden) {
  Comparison comparison;
  for (const std::string& name : golden.names("input.")) {
    const torch::Tensor want = golden.tensor("output." + name);
    comparison.equal(name, models::select_weights(golden.tensor("input." + name), want.sizes()), want);
  }
  return comparison.result();
}

const Registered registered({
    {"visionllama", check_visionllama, {"models/vllama_mmpretrain", "models/vllama_"}},
    {"illama", check_illama, {"models/illama_"}},
    {"rms_norm", check_rms_norm, {"models/illama_rmsnorm"}},
    {"illama_schedules", check_illama_schedules, {"models/illama_schedules"}},
    {"weight_selection", check_weight_selection, {"models/illama_weight_selection"}},
});

}  // namespace
}  // namespace tessera::parity
