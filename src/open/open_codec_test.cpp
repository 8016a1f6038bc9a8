#include "weights/open_codec.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/value.h"
#include "io/files/io_testing.h"
#include "io/weights/safetensors.h"
#include "models/base/family.h"
#include "open/open_task.h"

namespace tessera::train {
namespace {

class OpenCodec : public TemporaryFolder {
 protected:
  std::string error_opening(const std::string& name) const {
    std::string line = error_of([&] { open_codec(path(name)); });
    for (size_t at = line.find(folder()); at != std::string::npos; at = line.find(folder()))
      line.replace(at, folder().size() + 1, "");
    return line;
  }
};

models::ModelSpec small_spec(const std::string& more = "") {
  return models::resolve_model("autoencoder_kl",
                               parse_toml("image_size = 16\ndims = [32, 64]\ndepth = 1\n" + more, "model"));
}

void expect_same(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto ours = a.named_parameters(), theirs = b.named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  for (const auto& entry : ours)
    EXPECT_TRUE(torch::equal(entry.value(), *theirs.find(entry.key()))) << entry.key();
}

// The golden's parameters under both forms of diffusers' names, in a folder like those of diffusers.
TEST_F(OpenCodec, ReadsBothFormsOfDiffusersFolders) {
  const std::string golden = std::string(TESSERA_TEST_DATA) + "/goldens/components/model_autoencoder_kl";
  const SafetensorsFile file(golden + ".safetensors");
  const auto names = nlohmann::json::parse(read_text(golden + ".json")).at("config").at("names");
  std::shared_ptr<models::Backbone> first;
  for (const char* form : {"diffusers_published", "diffusers_new"}) {
    const std::string vae = path(form) + "/vae";
    make_directories(vae);
    NamedTensors tensors;
    for (size_t i = 0; i < names.at(form).size(); ++i)
      tensors.emplace_back(names.at(form)[i],
                           to_tensor(*file.find("param." + names.at("compvis")[i].get<std::string>())));
    save_tensors(vae + "/diffusion_pytorch_model.safetensors", tensors);
    write_text_atomic(
        vae + "/config.json",
        R"({"_class_name": "AutoencoderKL", "block_out_channels": [16, 32], "layers_per_block": 1,
                          "latent_channels": 4, "norm_num_groups": 4, "sample_size": 24, "scaling_factor": 0.5})");
    for (const std::string& place : {path(form), vae}) {
      const OpenedCodec opened = open_codec(place);
      EXPECT_EQ(opened.scale, 0.5);
      EXPECT_EQ(opened.image_size, 24);
      EXPECT_EQ(opened.codec->factor(), 2);
      if (first) expect_same(*opened.model, *first);
      first = opened.model;
    }
  }
  const auto parameters = first->named_parameters();
  EXPECT_TRUE(torch::equal(parameters["decoder.up.1.upsample.conv.weight"],
                           to_tensor(*file.find("param.decoder.up.1.upsample.conv.weight"))));
}

// Like Stable Diffusion 3: no convolutions at the latent, a shift. The other form has no attention. Without
// the description, tensors determine all but scale and shift.
TEST_F(OpenCodec, ReadsOnesWithoutLatentConvolutionsOrAttention) {
  const auto model =
      models::build_backbone(small_spec("quant_conv = false\nattention = false\nshift_factor = 0.25"), 5);
  NamedTensors tensors;
  for (const auto& entry : model->named_parameters())
    tensors.emplace_back(entry.key(), entry.value().detach());
  make_directories(path("vae"));
  save_tensors(path("vae/diffusion_pytorch_model.safetensors"), tensors);
  const std::string described =
      R"({"block_out_channels": [32, 64], "layers_per_block": 1, "sample_size": 16, "shift_factor": 0.25,
          "mid_block_add_attention": false, "use_quant_conv": false, "use_post_quant_conv": )";
  write_text_atomic(path("vae/config.json"), described + "false}");
  const OpenedCodec opened = open_codec(path("vae"));
  expect_same(*opened.model, *model);
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::rand({1, 3, 16, 16});
  save_tensors(path("bare.safetensors"), tensors);
  const OpenedCodec bare = open_codec(path("bare.safetensors"));
  expect_same(*bare.model, *model);
  const torch::Tensor latent = opened.codec->encode(x).mean, unshifted = bare.codec->encode(x).mean;
  EXPECT_TRUE(torch::equal(latent, unshifted - 0.25));
  EXPECT_TRUE(torch::allclose(opened.codec->decode(latent), bare.codec->decode(unshifted), 1e-4, 1e-4));
  write_text_atomic(path("vae/config.json"), described + "true}");
  EXPECT_NE(error_opening("vae").find("use_quant_conv and use_post_quant_conv differ"), std::string::npos);
}

