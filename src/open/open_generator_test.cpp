#include "open/open_generator.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "models/backbones/models_testing.h"
#include "tasks/generate/diffuse.h"

namespace tessera::train {
namespace {

using torch::Tensor;

class OpenGenerator : public TemporaryFolder {
 protected:
  // The width of a named size.
  static models::ModelSpec spec(bool llama, int64_t dim = 384) {
    return models::resolve_model("dit", Value(Value::Table{{"image_size", 8},
                                                           {"dim", dim},
                                                           {"depth", 2},
                                                           {"heads", 6},
                                                           {"classes", 0},
                                                           {"labels", 5},
                                                           {"llama", llama}}));
  }
  // Files of diffusers contain no positions: they are computed.
  static auto with_computed_positions(int64_t dim = 384) {
    auto model = models::lively(spec(false, dim), 0.1);
    model->backbone->to(torch::kFloat32);
    const torch::NoGradGuard no_grad;
    const auto fresh = models::build_classifier(spec(false, dim), 1);
    model->backbone->named_parameters()["pos_embed"].copy_(fresh->backbone->named_parameters()["pos_embed"]);
    return model;
  }
  static NamedTensors tensors_of(const models::Classifier& model) {
    NamedTensors tensors;
    for (const auto& [name, tensor] : named_state(*model.backbone))
      tensors.emplace_back(name, tensor.detach().to(torch::kFloat32));
    return tensors;
  }
  static Tensor out_of(models::Backbone& model) {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(3);
    return dynamic_cast<models::Denoiser&>(model).denoise(torch::randn({2, 4, 8, 8}), torch::full({2}, 7.0),
                                                          torch::tensor({1, 4}, torch::kInt64));
  }
  static std::string message_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

// The published files contain only tensors, which determine the settings.
TEST_F(OpenGenerator, TakesPublishedTensors) {
  for (const bool llama : {false, true}) {
    const auto model = models::lively(spec(llama), 0.1);
    model->backbone->to(torch::kFloat32);
    save_tensors(path("dit.safetensors"), tensors_of(*model));
    const OpenedTask opened =
        open_generator(path("dit.safetensors"), {.model = llama ? "DiTLLaMA_S_2" : "DiT-S/2"});
    EXPECT_EQ(opened.info.model.settings.find("labels")->as_int(), 5);
    EXPECT_TRUE(torch::equal(out_of(*opened.task->backbones()[0].model), out_of(*model->backbone)));
    EXPECT_EQ(tasks::generator_of(*opened.task)->process->diffusion()->schedule().steps(), 1000);
  }
}

// The name of another size is refused with the tensor that contradicts it.
TEST_F(OpenGenerator, RefusesTheNameOfAnotherSize) {
  const auto model = models::lively(spec(false), 0.1);
  model->backbone->to(torch::kFloat32);
  save_tensors(path("dit.safetensors"), tensors_of(*model));
  const auto said = [&](const char* name) {
    return message_of([&] { open_generator(path("dit.safetensors"), {.model = name}); });
  };
  EXPECT_EQ(said("dit"), "no error");
  for (const auto& [name, wrong] :
       {std::pair{"DiT-B/2", "is [384, 4, 2, 2], must be [768, 4, 2, 2]"},
        {"SiT-S/8", "is [384, 4, 2, 2], must be [384, 4, 8, 8]"},
        {"DiTLLaMA_S_2", "its blocks have 'mlp.fc1.weight', must have 'mlp.c_fc1.weight'"}}) {
    EXPECT_NE(said(name).find(wrong), std::string::npos) << said(name);
    EXPECT_NE(said(name).find("those of DiT-S/2 or SiT-S/2"), std::string::npos) << said(name);
  }
}

// DiT-S/2 and SiT-S/2 have the same tensors but different uses.
TEST_F(OpenGenerator, SiTIsAnInterpolant) {
  const auto model = models::lively(spec(false), 0.1);
  model->backbone->to(torch::kFloat32);
  save_tensors(path("sit.safetensors"), tensors_of(*model));
  const OpenedTask opened = open_generator(path("sit.safetensors"), {.model = "SiT-S/2"});
  EXPECT_NE(tasks::generator_of(*opened.task)->process->interpolant(), nullptr);
  EXPECT_EQ(tasks::generator_of(*opened.task)->network->output_channels(), 4);
}

NamedTensors as_diffusers(const NamedTensors& published, int64_t blocks) {
  NamedTensors out;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    out.emplace_back(name, tensor.clone());
  };
  const auto replaced = [](std::string name, const std::string& from, const std::string& to) {
    const size_t at = name.find(from);
    return at == std::string::npos ? name : name.replace(at, from.size(), to);
  };
  for (const auto& [name, tensor] : published) {
    if (name == "pos_embed") continue;
    const std::string end = name.substr(name.rfind('.'));
    if (name.starts_with("x_embedder.")) add("pos_embed.proj" + end, tensor);
    for (int64_t i = 0; i < blocks; ++i) {
      const std::string inside = "transformer_blocks." + std::to_string(i) + ".norm1.emb.";
      if (name.starts_with("t_embedder.mlp.0")) add(inside + "timestep_embedder.linear_1" + end, tensor);
      if (name.starts_with("t_embedder.mlp.2")) add(inside + "timestep_embedder.linear_2" + end, tensor);
      if (name.starts_with("y_embedder")) add(inside + "class_embedder.embedding_table" + end, tensor);
    }
    if (name.starts_with("final_layer.adaLN")) add("proj_out_1" + end, tensor);
    if (name.starts_with("final_layer.linear")) add("proj_out_2" + end, tensor);
    if (!name.starts_with("blocks.")) continue;
    std::string theirs = "transformer_" + name;
    if (name.find(".qkv.") != std::string::npos) {
      const auto thirds = tensor.chunk(3);
      for (int k = 0; k < 3; ++k)
        add(replaced(theirs, ".attn.qkv.", std::string(".attn1.to_") + "qkv"[k] + "."),
            thirds[static_cast<size_t>(k)]);
      continue;
    }
    theirs = replaced(theirs, ".adaLN_modulation.1.", ".norm1.linear.");
    theirs = replaced(theirs, ".attn.proj.", ".attn1.to_out.0.");
    theirs = replaced(theirs, ".mlp.fc1.", ".ff.net.0.proj.");
    add(replaced(theirs, ".mlp.fc2.", ".ff.net.2."), tensor);
  }
  return out;
}

TEST_F(OpenGenerator, TakesFoldersOfDiffusers) {
  const auto model = with_computed_positions(24);
  const std::string folder = path("pipeline") + "/transformer";
  std::filesystem::create_directories(folder);
  write_text_atomic(
      folder + "/config.json",
      R"({"_class_name": "DiTTransformer2DModel", "num_attention_heads": 6, "attention_head_dim": 4,
                        "num_layers": 2, "sample_size": 8, "patch_size": 2, "in_channels": 4, "out_channels": 8,
                        "num_embeds_ada_norm": 5})");
  NamedTensors tensors = as_diffusers(tensors_of(*model), 2);
  const std::string file = folder + "/diffusion_pytorch_model.safetensors";
  save_tensors(file, tensors);
  for (const std::string& from : {path("pipeline"), folder}) {
    const OpenedTask opened = open_generator(from);
    EXPECT_TRUE(
        torch::allclose(out_of(*opened.task->backbones()[0].model), out_of(*model->backbone), 1e-5, 1e-6));
  }
  // Writing it again gives the same tensors.
  save_diffusers_dit(open_generator(folder), path("written"));
  EXPECT_TRUE(torch::allclose(out_of(*open_generator(path("written")).task->backbones()[0].model),
                              out_of(*model->backbone), 1e-5, 1e-6));
  for (const char* embedder : {"timestep_embedder.linear_1.bias", "class_embedder.embedding_table.weight"}) {
    NamedTensors changed = tensors;
    for (auto& [name, tensor] : changed)
      if (name == std::string("transformer_blocks.1.norm1.emb.") + embedder) tensor = tensor + 1;
    save_tensors(file, changed);
    EXPECT_NE(message_of([&] { open_generator(folder); }).find("they must be the same"), std::string::npos);
  }
  tensors.pop_back();
  save_tensors(file, tensors);
  EXPECT_NE(message_of([&] { open_generator(folder); }), "no error");
}

// A pipeline of save_pipeline is read with its process, names and VAE, also in a half-precision variant.
TEST_F(OpenGenerator, TakesPipelines) {
  const auto model = with_computed_positions();
  save_tensors(path("dit.safetensors"), tensors_of(*model));
  WeightsInfo vae;
  vae.model = models::resolve_model("autoencoder_kl", Value(Value::Table{{"dims", Value::Array{4, 8}},
                                                                         {"groups", 2},
                                                                         {"depth", 1},
                                                                         {"scaling_factor", 0.5},
                                                                         {"image_size", 16}}));
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_state(*models::build_backbone(vae.model, 1)))
    tensors.emplace_back(name, tensor.detach());
  save_weights(path("vae.safetensors"), tensors, vae);
  const OpenedCodec codec = open_codec(path("vae.safetensors"));
  const std::string folder = path("pipeline"), transformer = folder + "/transformer/";
  save_pipeline(open_generator(path("dit.safetensors"), {.model = "DiT-S/2"}), codec, folder);
  write_text_atomic(folder + "/model_index.json",
                    R"({"id2label": {"0": "a, one", "1": "b", "2": "c", "3": "d", "4": "e"}})");
  write_text_atomic(folder + "/scheduler/scheduler_config.json",
                    R"({"beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction",
                        "num_train_timesteps": 40, "beta_start": 0.01, "beta_end": 0.02})");
  EXPECT_EQ(open_codec(folder).require_scale(), 0.5);
  for (const std::string& from : {folder, transformer}) {
    const OpenedTask opened = open_generator(from);
    EXPECT_TRUE(
        torch::allclose(out_of(*opened.task->backbones()[0].model), out_of(*model->backbone), 1e-5, 1e-6));
    const tasks::Generator& generator = *tasks::generator_of(*opened.task);
    EXPECT_EQ(generator.process->config().predict, diffusion::Prediction::v);
    EXPECT_EQ(generator.process->config().schedule, diffusion::ScheduleKind::cosine);
    EXPECT_EQ(generator.process->config().steps, 40);
    EXPECT_EQ(generator.class_names, (std::vector<std::string>{"a, one", "b", "c", "d", "e"}));
  }
  std::filesystem::rename(transformer + "diffusion_pytorch_model.safetensors",
                          transformer + "diffusion_pytorch_model.fp16.safetensors");
  EXPECT_EQ(open_generator(folder).file,
            transformer.substr(0, transformer.size() - 1) + "/diffusion_pytorch_model.fp16.safetensors");
  write_text_atomic(folder + "/scheduler/scheduler_config.json",
                    R"({"_class_name": "FlowMatchEulerDiscreteScheduler"})");
  EXPECT_NE(message_of([&] { open_generator(folder); }).find("denoising diffusion"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
