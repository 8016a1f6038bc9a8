// models/dit*, models/sit*: the networks, with and without guidance; components/model_dit_diffusers_names.

#include "core/error.h"
#include "diffusion/guidance.h"
#include "models/base/denoiser.h"
#include "models/base/family.h"
#include "tests/parity/model_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::generation_cases {
namespace {

using Json = nlohmann::json;

models::ModelSpec denoiser_spec(const Golden& golden) {
  const Json& config = golden.config();
  const std::string model = golden.meta.at("model").get<std::string>();
  const bool llama = model.find("LLaMA") != std::string::npos, interpolant = model.starts_with("SiT");
  Value settings;
  settings.set("classes", 0);
  settings.set("image_size", to_value(config.value("input_size", Json(32))));
  settings.set("patch_size", config.value("patch_size", int64_t{2}));
  settings.set("channels", config.value("in_channels", int64_t{4}));
  settings.set("dim", config.value("hidden_size", int64_t{1152}));
  settings.set("depth", config.value("depth", int64_t{28}));
  settings.set("heads", config.value("num_heads", int64_t{16}));
  settings.set("mlp_ratio", config.value("mlp_ratio", 4.0));
  settings.set("labels", config.value("num_classes", int64_t{1000}));
  settings.set("null_label", config.value("class_dropout_prob", 0.1) > 0);
  settings.set("llama", llama);
  settings.set("sigma", !config.value("learn_sigma", true) ? "none" : interpolant ? "dropped" : "learned");
  return models::resolve_model("dit", settings);
}

// The published code runs the first half of x twice, with y; both halves of the result have what is guided, and each
// its own other channels.
torch::Tensor doubled(models::Denoiser& model, const torch::Tensor& x, const torch::Tensor& t,
                      const torch::Tensor& y, double scale) {
  const torch::Tensor half = x.chunk(2)[0];
  const std::vector<torch::Tensor> out = model.denoise(torch::cat({half, half}), t, y).chunk(2);
  constexpr int64_t kGuided = 3;
  const torch::Tensor mixed =
      diffusion::guided(out[0], out[1], {.scale = scale, .channels = kGuided}, model.channels());
  return torch::cat({mixed, torch::cat({mixed.slice(1, 0, kGuided), out[1].slice(1, kGuided)}, 1)});
}

CaseResult check_denoiser(const Golden& golden) {
  const auto run = [&](models::Classifier& model, const auto& input) -> NamedOutputs {
    auto& denoiser = dynamic_cast<models::Denoiser&>(*model.backbone);
    const torch::Tensor x = input("x"), y = input("y");
    torch::Tensor t = input("t");
    if (!t.is_floating_point()) t = t.to(x.scalar_type());
    if (golden.config().contains("cfg_scale"))
      return {{"out", doubled(denoiser, x, t, y, golden.config()["cfg_scale"].get<double>())}};
    return {{"out", denoiser.denoise(x, t, y)}};
  };
  return compare_model(golden, denoiser_spec(golden), run);
}

CaseResult check_diffusers_names(const Golden& golden) {
  Comparison comparison;
  const auto place_of = [](const std::string& name) {
    return train::names_of_family("dit").ours({name}).front();
  };
  for (const Json& row : golden.config().at("block_0_and_rest")) {
    const std::string ours = row[0], theirs = row[1];
    const train::NamePlace place = place_of(theirs);
    const int64_t third = row[2].is_null() ? 0 : row[2].get<int64_t>();
    comparison.holds(theirs, place.ours == ours && place.join.ours.first == third, "becomes " + place.ours);
    comparison.holds(ours, place_of(ours).ours == ours, "is renamed");
    if (theirs.starts_with("transformer_blocks.0.") && ours.starts_with("blocks.")) {
      const std::string later = "transformer_blocks.11" + theirs.substr(20);
      comparison.holds(later, place_of(later).ours == "blocks.11" + ours.substr(8),
                       "becomes " + place_of(later).ours);
    }
  }
  for (const Json& repeated : golden.config().at("repeated_in_every_block")) {
    for (const Json& row : golden.config().at("block_0_and_rest")) {
      const std::string ours = row[0], theirs = row[1];
      if (!ours.starts_with(repeated.get<std::string>())) continue;
      const std::string later = "transformer_blocks.1" + theirs.substr(20);
      comparison.holds(later, place_of(later).each && place_of(later).ours == ours, "is no copy");
    }
  }
  return comparison.result();
}

const Registered registered({
    {"denoiser", check_denoiser, {"models/dit", "models/sit"}},
    {"diffusers_names", check_diffusers_names, {"components/model_dit_diffusers_names"}},
});

}  // namespace
}  // namespace tessera::parity::generation_cases