// Attention as 1x1 convolutions, a prefix, and tensors of the rest of the model.
TEST_F(OpenCodec, ReadsWhatStandsInALatentDiffusionModel) {
  const auto model = models::build_backbone(small_spec(), 5);
  NamedTensors tensors{{"model.diffusion_model.x", torch::zeros({2})},
                       {"first_stage_model.loss.logvar", torch::zeros({1})}};
  for (const auto& entry : model->named_parameters()) {
    const bool place = entry.key().find("attn_1") != std::string::npos && entry.value().dim() == 2;
    tensors.emplace_back(
        "first_stage_model." + entry.key(),
        place ? entry.value().detach().unsqueeze(2).unsqueeze(3).contiguous() : entry.value().detach());
  }
  save_tensors(path("ldm.safetensors"), tensors);
  const OpenedCodec opened = open_codec(path("ldm.safetensors"));
  expect_same(*opened.model, *model);
  EXPECT_EQ(opened.scale, 0);
  EXPECT_EQ(opened.notes.size(), 1u);
  EXPECT_NE(error_of([&] { opened.require_scale(); }).find("has no scale of its latents"), std::string::npos);
}

TEST_F(OpenCodec, ReadsOurOwnWithTheScaleThatTrainingMeasured) {
  const auto model = models::build_backbone(small_spec("scaling_factor = 0.0"), 5);
  NamedTensors tensors;
  for (const auto& entry : model->named_parameters())
    tensors.emplace_back(entry.key(), entry.value().detach());
  tensors.emplace_back("latent_scale.running_mean", torch::zeros({1}));
  tensors.emplace_back("latent_scale.running_var", torch::full({1}, 4.0));
  WeightsInfo info;
  info.model = small_spec("scaling_factor = 0.0");
  save_weights(path("model.safetensors"), tensors, info);
  const OpenedCodec opened = open_codec(path("model.safetensors"));
  expect_same(*opened.model, *model);
  EXPECT_EQ(opened.scale, 0.5);
  EXPECT_EQ(opened.image_size, 16);
}

TEST_F(OpenCodec, SaysWhatIsWrong) {
  save_tensors(path("other.safetensors"), {{"x", torch::zeros({2})}});
  EXPECT_EQ(error_opening("other.safetensors"),
            "'other.safetensors': holds no auto-encoder: it has no tensor 'decoder.conv_in.weight' of 4 "
            "dimensions");
  const auto model = models::build_backbone(small_spec(), 5);
  NamedTensors tensors;
  for (const auto& entry : model->named_parameters())
    if (entry.key() != "decoder.conv_out.bias") tensors.emplace_back(entry.key(), entry.value().detach());
  save_tensors(path("part.safetensors"), tensors);
  EXPECT_EQ(error_opening("part.safetensors"),
            "'part.safetensors' holds no such auto-encoder: 1 tensor missing (decoder.conv_out.bias)");
  torch::Tensor bias = model->named_parameters()["decoder.conv_out.bias"].detach().clone();
  bias[1] = std::numeric_limits<float>::quiet_NaN();
  tensors.emplace_back("decoder.conv_out.bias", bias);
  save_tensors(path("part.safetensors"), tensors);
  EXPECT_EQ(
      error_opening("part.safetensors"),
      "'part.safetensors': tensor 'decoder.conv_out.bias' holds numbers that are not finite: no image can "
      "be made of them");
}

}  // namespace
}  // namespace tessera::train
