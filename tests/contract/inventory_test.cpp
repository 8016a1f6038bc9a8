// Every published size has exactly the published tensors, by name and shape, through the family's renaming.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/files/file.h"
#include "tests/contract/tiny.h"
#include "weights/name_tables.h"

namespace tessera::models {
namespace {

using Json = nlohmann::json;

// The published models of one file by name, each with "parameters" and "tensors".
std::map<std::string, Json> inventory(const std::string& file) {
  std::map<std::string, Json> models;
  for (Json entry : Json::parse(read_text(std::string(TESSERA_TEST_DATA) + "/inventory/" + file))) {
    if (entry.contains("same_as")) entry["tensors"] = models.at(entry["same_as"])["tensors"];
    models[entry["model"]] = entry;
  }
  return models;
}

// A convolution of 1x1 cells is a matrix of ours, if `ours` is one.
std::string shape_text(const Json& shape, const std::string& ours) {
  const bool unit = shape.size() == 4 && shape[2] == 1 && shape[3] == 1;
  const std::string matrix = unit ? Json({shape[0], shape[1]}).dump() : "";
  return matrix == ours ? matrix : shape.dump();
}
std::string shape_text(const torch::Tensor& tensor) { return Json(tensor.sizes().vec()).dump(); }

void compare(const std::string& name, const Json& published) {
  SCOPED_TRACE(name);
  const ModelSpec spec = resolve_model(name);
  const auto model = meta_classifier(spec);
  EXPECT_EQ(count_parameters(*model->backbone), published["parameters"].get<int64_t>());
  std::map<std::string, std::string> ours;
  for (const auto& entry : model->backbone->named_parameters()) ours[entry.key()] = shape_text(entry.value());
  for (const auto& [tensor, shape] : published["tensors"].items()) {
    const auto found = ours.find(train::our_name(tensor, spec.family));
    ASSERT_NE(found, ours.end()) << "published tensor " << tensor;
    EXPECT_EQ(found->second, shape_text(shape, found->second)) << tensor;
    ours.erase(found);
  }
  for (const auto& [left, shape] : ours) ADD_FAILURE() << left << " is not published";
}

void compare_file(const std::string& file, const std::set<std::string>& later = {}) {
  int64_t compared = 0;
  for (const auto& [name, published] : inventory(file)) {
    if (later.contains(name)) continue;
    compare(name, published);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(Inventory, Timm) { compare_file("timm.json"); }

TEST(Inventory, ConvolutionalNetworks) { compare_file("convnets.json"); }

// PoolFormer, EVA-02, VanillaNet and AIM.
TEST(Inventory, Baselines) { compare_file("baselines.json"); }

// The merged form has the parameters that the paper counts (its Table 3, in millions).
TEST(Inventory, MergedVanillaNets) {
  const std::map<std::string, double> published = {
      {"vanillanet_5", 15.5},  {"vanillanet_6", 32.5},  {"vanillanet_7", 32.8},
      {"vanillanet_8", 37.1},  {"vanillanet_9", 41.4},  {"vanillanet_10", 45.7},
      {"vanillanet_11", 50.0}, {"vanillanet_12", 54.3}, {"vanillanet_13", 58.6}};
  for (const auto& [name, millions] : published) {
    const auto model = meta_classifier(resolve_model(name, Value(Value::Table{{"merged", true}})));
    EXPECT_NEAR(static_cast<double>(count_parameters(*model->backbone)) / 1e6, millions, 0.05) << name;
  }
}

TEST(Inventory, AutoencoderKl) { compare_file("autoencoder_kl.json"); }

TEST(Inventory, VisionLstm) { compare_file("vision_lstm.json"); }

// The encoders of the masked pre-training alone: its class token and table of positions take no part in their blocks.
TEST(Inventory, VisionLlamaOfMaskedPretraining) { compare_file("vision_llama_mae.json"); }

TEST(Inventory, ImageGeneration) {
  for (const char* file : {"dit.json", "dit_llama.json", "sit.json", "sit_llama.json"}) compare_file(file);
}

TEST(Inventory, VisionLlama) {
  compare_file("vision_llama_plain.json");
  compare_file("vision_llama_pyramid.json");
  compare_file("vision_llama_segmentation.json");
}

TEST(Inventory, VisionMambaAndVisionRwkv) {
  for (const char* file : {"vim.json", "vrwkv.json"}) compare_file(file);
}

TEST(Inventory, ImageLlama) { compare_file("illama.json"); }

// Microsoft's first files of Swin: a stage ends in the merging that timm's next stage begins with, the head
// has no module of its own, and index tables and masks are stored.
TEST(Inventory, SwinInItsFirstForm) {
  const auto published = inventory("timm.json").at("swin_tiny_patch4_window7_224");
  std::vector<std::string> newer,
      older{"layers.0.blocks.1.attn_mask", "layers.3.blocks.1.attn.relative_position_index"};
  for (const auto& [name, shape] : published["tensors"].items()) {
    newer.push_back(name);
    std::string first = name;
    if (const size_t at = name.find(".downsample."); at != std::string::npos)
      first = "layers." + std::to_string(std::stoi(name.substr(7)) - 1) + name.substr(at);
    if (name.starts_with("head.fc.")) first = "head." + name.substr(8);
    older.push_back(first);
  }
  EXPECT_EQ(train::our_names(newer, "swin"), newer);
  std::vector<std::string> ours = train::our_names(older, "swin");
  EXPECT_EQ(ours[0] + ours[1], "");
  ours.erase(ours.begin(), ours.begin() + 2);
  EXPECT_EQ(ours, newer);
}

// mmpretrain's backbone of VisionLLaMA, alone and inside a classifier: layer scale and the norms have names of
// their own, the table of positions is not used.
TEST(Inventory, VisionLlamaInMmpretrainsForm) {
  const std::vector<std::string> published = {"pos_embed",
                                              "patch_embed.projection.weight",
                                              "layers.0.ln1.weight",
                                              "layers.0.attn.qkv.bias",
                                              "layers.0.attn.gamma1.weight",
                                              "layers.0.ln2.bias",
                                              "layers.11.ffn.w12.weight",
                                              "layers.11.ffn.layers.0.0.weight",
                                              "layers.11.ffn.layers.1.bias",
                                              "layers.11.ffn.gamma2.weight",
                                              "ln2.weight"};
  const std::vector<std::string> ours = {"",
                                         "patch_embed.proj.weight",
                                         "blocks.0.norm1.weight",
                                         "blocks.0.attn.qkv.bias",
                                         "blocks.0.gamma_1",
                                         "blocks.0.norm2.bias",
                                         "blocks.11.mlp.w12.weight",
                                         "blocks.11.mlp.fc1.weight",
                                         "blocks.11.mlp.fc2.bias",
                                         "blocks.11.gamma_2",
                                         "norm.weight"};
  EXPECT_EQ(train::our_names(published, "visionllama"), ours);
  std::vector<std::string> inside;
  for (const std::string& name : published) inside.push_back("backbone." + name);
  EXPECT_EQ(train::our_names(inside, "visionllama"), ours);
  const std::vector<std::string> both = {"patch_embed.projection.bias", "ln1.weight", "ln2.weight"};
  EXPECT_EQ(train::our_names(both, "visionllama"),
            (std::vector<std::string>{"patch_embed.proj.bias", "token_norm.weight", "norm.weight"}));
  EXPECT_EQ(train::our_names({"head.fc.weight"}, "visionllama"), std::vector<std::string>{"head.weight"});
  // A table that is used keeps its name.
  EXPECT_EQ(train::our_names({"patch_embed.proj.weight", "pos_embed"}, "visionllama").at(1), "pos_embed");
}

// A meta model takes no memory, so the largest are as quick as the smallest, and agrees with the model
// itself.
TEST(Inventory, MetaModelsHaveNamesAndShapesOnly) {
  for (const Named& named : all_sizes()) {
    const auto meta = meta_classifier(tiny_spec(named)), model = build_classifier(tiny_spec(named), 1);
    const auto a = meta->backbone->named_parameters().pairs(),
               b = model->backbone->named_parameters().pairs();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      EXPECT_EQ(a[i].second.sizes(), b[i].second.sizes());
      EXPECT_TRUE(a[i].second.is_meta());
    }
  }
}

}  // namespace
}  // namespace tessera::models
