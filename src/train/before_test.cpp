// Files written by an earlier version: weights, and interrupted runs with the recipes that made them.
//
// tests/data/before/NAME.toml is a recipe with the old keys, NAME.safetensors the end of its run, NAME/ the
// same run after 6 of 12 steps.
#include <filesystem>

#include "core/value.h"
#include "models/heads/class_head.h"
#include "open/open_task.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class Before : public TemporaryFolder, public testing::WithParamInterface<const char*> {
 protected:
  static std::string stored(const std::string& ending) {
    return std::string(TESSERA_TEST_DATA "/before/") + GetParam() + ending;
  }
  // The old recipe, with a copy of its run to continue.
  Recipe recipe() const {
    if (!fs::exists(path("run")))
      fs::copy(stored(""), path("run"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return load_recipe(stored(".toml"), {"train.output=\"" + path("run") + "\""});
  }
};

torch::Tensor scores_of(const OpenedTask& opened) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  const int64_t side = opened.info.preprocess.size;
  return opened.task->classifier()->forward(torch::randn({4, 3, side, side}));
}

TEST_P(Before, WeightsAreOpened) {
  const OpenedTask opened = open_task(stored(".safetensors"));
  EXPECT_TRUE(opened.info.ours);
  EXPECT_TRUE(opened.notes.empty());
  EXPECT_EQ(opened.info.model.family, GetParam());
  EXPECT_EQ(*opened.info.model.settings.find("dim"), Value(16));
  EXPECT_EQ(opened.info.preprocess.size, 16);
  EXPECT_EQ(opened.info.preprocess.crop, 1);
  EXPECT_EQ(tasks::task_name(opened.info.task), "classify");
  EXPECT_EQ(*opened.info.task_metadata.find("multi_label"), Value(false));
  const Value::Array names = {"disc",  "ring",     "square",    "triangle", "star",
                              "cross", "crescent", "hourglass", "bar",      "corner"};
  EXPECT_EQ(*opened.info.task_metadata.find("class_names"), Value(names));
  // The recipe in the metadata has the old keys; the task's settings come from it.
  EXPECT_NE(parse_toml(opened.info.recipe, "recipe").find("mixup.cutmix"), nullptr);
  EXPECT_EQ(opened.info.task, recipe().task);
  const torch::Tensor scores = scores_of(opened);
  EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{4, 10}));
  EXPECT_TRUE(scores.isfinite().all().item<bool>());
}

TEST_P(Before, TheRunsOwnRecipeSaysTheSame) {
  const Recipe asked = recipe(), own = load_recipe(path("run/recipe.toml"));
  EXPECT_EQ(own.task, asked.task);
  for (const char* key : {"soft_mask", "soft_mask_mode", "soft_mask_shape", "soft_mask_cutoff"}) {
    const Value *then = own.model.settings.find(key), *now = asked.model.settings.find(key);
    ASSERT_EQ(then == nullptr, now == nullptr) << key;
    if (then) {
      EXPECT_EQ(*then, *now) << key;
    }
  }
}

// It ends as it did then: the same samples, draws and updates.
TEST_P(Before, TheRunGoesOnToItsEnd) {
  const RunSummary summary = run_training(recipe(), {.resume = Resume::required});
  EXPECT_EQ(summary.history.front().step, 3);  // logged at that time
  EXPECT_EQ(summary.history.back().step, 12);
  const OpenedTask then = open_task(stored(".safetensors")), now = open_task(summary.model_file);
  EXPECT_EQ(now.info.task_metadata, then.info.task_metadata);
  const auto ended = tasks::named_state(then.task->parts()), ends = tasks::named_state(now.task->parts());
  ASSERT_EQ(ended.size(), ends.size());
  for (size_t i = 0; i < ended.size(); ++i) {
    EXPECT_EQ(ended[i].first, ends[i].first);
    EXPECT_TRUE(torch::allclose(ends[i].second, ended[i].second, 1e-3, 1e-4)) << ended[i].first;
  }
  EXPECT_TRUE(torch::allclose(scores_of(now), scores_of(then), 1e-2, 1e-3));
}

TEST_P(Before, AnotherRecipeIsRefused) {
  Recipe other = recipe();
  other.task.set("label_smoothing", 0.3);
  other.task.set("target_threshold", -1.0);
  EXPECT_NE(error_of([&] { run_training(other, {.resume = Resume::required}); }).find("task."),
            std::string::npos);
}

std::string name_of_run(const testing::TestParamInfo<const char*>& one) { return one.param; }
INSTANTIATE_TEST_SUITE_P(Files, Before, testing::Values("vit", "illama"), name_of_run);

}  // namespace
}  // namespace tessera::train
