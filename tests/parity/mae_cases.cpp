// models/vllama_mae_*, components/model_mae_vit, loss_mae_pixel: a step of masked pre-training under the published
// names.
#include "core/error.h"
#include "models/base/encoder.h"
#include "nn/linear.h"
#include "nn/patch_embed.h"
#include "tasks/pretrain/mae.h"
#include "tests/parity/model_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::mae_cases {
namespace {

using Json = nlohmann::json;

struct Step {
  models::ModelSpec spec;
  models::MaeDecoderOptions decoder;
  double mask_ratio = 0.75;
  bool normalise = true;
};

// The order that the published code makes of its random numbers: ascending, the first are kept.
BuiltCase built_case(const Step& step, torch::ScalarType dtype) {
  const auto encoder = models::build_backbone(step.spec, 0);
  const auto decoder = std::make_shared<models::MaeDecoder>(step.decoder);
  const auto run = [=](const std::function<torch::Tensor(const std::string&)>& input) {
    const torch::Tensor order = input("noise").detach().argsort(1, /*descending=*/false),
                        restore = order.argsort(1, false);
    const int64_t patches = order.size(1);
    const auto visible = static_cast<int64_t>(static_cast<double>(patches) * (1 - step.mask_ratio));
    const torch::Tensor images = input("x");
    const tasks::MaePass pass =
        tasks::mae_pass(dynamic_cast<models::TokenEncoder&>(*encoder), *decoder, images, order, visible, {});
    const torch::Tensor masked = order.slice(1, visible);
    const torch::Tensor targets = tasks::mae_targets(images, step.decoder.patch, step.normalise);
    return NamedOutputs{{"latent", pass.latent},
                        {"pred", pass.predicted},
                        {"ids_restore", restore},
                        {"mask", torch::zeros_like(order).scatter_(1, masked, 1).to(torch::kFloat64)},
                        {"loss", tasks::mae_loss(pass.predicted, targets, masked).mean()}};
  };
  for (const std::shared_ptr<torch::nn::Module>& module :
       {std::shared_ptr<torch::nn::Module>(encoder), std::shared_ptr<torch::nn::Module>(decoder)})
    module->to(dtype);
  return {{encoder, decoder}, run};
}

// mmpretrain's names to ours; frozen tables are computed.
std::string rename_mmpretrain(const std::string& published) {
  if (published.ends_with("pos_embed")) return "";
  if (published.starts_with("backbone.ln1.")) return "norm." + published.substr(13);
  if (published.starts_with("backbone.")) return train::our_name(published.substr(9), "visionllama");
  std::string name = published.substr(5);  // neck.
  if (name.starts_with("ln1.")) return "decoder_norm." + name.substr(4);
  static const std::vector<std::pair<std::string, std::string>> inside = {{".ln1.", ".norm1."},
                                                                          {".ln2.", ".norm2."},
                                                                          {".ffn.layers.0.0.", ".mlp.fc1."},
                                                                          {".ffn.layers.1.", ".mlp.fc2."}};
  for (const auto& [theirs, ours] : inside)
    if (const size_t at = name.find(theirs); at != std::string::npos) name.replace(at, theirs.size(), ours);
  return name;
}

CaseResult check_visionllama_mae(const Golden& golden) {
  const Json &config = golden.config(), &arch = config["arch"], &decoder = config["decoder"];
  const auto side = config["img_size"].get<int64_t>(), patch = config["patch_size"].get<int64_t>();
  Value settings(Value::Table{{"image_size", side},
                              {"patch_size", patch},
                              {"dim", to_value(arch["embed_dims"])},
                              {"depth", to_value(arch["num_layers"])},
                              {"heads", to_value(arch["num_heads"])},
                              {"mlp", "swiglu_packed"},
                              {"mlp_hidden", nn::llama_hidden(arch["feedforward_channels"].get<int64_t>())},
                              {"init_values", 0.0},
                              {"class_token", false},
                              {"classes", 0}});
  const Step step{.spec = models::resolve_model("visionllama", settings),
                  .decoder = {.dim = decoder["decoder_embed_dim"],
                              .depth = decoder["decoder_depth"],
                              .heads = decoder["decoder_num_heads"],
                              .mlp_ratio = decoder.value("mlp_ratio", 4.0),
                              .encoder_width = arch["embed_dims"],
                              .patch = patch,
                              .rows = side / patch,
                              .columns = side / patch,
                              .late_class_token = true,
                              .rows_first = true},
                  .mask_ratio = config["mask_ratio"],
                  .normalise = config["norm_pix"]};
  Comparison comparison;
  compare_built(comparison, golden, golden, "", rename_mmpretrain,
                [&](torch::ScalarType dtype) { return built_case(step, dtype); });
  return comparison.result();
}

CaseResult check_mae_vit(const Golden& golden) {
  const Json& config = golden.config();
  const auto side = config["img_size"].get<int64_t>(), patch = config["patch_size"].get<int64_t>();
  Value settings(Value::Table{{"image_size", side},
                              {"patch_size", patch},
                              {"dim", to_value(config["embed_dim"])},
                              {"depth", to_value(config["depth"])},
                              {"heads", to_value(config["num_heads"])},
                              {"mlp_ratio", to_value(config["mlp_ratio"])},
                              {"positions", "sincos"},
                              {"classes", 0}});
  Comparison comparison;
  for (const auto& [name, one] : config["cases"].items()) {
    const Step step{.spec = models::resolve_model("vit", settings),
                    .decoder = {.dim = config["decoder_embed_dim"],
                                .depth = config["decoder_depth"],
                                .heads = config["decoder_num_heads"],
                                .mlp_ratio = config["mlp_ratio"],
                                .encoder_width = config["embed_dim"],
                                .patch = patch,
                                .rows = side / patch,
                                .columns = side / patch},
                    .mask_ratio = one["mask_ratio"],
                    .normalise = one["norm_pix_loss"]};
    const auto rename = [](const std::string& published) -> std::string {
      return published.ends_with("pos_embed") ? "" : published;
    };
    compare_built(comparison, golden, golden, name + "/", rename, [&](torch::ScalarType dtype) {
      BuiltCase built = built_case(step, dtype);
      const auto run = built.run;
      built.run = [run](const std::function<torch::Tensor(const std::string&)>& input) {
        NamedOutputs outputs = run(input);
        outputs["loss"] = outputs["loss"].view({1});
        return outputs;
      };
      return built;
    });
  }
  return comparison.result();
}

// The golden's images have different numbers of masked patches, which a task's have not: each by itself.
CaseResult check_mae_pixel(const Golden& golden) {
  const auto patch = golden.config()["patch_size"].get<int64_t>();
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const torch::Tensor images = golden.tensor("input.images", dtype), mask = golden.tensor("input.mask");
    comparison.close("patchify", nn::patchify(images, patch), golden.tensor("output.patchify"), 1e-5, 1e-6);
    comparison.close("target", tasks::mae_targets(images, patch, true),
                     golden.tensor("output.norm_pix.target"), 1e-5, 1e-5);
    for (const std::string name : {"raw", "norm_pix"}) {
      const torch::Tensor pred = golden.tensor("input.pred", dtype).requires_grad_();
      const torch::Tensor targets = tasks::mae_targets(images, patch, name == "norm_pix");
      torch::Tensor sum = torch::zeros({1}, dtype);
      for (int64_t i = 0; i < mask.size(0); ++i) {
        const torch::Tensor masked = mask[i].nonzero().view({1, -1});
        sum = sum + tasks::mae_loss(pred.slice(0, i, i + 1), targets.slice(0, i, i + 1), masked) *
                        static_cast<double>(masked.size(1));
      }
      const torch::Tensor loss = sum / mask.sum().item<double>();
      loss.sum().backward();
      comparison.close(name + ".loss", loss, golden.tensor("output." + name + ".loss"), 1e-5, 1e-6);
      comparison.close(name + " gradient", pred.grad(), golden.tensor("grad." + name + ".pred"), 1e-5, 1e-7);
    }
  }
  return comparison.result();
}

const Registered registered({
    {"visionllama_mae", check_visionllama_mae, {"models/vllama_mae"}},
    {"mae_vit", check_mae_vit, {"components/model_mae_vit"}},
    {"mae_pixel", check_mae_pixel, {"components/loss_mae_pixel"}},
});

}  // namespace
}  // namespace tessera::parity::mae_cases
