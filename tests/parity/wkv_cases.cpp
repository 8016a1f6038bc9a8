// components/block_bi_wkv, model_vrwkv*: WKV attention in two directions, q-shift, the two mixes and Vision-RWKV. A
// golden holds several cases, each under its name; output.kernel_* are the numbers of the published CUDA kernel.
#include "core/error.h"
#include "models/base/encoder.h"
#include "models/heads/class_head.h"
#include "nn/wkv_mix.h"
#include "ops/bi_wkv.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::wkv_cases {
namespace {

using torch::Tensor;

constexpr torch::ScalarType kPrecisions[] = {torch::kFloat64, torch::kFloat32};

void check_attention(Comparison& comparison, const Golden& golden, const std::string& name,
                     const nlohmann::json& config, torch::ScalarType dtype) {
  PublishedCase one(comparison, golden, dtype, name + "/");
  const Tensor w = one.input("w"), u = one.input("u"), k = one.input("k"), v = one.input("v");
  one.output("y", ops::bi_wkv(w, u, k, v));
  // With decays that are not divided by T, divisors of the published kernel nearly cancel.
  const bool usual = !config.contains("w") || !config["w"].get<std::string>().starts_with("not divided");
  if (usual && golden.has(name + "/output.kernel_y")) {
    const torch::NoGradGuard no_grad;
    comparison.close(name + " kernel", ops::bi_wkv_published(w, u, k, v),
                     golden.tensor(name + "/output.kernel_y"), 1e-4, 2e-5);
  }
  one.gradients();
}

void check_shift(Comparison& comparison, const Golden& golden, const std::string& name,
                 const nlohmann::json& config, torch::ScalarType dtype) {
  ConfigReader given(config, name);
  const auto grid = given.at("patch_resolution").get<std::vector<int64_t>>();
  PublishedCase one(comparison, golden, dtype, name + "/");
  one.output("y", ops::quad_shift(one.input("x"), grid.at(0), grid.at(1), given.value("channel_gamma", 0.25),
                                  given.value("shift_pixel", int64_t{1})));
  given.finish();
  one.gradients();
}

void check_mix(Comparison& comparison, const Golden& golden, const std::string& name,
               const nlohmann::json& config, torch::ScalarType dtype) {
  ConfigReader given(config, name);
  const auto grid = given.at("patch_resolution").get<std::vector<int64_t>>();
  nn::WkvMixOptions options;
  options.dim = given.at("n_embd");
  options.hidden = given.value("hidden_rate", int64_t{4}) * options.dim;
  options.channel_gamma = given.value("channel_gamma", 0.25);
  options.shift_pixels = given.value("shift_pixel", int64_t{1});
  options.key_norm = given.value("key_norm", false);
  given.expect("shift_mode", "q_shift");
  given.pass_over({"n_layer", "layer_id", "init_mode"});  // first values
  given.finish();
  const bool spatial = name.starts_with("spatial");
  const auto build = [&](nn::WkvForm form) -> std::shared_ptr<torch::nn::Module> {
    options.form = form;
    if (spatial) return std::make_shared<nn::SpatialMixImpl>(options);
    return std::make_shared<nn::ChannelMixImpl>(options);
  };
  const auto run = [&](torch::nn::Module& mix, const Tensor& x) {
    const nn::WkvGrid at{grid.at(0), grid.at(1)};
    return spatial ? dynamic_cast<nn::SpatialMixImpl&>(mix).forward(x, at)
                   : dynamic_cast<nn::ChannelMixImpl&>(mix).forward(x, at);
  };
  const auto load = [&](PublishedCase& one, const std::shared_ptr<torch::nn::Module>& mix) {
    one.load({{"", mix}},
             train::sources_of(train::NameTable("", "", {}).ours(golden.names(name + "/param."))));
  };
  PublishedCase one(comparison, golden, dtype, name + "/");
  const auto mix = build(nn::WkvForm::paper);
  load(one, mix);
  one.output("y", run(*mix, one.input("x")));
  one.gradients();
  if (!golden.has(name + "/output.kernel_y")) return;
  const torch::NoGradGuard no_grad;
  PublishedCase again(comparison, golden, dtype, name + "/");
  const auto published = build(nn::WkvForm::published);
  load(again, published);
  again.output("kernel_y", run(*published, again.input("x")));
}

CaseResult check_bi_wkv(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items())
    for (const torch::ScalarType dtype : kPrecisions)
      if (name.starts_with("wkv/"))
        check_attention(comparison, golden, name, config, dtype);
      else if (name.starts_with("q_shift/"))
        check_shift(comparison, golden, name, config, dtype);
      else
        check_mix(comparison, golden, name, config, dtype);
  return comparison.result();
}

