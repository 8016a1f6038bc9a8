// Every published size has exactly the published tensors, by name and shape, through the family's renaming.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/file.h"
#include "tests/contract/tiny.h"

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

std::string shape_text(const Json& shape) { return shape.dump(); }
std::string shape_text(const torch::Tensor& tensor) { return Json(tensor.sizes().vec()).dump(); }

void compare(const std::string& name, const Json& published) {
  SCOPED_TRACE(name);
  const ModelSpec spec = resolve_model(name);
  const Family& family = find_family(spec.family);
  const auto model = sketch_model(spec);
  EXPECT_EQ(count_parameters(*model), published["parameters"].get<int64_t>());
  std::map<std::string, std::string> ours;
  for (const auto& entry : model->named_parameters()) ours[entry.key()] = shape_text(entry.value());
  for (const auto& [tensor, shape] : published["tensors"].items()) {
    const auto found = ours.find(family.rename(tensor));
    ASSERT_NE(found, ours.end()) << "published tensor " << tensor;
    EXPECT_EQ(found->second, shape_text(shape)) << tensor;
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

TEST(Inventory, VisionLstm) { compare_file("vision_lstm.json"); }

TEST(Inventory, VisionLlama) {
  compare_file("vision_llama_plain.json");
  compare_file("vision_llama_pyramid.json");
}

TEST(Inventory, ImageLlama) { compare_file("illama.json"); }

// A sketch takes no memory, so the largest are as quick as the smallest, and agrees with the model itself.
TEST(Inventory, SketchesHaveNamesAndShapesOnly) {
  for (const Named& named : all_sizes()) {
    const auto sketch = sketch_model(tiny_spec(named)), model = build_model(tiny_spec(named), 1);
    const auto a = sketch->named_parameters().pairs(), b = model->named_parameters().pairs();
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
