#include "train/memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/value.h"
#include "models/heads/class_head.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

models::ModelSpec model(const std::string& name, const std::string& settings = "") {
  return models::resolve_model(name, parse_toml(settings, "test"));
}

double macs(const models::ModelSpec& spec, int64_t size) {
  return static_cast<double>(models::meta_classifier(spec)->macs(size, size));
}

// A classifier of that model, without memory for its weights.
std::unique_ptr<tasks::Task> task_of(const models::ModelSpec& spec) {
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(tasks::resolve_task({}));
  setup.model = spec;
  setup.meta = true;
  return tasks::find_task("classify").make(setup);
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// ViT-T by hand: 197 tokens of width 192; a block has 12 width^2 per token and two products of all tokens
// with one another.
TEST(Compute, ABlockOfViTByHand) {
  const std::vector<double> blocks = block_macs(model("vit_tiny_patch16_224"), 224);
  ASSERT_EQ(blocks.size(), 12u);
  EXPECT_DOUBLE_EQ(blocks[0], 197.0 * 12 * 192 * 192 + 2.0 * 197 * 197 * 192);
  EXPECT_DOUBLE_EQ(blocks[11], blocks[0]);
}

// A stage with fewer blocks saves exactly the cost of the missing ones.
TEST(Compute, BlocksOfPyramidsAreWhatTheirStagesConsistOf) {
  for (const char* name :
       {"swin_tiny_patch4_window7_224", "twins_svt_small", "visionllama_pyramid_small_224"}) {
    SCOPED_TRACE(name);
    const models::ModelSpec whole = model(name);
    const std::vector<double> blocks = block_macs(whole, 224);
    const Value::Array depths = whole.settings.find("depths")->as_array();
    size_t first = 0;
    for (size_t stage = 0; stage < depths.size(); ++stage) {
      const int64_t depth = depths[stage].as_int();
      ASSERT_LE(first + static_cast<size_t>(depth), blocks.size());
      double behind = 0;
      for (int64_t kept = depth - 1; kept >= 1; --kept) {
        behind += blocks[first + static_cast<size_t>(kept)];
        models::ModelSpec shorter = whole;
        Value::Array changed = depths;
        changed[stage] = kept;
        shorter.settings.set("depths", changed);
        EXPECT_DOUBLE_EQ(macs(whole, 224) - macs(shorter, 224), behind) << "stage " << stage << ", " << kept;
      }
      first += static_cast<size_t>(depth);
    }
    EXPECT_EQ(first, blocks.size());
    EXPECT_LT(sum(blocks), macs(whole, 224));  // the rest: embedding, merging, head
    EXPECT_GT(sum(blocks), 0.9 * macs(whole, 224));
  }
}

TEST(Compute, DroppedPathsAreLeftOut) {
  const double all = macs(model("vil_tiny_patch16_224"), 192);
  EXPECT_DOUBLE_EQ(forward_macs(*task_of(model("vil_tiny_patch16_224")), 192), all);
  const models::ModelSpec same = model("vil_tiny_patch16_224", "drop_path = 0.2\ndrop_path_decay = false");
  const double blocks = sum(block_macs(same, 192));
  EXPECT_DOUBLE_EQ(forward_macs(*task_of(same), 192), all - 0.2 * blocks);
  const models::ModelSpec rising = model("vil_tiny_patch16_224", "drop_path = 0.2\ndrop_path_decay = true");
  EXPECT_NEAR(forward_macs(*task_of(rising), 192), all - 0.1 * blocks,
              1e-9 * all);  // equal blocks: half of it on average
  // Unequal blocks: the costs of Swin's stages differ, and deep blocks are dropped most.
  const models::ModelSpec swin = model("swin_tiny_patch4_window7_224", "drop_path = 0.2");
  const std::vector<double> parts = block_macs(swin, 224);
  double expected = macs(swin, 224);
  for (size_t i = 0; i < parts.size(); ++i) expected -= parts[i] * 0.2 * static_cast<double>(i) / 11;
  EXPECT_NEAR(forward_macs(*task_of(swin), 224), expected, 1e-9 * expected);
}

// 384 pictures of side 32, 8 steps an epoch.
TEST(Compute, ARunIsItsPicturesThreeTimes) {
  const Recipe recipe = tiny_recipe("unused", {"model.drop_path=0"});
  RunPlan plan;
  plan.steps = 24, plan.steps_per_epoch = 8, plan.images = 24 * 8;
  const models::ModelSpec spec = models::resolve_model(recipe.model.name, recipe.model.settings);
  plan_compute(recipe, *task_of(spec), plan);
  EXPECT_DOUBLE_EQ(plan.training_macs, 3 * macs(spec, 32));
  EXPECT_DOUBLE_EQ(plan.total_macs, 3 * 192 * macs(spec, 32));
  // The first two of three epochs are small, the last is large.
  Recipe growing = recipe;
  growing.train.sizes = {16, 32};
  plan_compute(growing, *task_of(spec), plan);
  EXPECT_DOUBLE_EQ(plan.training_macs, 2 * macs(spec, 16) + macs(spec, 32));
}

}  // namespace
}  // namespace tessera::train