struct VrwkvCase {
  Value settings;
  std::vector<int64_t> features = {};  // blocks
};

VrwkvCase vrwkv_case(const nlohmann::json& config, const std::string& name) {
  ConfigReader given(config, name);
  VrwkvCase one;
  for (const auto& [theirs, ours] :
       std::vector<std::pair<const char*, const char*>>{{"img_size", "image_size"},
                                                        {"patch_size", "patch_size"},
                                                        {"in_channels", "in_channels"},
                                                        {"embed_dims", "dim"},
                                                        {"depth", "depth"},
                                                        {"drop_path_rate", "drop_path"},
                                                        {"channel_gamma", "channel_gamma"},
                                                        {"shift_pixel", "shift_pixels"},
                                                        {"init_mode", "mix_init"},
                                                        {"post_norm", "post_norm"},
                                                        {"key_norm", "key_norm"},
                                                        {"init_values", "init_values"},
                                                        {"hidden_rate", "hidden_rate"},
                                                        {"final_norm", "final_norm"},
                                                        {"num_classes", "classes"}})
    if (given.has(theirs)) one.settings.set(ours, to_value(config[theirs]));
  if (given.has("out_indices")) {
    const nlohmann::json& blocks = config["out_indices"];
    one.features =
        blocks.is_array() ? blocks.get<std::vector<int64_t>>() : std::vector<int64_t>{blocks.get<int64_t>()};
    const int64_t depth = given.value("depth", int64_t{12});
    for (int64_t& block : one.features)
      if (block < 0) block += depth;
  }
  given.expect("shift_mode", "q_shift");
  given.expect("interpolate_mode", "bicubic");
  given.expect("drop_rate", 0.0);
  given.pass_over({"with_cp"});  // recomputation
  given.finish();
  return one;
}

// Computes the outputs with one form of WKV.
void run_vrwkv(Comparison& comparison, const Golden& golden, const std::string& name, VrwkvCase one,
               const std::string& form, torch::ScalarType dtype) {
  const std::string start = form == "paper" ? "" : "kernel_";
  one.settings.set("wkv", form);
  const models::ModelSpec spec = models::resolve_model("vrwkv", one.settings);
  const auto model = models::build_classifier(spec, 0);
  PublishedCase published(comparison, golden, dtype, name + "/");
  published.load({{"", model->backbone}},
                 train::sources_of(train::names_of_family("vrwkv").ours(golden.names(name + "/param."))));
  const Tensor x = published.input("x");
  if (golden.has(name + "/output." + start + "y")) published.output(start + "y", model->forward(x));
  if (golden.has(name + "/output." + start + "feat0")) {
    std::vector<Tensor> maps = model->backbone->features(x, one.features);
    for (size_t i = 0; i < maps.size(); ++i) {
      // The published code applies the last norm, if it has one, to the last block's map.
      if (one.features[i] + 1 == model->backbone->block_count())
        maps[i] = dynamic_cast<models::TokenEncoder&>(*model->backbone)
                      .last_norm(maps[i].flatten(2).transpose(1, 2))
                      .transpose(1, 2)
                      .reshape(maps[i].sizes());
      published.output(start + "feat" + std::to_string(i), maps[i]);
    }
  }
  if (start.empty()) published.gradients();
}

CaseResult check_vrwkv(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items())
    for (const torch::ScalarType dtype : kPrecisions) {
      const VrwkvCase one = vrwkv_case(config, name);
      run_vrwkv(comparison, golden, name, one, "paper", dtype);
      const torch::NoGradGuard no_grad;
      if (golden.has(name + "/output.kernel_y") || golden.has(name + "/output.kernel_feat0"))
        run_vrwkv(comparison, golden, name, one, "published", dtype);
    }
  return comparison.result();
}

const Registered registered({
    {"bi_wkv", check_bi_wkv, {"components/block_bi_wkv"}},
    {"vrwkv", check_vrwkv, {"components/model_vrwkv"}},
});

}  // namespace
}  // namespace tessera::parity::wkv_cases
