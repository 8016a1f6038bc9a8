// Published language models, and LLaVA: each by its configuration has exactly the tensors of ours, with their shapes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/files/file.h"
#include "io/files/json.h"
#include "models/language/llava.h"
#include "models/language/seq2seq.h"
#include "weights/language_files.h"

namespace tessera::models {
namespace {

using Json = nlohmann::json;

Value value_of(const Json& config) { return parse_json_value(config.dump(), "the inventory's config"); }

// A model, and the places of published tensors in it.
struct Described {
  std::shared_ptr<torch::nn::Module> model;
  std::function<train::NamePlace(const std::string&)> place;
};

Described describe(const Json& config) {
  const auto kind = config.at("model_type").get<std::string>();
  if (kind == "t5") {
    const Seq2SeqConfig t5 = t5_config_of(value_of(config), "t5");
    const std::string embedding = t5.tied ? "shared.weight" : "";
    return {make_seq2seq(t5), [embedding](const std::string& name) {
              return train::language_places({name}, "t5", embedding).front();
            }};
  }
  const bool images = kind == "llava";
  const auto language = std::make_shared<LanguageModel>(
      language_config_of(value_of(images ? config.at("text_config") : config), kind));
  if (!images)
    return {language,
            [language](const std::string& name) { return train::decoder_places({name}, *language).front(); }};
  const Json& tower = config.at("vision_config");
  const auto number = [&](const char* key) { return tower.at(key).get<int64_t>(); };
  const auto vision = meta_backbone(resolve_model("vit", table({{"image_size", number("image_size")},
                                                                {"patch_size", number("patch_size")},
                                                                {"dim", number("hidden_size")},
                                                                {"depth", number("num_hidden_layers")},
                                                                {"heads", number("num_attention_heads")},
                                                                {"mlp", "quick_gelu"},
                                                                {"pre_norm", true},
                                                                {"classes", 0}})));
  return {std::make_shared<Llava>(LlavaConfig{}, vision, language), [language](const std::string& name) {
            return train::language_places({name}, "llava",
                                          language->config().tied ? language->embedding_name() : "")
                .front();
          }};
}

TEST(LanguageInventory, EveryTensorIsOneOfOurs) {
  const nn::ShapesOnly shapes_only;
  for (const Json& model :
       Json::parse(read_text(std::string(TESSERA_TEST_DATA) + "/inventory/vision_language_texts.json"))) {
    SCOPED_TRACE(model.at("model").get<std::string>());
    const Described described = describe(model.at("config"));
    std::map<std::string, int64_t> left;  // numbers of our tensors that no published one has given yet
    int64_t numbers = 0;
    const auto parameters = described.model->named_parameters();
    for (const auto& entry : parameters)
      left[entry.key()] = entry.value().numel(), numbers += left[entry.key()];
    EXPECT_EQ(numbers, model.at("parameters").get<int64_t>());
    for (const Json& entry : model.at("tensors")) {
      const auto pattern = entry.at(0).get<std::string>();
      const auto shape = entry.at(1).get<std::vector<int64_t>>();
      const size_t at = pattern.find('#');
      for (int64_t i = 0; i < (at == std::string::npos ? 1 : entry.at(2).get<int64_t>()); ++i) {
        const std::string name = at == std::string::npos
                                     ? pattern
                                     : pattern.substr(0, at) + std::to_string(i) + pattern.substr(at + 1);
        const train::NamePlace place = described.place(name);
        if (place.ours.empty()) continue;
        const std::string head = "lm_head.weight";
        if (name.ends_with(head) && !place.ours.ends_with(head)) continue;  // it is the embedding
        const torch::Tensor* ours = parameters.find(place.ours);
        ASSERT_NE(ours, nullptr) << name << " -> " << place.ours;
        const torch::Tensor part =
            ours->chunk(place.join.ours.of, 0).at(static_cast<size_t>(place.join.ours.first));
        const int64_t size = c10::multiply_integers(shape);
        EXPECT_EQ(part.numel(), size) << name;
        if (part.dim() == std::ssize(shape)) {
          EXPECT_EQ(part.sizes(), c10::IntArrayRef(shape)) << name;
        }
        left[place.ours] -= size;
      }
    }
    for (const auto& [name, count] : left)
      if (name != "shared.weight") {
        EXPECT_EQ(count, 0) << name << " is not published";
      }
  }
}

}  // namespace
}  // namespace tessera::models
