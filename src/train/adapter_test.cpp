// LoRA adapters as files: round trip, merged or separate from the weights, and errors.

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "open/weights.h"
#include "train/train_testing.h"
#include "weights/adapter_config.h"

namespace tessera::train {
namespace {

using models::LanguageModel;

class Adapter : public TemporaryFolder {
 protected:
  static std::shared_ptr<LanguageModel> small(models::LanguageKind kind = models::LanguageKind::llama) {
    auto model = std::make_shared<LanguageModel>(
        models::LanguageConfig{.kind = kind,
                               .vocabulary = 40,
                               .dim = 24,
                               .depth = 2,
                               .heads = 4,
                               .kv_heads = kind == models::LanguageKind::gpt2 ? 0 : 2,
                               .context = 32});
    model->initialise(1);
    return model;
  }
  nlohmann::json description() const {
    return nlohmann::json::parse(read_text(path("adapter/adapter_config.json")));
  }
  static torch::Tensor logits(LanguageModel& model) {
    const torch::NoGradGuard no_grad;
    return model.forward({.ids = torch::arange(10).unsqueeze(0)});
  }
  // Writes an adapter with an effect; returns the logits of the adapted model.
  torch::Tensor write(const models::LoraConfig& config) {
    const auto model = small();
    add_lora(*model, config);
    const torch::NoGradGuard no_grad;
    torch::manual_seed(2);
    for (const auto& entry : model->named_parameters())
      if (entry.key().find(".lora_") != std::string::npos)
        entry.value().copy_(torch::randn_like(entry.value()));
    write_adapter(*model, config, "base", path("adapter"));
    return logits(*model);
  }
};

TEST_F(Adapter, ItIsReadAsItWasWritten) {
  for (const bool by_root : {false, true}) {
    const torch::Tensor wanted =
        write({.rank = 3, .alpha = 8, .by_root = by_root, .targets = {"q_proj", "up_proj"}});
    const auto beside = small(), merged = small();
    EXPECT_FALSE(torch::allclose(logits(*beside), wanted));
    EXPECT_EQ(read_adapter(*beside, path("adapter"), false), 4);
    EXPECT_TRUE(torch::equal(logits(*beside), wanted));
    read_adapter(*merged, path("adapter"), true);
    EXPECT_TRUE(torch::allclose(logits(*merged), wanted, 1e-4, 1e-4));
    EXPECT_EQ(merged->named_parameters().size(), small()->named_parameters().size());
  }
}

// PEFT's settings that choose layers, ranks and scales.
TEST_F(Adapter, PatternsGiveLayersTheirRanks) {
  const AdapterConfig config(nlohmann::ordered_json::parse(R"json({"r": 4, "lora_alpha": 8, "target_modules":
    "model\\.layers\\.\\d+\\.(self_attn\\.[qv]_proj|mlp\\.up_proj)", "exclude_modules": ["v_proj"], "layers_to_transform": [1, 2],
    "rank_pattern": {"layers.2.self_attn.q_proj": 2, "q_proj": 3}, "alpha_pattern": {"up_\\w+": 5}, "use_dora": true})json"),
                             "here");
  const auto rank = [&](const char* name) { return config.layer(name) ? config.layer(name)->rank : 0; };
  EXPECT_EQ(rank("model.layers.0.self_attn.q_proj"), 0);
  EXPECT_EQ(rank("model.layers.1.self_attn.q_proj"), 3);
  EXPECT_EQ(rank("model.layers.2.self_attn.q_proj"), 2);
  EXPECT_EQ(rank("model.layers.12.self_attn.q_proj"), 0);
  EXPECT_EQ(rank("model.layers.1.self_attn.v_proj"), 0);
  EXPECT_EQ(rank("model.layers.1.mlp.up_proj"), 4);
  EXPECT_EQ(config.layer("model.layers.1.mlp.up_proj")->alpha, 5);
  EXPECT_TRUE(config.layer("model.layers.1.mlp.up_proj")->with_magnitude);
}

TEST_F(Adapter, LearnedLengthsAreReadAndMerged) {
  write({.rank = 3, .alpha = 8, .targets = {"q_proj", "up_proj"}});
  nlohmann::json changed = description();
  changed["use_dora"] = true;
  write_text_atomic(path("adapter/adapter_config.json"), changed.dump());
  const auto refusal = error_of([&] { read_adapter(*small(), path("adapter"), false); });
  EXPECT_NE(refusal.find("lora_magnitude_vector"), std::string::npos) << refusal;

  const AdapterConfig config = read_adapter_config(path("adapter/adapter_config.json"));
  const auto adapted = small();
  const torch::Tensor before = logits(*adapted);
  adapt_layers(*adapted, [&](const std::string& name) { return config.layer(name); });
  for (const auto& entry : adapted->named_parameters())
    if (entry.key().ends_with("lora_B.weight")) entry.value().detach().zero_();
  EXPECT_TRUE(torch::allclose(logits(*adapted), before, 1e-5, 1e-5));
  {
    const torch::NoGradGuard no_grad;
    for (const auto& entry : adapted->named_parameters())
      if (entry.key().find(".lora_") != std::string::npos)
        entry.value().add_(torch::randn_like(entry.value()));
  }
  write_adapter(*adapted, {.rank = 3, .alpha = 8, .targets = {"q_proj", "up_proj"}}, "base", path("adapter"));
  write_text_atomic(path("adapter/adapter_config.json"), changed.dump());
  const auto beside = small(), merged = small();
  read_adapter(*beside, path("adapter"), false);
  EXPECT_TRUE(torch::equal(logits(*beside), logits(*adapted)));
  read_adapter(*merged, path("adapter"), true);
  EXPECT_TRUE(torch::allclose(logits(*merged), logits(*adapted), 1e-4, 1e-4));
  EXPECT_EQ(merged->named_parameters().size(), small()->named_parameters().size());
}

// Names as written by PEFT 0.21.
TEST_F(Adapter, SavedModulesAndBiasesReplaceThoseOfTheModel) {
  const auto biased = [] { return small(models::LanguageKind::qwen2); };
  const models::LoraConfig lora{.rank = 3, .alpha = 8, .targets = {"q_proj"}};
  const auto wanted = biased();
  add_lora(*wanted, lora);
  write_adapter(*wanted, lora, "base", path("adapter"));
  NamedTensors tensors = read_tensors(SafetensorsFile(path("adapter/adapter_model.safetensors")));
  const torch::NoGradGuard no_grad;
  for (const auto& entry : wanted->named_parameters()) {
    const std::string& name = entry.key();
    const bool bias = name.ends_with("q_proj.bias");
    if (!bias && name.find("norm") == std::string::npos && name != "lm_head.weight") continue;
    entry.value().add_(torch::randn_like(entry.value()));
    const std::string written = bias ? name.substr(0, name.size() - 4) + "base_layer.bias" : name;
    tensors.emplace_back("base_model.model." + written, entry.value());
  }
  save_tensors(path("adapter/adapter_model.safetensors"), tensors, {{"format", "pt"}});
  nlohmann::json config = description();
  EXPECT_NE(error_of([&] {
              read_adapter(*biased(), path("adapter"), false);
            }).find("adapter_config.json adapts or saves"),
            std::string::npos);
  config["bias"] = "lora_only", config["modules_to_save"] = {"lm_head", "norm"};
  write_text_atomic(path("adapter/adapter_config.json"), config.dump());
  for (const bool merged : {false, true}) {
    const auto read = biased();
    EXPECT_EQ(read_adapter(*read, path("adapter"), merged), 2);
    EXPECT_TRUE(torch::allclose(logits(*read), logits(*wanted), 1e-5, 1e-5));
  }
  std::erase_if(tensors, [](const auto& one) { return one.first.ends_with("model.norm.weight"); });
  save_tensors(path("adapter/adapter_model.safetensors"), tensors, {{"format", "pt"}});
  EXPECT_NE(
      error_of([&] { read_adapter(*biased(), path("adapter"), false); }).find("missing (model.norm.weight)"),
      std::string::npos);
}

// PEFT writes fan_in_fan_out = true for GPT-2, because its layers are stored as [in, out].
TEST_F(Adapter, LayersOfGpt2AreTransposed) {
  const auto gpt2 = [] { return small(models::LanguageKind::gpt2); };
  const auto adapted = gpt2();
  const models::LoraConfig config{.rank = 3, .alpha = 8, .targets = {"c_attn", "c_proj"}};
  add_lora(*adapted, config);
  {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(2);
    for (const auto& entry : adapted->named_parameters())
      if (entry.key().find(".lora_") != std::string::npos) entry.value().normal_();
  }
  write_adapter(*adapted, config, "base", path("adapter"));
  EXPECT_EQ(description()["fan_in_fan_out"], true);
  const auto beside = gpt2(), merged = gpt2();
  EXPECT_EQ(read_adapter(*beside, path("adapter"), false), 6);  // c_proj is in attention and in the MLP
  EXPECT_TRUE(torch::equal(logits(*beside), logits(*adapted)));
  read_adapter(*merged, path("adapter"), true);
  EXPECT_TRUE(torch::allclose(logits(*merged), logits(*adapted), 1e-4, 1e-4));
}

TEST_F(Adapter, WhatDoesNotFitIsNamed) {
  write({.rank = 3, .alpha = 8, .targets = {"q_proj"}});
  const auto change = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json config = description();
    config[key] = value;
    write_text_atomic(path("adapter/adapter_config.json"), config.dump());
  };
  const auto refusal = [&] { return error_of([&] { read_adapter(*small(), path("adapter"), false); }); };
  EXPECT_EQ(description()["fan_in_fan_out"], false);
  change("rank_pattern", nlohmann::json::object());  // PEFT writes empty ones
  change("alpha_pattern", {{"layers.0.self_attn.q_proj", "four"}});
  EXPECT_NE(refusal().find("alpha_pattern.layers.0.self_attn.q_proj must be a number"), std::string::npos)
      << refusal();
  change("alpha_pattern", {{"(q_proj", 4}});
  EXPECT_NE(refusal().find("alpha_pattern.(q_proj"), std::string::npos) << refusal();
  change("alpha_pattern", nullptr);
  change("modules_to_save", {"lm_head"});
  EXPECT_NE(refusal().find("missing (lm_head.weight)"), std::string::npos) << refusal();
  change("modules_to_save", {"lm_haed"});
  EXPECT_NE(refusal().find("'lm_haed', which is no module of the model"), std::string::npos) << refusal();
  change("modules_to_save", nullptr);
  change("bias", "some");
  EXPECT_NE(refusal().find("bias is 'some', must be none, all or lora_only"), std::string::npos) << refusal();
  change("bias", "none");
  change("layers_to_transform", 7);
  EXPECT_NE(refusal().find("choose no linear layer"), std::string::npos) << refusal();
  change("layers_to_transform", nullptr);
  change("target_modules", {"q_porj"});
  EXPECT_NE(refusal().find("did you mean 'q_proj'?"), std::string::npos) << refusal();
  change("target_modules", {"q_proj", "v_proj"});
  EXPECT_NE(refusal().find("missing (model.layers.0.self_attn.v_proj.lora_A.weight"), std::string::npos)
      << refusal();
  change("target_modules", {"v_proj"});
  EXPECT_NE(refusal().find("left over ("), std::string::npos) << refusal();
  change("target_modules", {"q_proj"});
  change("r", 4);
  EXPECT_NE(refusal().find("[3, 24], must be [4, 24]"), std::string::npos) << refusal();
  change("r", 0);
  EXPECT_NE(refusal().find("r must be a whole number from 1 to 4096"), std::string::npos) << refusal();
  change("peft_type", "IA3");
  EXPECT_NE(refusal().find("must be LORA"), std::string::npos) << refusal();
  EXPECT_THROW(write_adapter(*small(), {}, "base", path("none")), Error);
  EXPECT_FALSE(file_exists(path("none")));
}

}  // namespace
}  // namespace tessera::train
