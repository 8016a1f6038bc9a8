// Published models of images and texts: each is told by its names and shapes, and its tensors are exactly ours.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/files/file.h"
#include "weights/stored_tensors.h"
#include "weights/two_tower_published.h"

namespace tessera::models {
namespace {

using Json = nlohmann::json;

// "#" stands for the numbers of so many layers.
PublishedShapes tensors_of(const Json& model) {
  PublishedShapes tensors;
  for (const Json& entry : model.at("tensors")) {
    const auto name = entry.at(0).get<std::string>();
    const auto shape = entry.at(1).get<std::vector<int64_t>>();
    const size_t place = name.find('#');
    for (int64_t i = 0; i < (place == std::string::npos ? 1 : entry.at(2).get<int64_t>()); ++i)
      tensors.emplace_back(place == std::string::npos
                               ? name
                               : name.substr(0, place) + std::to_string(i) + name.substr(place + 1),
                           shape);
  }
  return tensors;
}

TEST(PairsInventory, EveryTensorIsOneOfOurs) {
  const nn::ShapesOnly shapes_only;
  for (const Json& model :
       Json::parse(read_text(std::string(TESSERA_TEST_DATA) + "/inventory/vision_language_pairs.json"))) {
    SCOPED_TRACE(model.at("model").get<std::string>());
    const PublishedShapes tensors = tensors_of(model);
    TowerHints hints;
    hints.image_heads = model.at("hints").value("image_heads", int64_t{0});
    hints.text_heads = model.at("hints").value("text_heads", int64_t{0});
    const PublishedTowers towers = describe_towers(tensors, hints);
    const auto backbone = meta_backbone({"", towers.family, towers.image});
    std::shared_ptr<torch::nn::Module> rest;
    if (towers.coca)
      rest = std::make_shared<Coca>(towers.captioner);
    else
      rest = std::make_shared<TwoTower>(towers.towers);
    std::map<std::string, torch::Tensor> ours;
    for (const auto& entry : backbone->named_parameters()) ours[kImageTower + entry.key()] = entry.value();
    for (const auto& entry : rest->named_parameters()) ours[entry.key()] = entry.value();
    std::map<std::string, torch::Tensor> published;
    int64_t numbers = 0;
    for (const auto& [name, shape] : tensors)
      published[name] = torch::empty(shape, torch::TensorOptions().device(torch::kMeta));
    for (const auto& [name, tensor] : ours) numbers += tensor.numel();
    EXPECT_EQ(numbers, model.at("parameters").get<int64_t>());
    std::set<std::string> used;
    for (const train::TensorSource& source : train::sources_of(towers.places)) {
      const auto found = ours.find(source.ours);
      ASSERT_NE(found, ours.end()) << source.ours;
      EXPECT_EQ(train::assemble(source, [&](const std::string& name) { return published.at(name); }).numel(),
                found->second.numel())
          << source.ours;
      for (const train::NamePlace& part : source.parts) used.insert(part.theirs);
      ours.erase(found);
    }
    for (const auto& [name, tensor] : ours) ADD_FAILURE() << name << " is not published";
    EXPECT_EQ(used.size(), tensors.size());
  }
}

}  // namespace
}  // namespace tessera::models
