#include "recipe/recipe.h"
#include "recipe/recipe_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/value.h"
#include "open/weights.h"
#include "train/sweep.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class RecipeTest : public TemporaryFolder {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    write_text_atomic(path(name), content);
    return path(name);
  }
  // Returns the error of a recipe with these lines, without the file name before it.
  std::string refusal(const std::string& lines, const std::vector<std::string>& settings = {}) {
    const std::string file = write("r.toml", lines);
    std::string line = error_of([&] { load_recipe(file, settings); });
    if (line.starts_with(file + ": ")) line = line.substr(file.size() + 2);
    return line;
  }
};

constexpr const char* kLong = "[train]\nepochs = 1\n";

TEST_F(RecipeTest, WhatIsWrittenIsReadBack) {
  const Recipe recipe = read_recipe(parse_toml(kTinyRecipe, "tiny"), "tiny");
  const Value table = recipe_table(recipe);
  const Recipe again = read_recipe(parse_toml(write_toml(table), "again"), "again");
  EXPECT_EQ(first_difference(table, recipe_table(again)), "");
  EXPECT_EQ(recipe_conflict(recipe, again), "");
  EXPECT_EQ(recipe_hash(recipe), recipe_hash(again));
  EXPECT_EQ(recipe.optimiser.common.lr, 0.003);
  EXPECT_EQ(recipe.train.ema_decay, 0.9);
  EXPECT_EQ(*table.find("optimiser.lr"), Value(0.003));
  EXPECT_NE(table.find("schedule.name"), nullptr);
  EXPECT_EQ(table.find("model.mlp_ratio")->as_double(), 4);  // resolved: it has every setting
}

TEST_F(RecipeTest, UnknownKeysNameTheNearest) {
  EXPECT_EQ(refusal("[train]\nepochs = 1\nbatchsize = 3\n"),
            "unknown key 'train.batchsize', did you mean 'batch_size'?");
  EXPECT_EQ(refusal("[optimizer]\nlr = 1.0\n"), "unknown section 'optimizer', did you mean 'optimiser'?");
  EXPECT_EQ(refusal("epochs = 1\n"), "unknown key 'epochs', did you mean 'train.epochs'?");
  EXPECT_EQ(refusal(kLong, {"batch_size=3"}), "unknown key 'batch_size', did you mean 'train.batch_size'?");
  EXPECT_NE(
      refusal("[model]\nname = \"vit\"\ndepht = 3\n[train]\nepochs = 1\n").find("did you mean 'depth'?"),
      std::string::npos);
  EXPECT_NE(refusal("[model]\nname = \"vil_tinny_patch16_224\"\n[train]\nepochs = 1\n")
                .find("did you mean 'vil_tiny_patch16_224'?"),
            std::string::npos);
  EXPECT_NE(refusal("[optimiser]\nname = \"adamw\"\nbeta = [0.9, 0.99]\n[train]\nepochs = 1\n").find("betas"),
            std::string::npos);
}

TEST_F(RecipeTest, WrongTypesAndValuesNameTheKey) {
  EXPECT_EQ(refusal("[train]\nepochs = \"three\"\n"), "train.epochs is a string, must be an integer");
  EXPECT_EQ(refusal("[train]\nepochs = 1\nbatch_size = 0\n"), "train.batch_size = 0, must be 1 to 1048576");
  EXPECT_EQ(refusal("[train]\nepochs = 1\nlabel_smoothing = 1.0\n"),
            "task.label_smoothing = 1, must be at least 0 and below 1");
  EXPECT_EQ(refusal("[train]\nepochs = 1\nprecision = \"bf61\"\n"),
            "train.precision is 'bf61', must be fp32, bf16, fp64, fp16, did you mean 'bf16'?");
  EXPECT_EQ(refusal("[train]\nepochs = 1\nclass_weights = \"even\"\n"),
            "task.class_weights must be \"none\", \"balanced\" or a list of one positive number a class, is "
            "\"even\"");
  EXPECT_EQ(refusal("[mixup]\nprob = 2\n[train]\nepochs = 1\n"), "task.mixup.prob = 2, must be 0 to 1");
  EXPECT_EQ(refusal("train = 3\n"), "train is an integer, must be a table");
}

TEST_F(RecipeTest, ContradictionsAreOneLine) {
  EXPECT_EQ(refusal("[train]\nbatch_size = 3\n"), "train.epochs or train.steps must set the training length");
  EXPECT_EQ(refusal("[train]\nepochs = 3\nsteps = 4\n"),
            "train.epochs = 3 and train.steps = 4 contradict each other: give one");
  EXPECT_EQ(
      refusal("[model]\nname = \"vit\"\nimage_size = 64\n[preprocess]\nsize = 32\n[train]\nepochs = 1\n"),
      "model.image_size = 64 and preprocess.size = 32 contradict each other: give one");
}

TEST_F(RecipeTest, ThePictureSizeIsSaidOnce) {
  const auto load = [&](const std::string& lines) { return load_recipe(write("r.toml", lines + kLong)); };
  EXPECT_EQ(load("[model]\nname = \"vit\"\nimage_size = 64\n").preprocess.size, 64);
  EXPECT_EQ(load("[model]\nname = \"vit\"\n").preprocess.size, 224);
  const Recipe recipe = load("[model]\nname = \"vit\"\npatch_size = 9\n[preprocess]\nsize = 36\n");
  EXPECT_EQ(*recipe.model.settings.find("image_size"), Value(36));
}

TEST_F(RecipeTest, OverridesWinAndBasesGiveWay) {
  make_directories(path("sub"));
  write("base.toml",
        "[model]\nname = \"vit\"\ndim = 48\nheads = 3\n[train]\nepochs = 3\nbatch_size = 16\nseed = 1\n");
  write("sub/middle.toml", "base = \"../base.toml\"\n[train]\nbatch_size = 32\nseed = 2\n");
  const std::string file = write("sub/top.toml", "base = \"middle.toml\"\n[train]\nseed = 3\n");
  const Recipe recipe =
      load_recipe(file, {"optimiser.lr=0.5", "data.path = shapes:train=9", "train.seed=4", "train.seed=5"});
  EXPECT_EQ(*recipe.model.settings.find("dim"), Value(48));
  EXPECT_EQ(recipe.train.batch_size, 32);
  EXPECT_EQ(recipe.train.seed, 5);
  EXPECT_EQ(recipe.optimiser.common.lr, 0.5);
  EXPECT_EQ(recipe.data.path, "shapes:train=9");
}

TEST_F(RecipeTest, StepsTakeEpochsBackAndTheOtherWayRound) {
  const std::string file = write("base.toml", kLong);
  EXPECT_EQ(load_recipe(file, {"train.steps=7"}).train.epochs, 0);
  EXPECT_EQ(load_recipe(file, {"train.steps=7", "train.epochs=2"}).train.steps, 0);
  EXPECT_EQ(load_recipe(write("top.toml", "base = \"base.toml\"\n[train]\nsteps = 3\n")).train.epochs, 0);
}

TEST(RecipeSettings, OneCommandLineHasOneLength) {
  check_one_length({"train.epochs=3", "train.epochs=4", "optimiser.lr=1"});
  check_one_length({"train.epochs=0", "train.steps=5"});
  EXPECT_EQ(error_of([] {
              check_one_length({"train.steps=5", "train.seed=1", "train.epochs=3"});
            }),
            "train.epochs = 3 and train.steps = 5 on one command line contradict each other: give one");
}

TEST_F(RecipeTest, FilesThatCannotBeRead) {
  EXPECT_EQ(error_of([&] { load_recipe(path("none.toml")); }),
            "the recipe: cannot open '" + path("none.toml") + "': No such file or directory");
  EXPECT_NE(error_of([&] { load_recipe(write("c.toml", "[train\n")); }).find("c.toml:1"), std::string::npos);
  try {
    load_recipe(path("none.toml"));
    ADD_FAILURE() << "a missing recipe was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::failed);
  }
}

TEST_F(RecipeTest, KeysThatChangeNothingMayDiffer) {
  const Recipe run = read_recipe(parse_toml(kTinyRecipe, "tiny"), "tiny");
  Recipe asked = run;
  asked.train.output = "elsewhere";
  asked.train.keep_last = 9;
  asked.train.checkpoint_steps = 3;
  asked.train.loader_threads = 4;
  EXPECT_EQ(recipe_conflict(run, asked), "");
  EXPECT_EQ(recipe_hash(run), recipe_hash(asked));
  // Data may have moved: their fingerprint is compared.
  Recipe moved = asked;
  moved.data.path = "./elsewhere/";
  EXPECT_EQ(recipe_conflict(run, moved), "");
  asked.train.eval_every = 2;
  EXPECT_EQ(recipe_conflict(run, asked), "train.eval_every: 2.0 against 1.0 in the run");
  EXPECT_NE(recipe_hash(run), recipe_hash(asked));
}

TEST_F(RecipeTest, AutoTakesTheModelAndPreprocessingOfTheFile) {
  WeightsInfo info;
  Value settings;
  for (const auto& [key, value] :
       {std::pair{"image_size", 32}, {"patch_size", 16}, {"dim", 16}, {"depth", 1}, {"heads", 2}})
    settings.set(key, value);
  info.model = models::resolve_model("vit", settings);
  info.preprocess.size = 32;
  info.preprocess.interpolation = "bilinear";
  save_weights(path("m.safetensors"), {{"patch_embed.proj.weight", torch::zeros({16, 3, 16, 16})}}, info);
  const std::string lines =
      "[model]\nname = \"auto\"\npretrained = \"" + path("m.safetensors") + "\"\n" + kLong;
  const Recipe same = load_recipe(write("r.toml", lines));
  EXPECT_EQ(same.model.name, "vit");
  EXPECT_EQ(*same.model.settings.find("dim"), Value(16));
  EXPECT_EQ(same.preprocess.size, 32);
  EXPECT_EQ(same.preprocess.interpolation, "bilinear");
  const Recipe larger = load_recipe(path("r.toml"), {"preprocess.size=64", "model.drop_path=0.1"});
  EXPECT_EQ(*larger.model.settings.find("image_size"), Value(64));
  EXPECT_EQ(*larger.model.settings.find("drop_path"), Value(0.1));
  EXPECT_EQ(larger.preprocess.interpolation, "bilinear");
  EXPECT_NE(refusal("[model]\nname = \"auto\"\n").find("give weights with --pretrained FILE"),
            std::string::npos);
}

TEST_F(RecipeTest, GroupsOfParametersAreAListOfTables) {
  const Recipe recipe = load_recipe(write(
      "r.toml", std::string(kLong) + "[[optimiser.groups]]\npattern = \"head.*\"\nlr_scale = 10\n"
                                     "[[optimiser.groups]]\npattern = \"*.bias\"\nweight_decay = 0.1\n"));
  const auto& groups = recipe.optimiser.common.groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].lr_scale, 10);
  EXPECT_EQ(groups[1].weight_decay, 0.1);
  const Recipe again = read_recipe(parse_toml(write_toml(recipe_table(recipe)), "again"), "");
  EXPECT_EQ(first_difference(recipe_table(recipe), recipe_table(again)), "");
  EXPECT_NE(
      refusal(std::string(kLong) + "[[optimiser.groups]]\nlr_scale = 2\n").find("a group without a pattern"),
      std::string::npos);
  EXPECT_NE(
      refusal(std::string(kLong) + "[[optimiser.groups]]\npatern = \"x\"\n").find("did you mean 'pattern'"),
      std::string::npos);
}

TEST_F(RecipeTest, EveryKeyIsDescribed) {
  const std::string keys = describe_recipe_keys();
  for (const char* key :
       {"model.name", "data.path", "augment.erase.probability", "task.mixup.cutmix", "task.decoder_dim",
        "optimiser.lr ", "optimiser.trust_coeff", "schedule.name", "schedule.milestones", "train.freeze"})
    EXPECT_NE(keys.find(key), std::string::npos) << key;
}

// Every file under recipes/ resolves: its keys exist and its values are valid. Sweeps are resolved point by
// point. Files under scale/ and parts/ are bases, not recipes.
TEST_F(RecipeTest, EveryPublishedRecipeResolves) {
  int64_t recipes = 0, sweeps = 0;
  for (const auto& entry : fs::recursive_directory_iterator(TESSERA_TEST_DATA "/../../recipes")) {
    const fs::path folder = entry.path().parent_path().filename();
    if (entry.path().extension() != ".toml" || folder == "scale" || folder == "parts") continue;
    SCOPED_TRACE(entry.path().string());
    const Value table = parse_toml(read_text(entry.path().string()), entry.path().string());
    if (table.find("recipe")) {
      ++sweeps;
      const Sweep sweep = read_sweep(entry.path().string());
      EXPECT_GE(sweep.points.size(), 2u);
      for (const SweepPoint& point : sweep.points) {
        Value settings = sweep.common;
        merge(settings, point.settings);
        EXPECT_EQ(error_of([&] {
                    const Recipe recipe = load_recipe(sweep.recipes, overrides_of(settings));
                    models::meta_backbone(models::resolve_model(recipe.model.name, recipe.model.settings));
                  }),
                  "")
            << point.name;
        merge(settings, sweep.final_settings);
        EXPECT_EQ(error_of([&] { load_recipe(sweep.recipes, overrides_of(settings)); }), "") << point.name;
      }
      continue;
    }
    ++recipes;
    std::vector<std::string> settings;
    if (entry.path().stem() == "finetune") settings.push_back("model.name=vit");  // "auto" needs a file
    EXPECT_EQ(error_of([&] {
                const Recipe recipe = load_recipe(entry.path().string(), settings);
                models::meta_backbone(models::resolve_model(recipe.model.name, recipe.model.settings));
                const Recipe again = read_recipe(recipe_table(recipe), "");
                EXPECT_EQ(first_difference(recipe_table(recipe), recipe_table(again)), "");
              }),
              "");
  }
  EXPECT_GE(recipes, 70);
  EXPECT_GE(sweeps, 20);
}

// Some lines of the papers' tables, compared with the resolved files.
TEST_F(RecipeTest, TheRecipesSayWhatTheTablesSay) {
  const auto load = [](const char* name) {
    return load_recipe(std::string(TESSERA_TEST_DATA "/../../recipes/") + name);
  };
  const auto of_model = [](const Recipe& recipe, const char* key) {
    return recipe.model.settings.find(key)->as_double();
  };
  const Recipe vil = load("vil/table10_base_224.toml");
  EXPECT_DOUBLE_EQ(vil.optimiser.lr_for(vil.train.batch_size), 1e-5);
  EXPECT_EQ(vil.preprocess.size, 224);
  EXPECT_EQ(vil.train.epochs, 5);
  EXPECT_EQ(of_model(vil, "drop_path"), 0.2);
  const Recipe first = load("vil/table10_tiny.toml");
  EXPECT_DOUBLE_EQ(first.optimiser.lr_for(first.train.batch_size), 2e-3);
  EXPECT_EQ(first.preprocess.size, 192);
  const Recipe llama = load("illama/table13_base.toml");
  EXPECT_EQ(*llama.task.find("mixup.mixup"), Value(0.95));
  EXPECT_EQ(*llama.model.settings.find("soft_mask_mode"), Value("soft"));
  EXPECT_EQ(*llama.model.settings.find("soft_mask_cutoff"), Value(25));
  EXPECT_EQ(*llama.model.settings.find("soft_mask_shape"), Value("linear"));
  EXPECT_EQ(llama.schedule.find("warmup_epochs")->as_double(), 50);
  const Recipe quantised = load("illama/table15_small.toml");
  EXPECT_EQ(quantised.optimiser.common.lr, 4e-3);
  EXPECT_EQ(quantised.quantization.weights, 8);
  EXPECT_EQ(*quantised.model.settings.find("soft_mask_shape"), Value("linear"));
  EXPECT_EQ(quantised.schedule.find("warmup_epochs")->as_double(), 5);
  const Recipe plain = load("visionllama/large_160.toml");
  EXPECT_EQ(plain.optimiser.common.name, "lamb");
  EXPECT_EQ(*plain.task.find("loss"), Value("bce"));
  EXPECT_EQ(plain.train.repeats, 3);
  EXPECT_EQ(of_model(plain, "drop_path"), 0.45);
  const Recipe cifar = load("illama/table16_vit_cifar100.toml");
  EXPECT_EQ(cifar.train.epochs, 300);
  EXPECT_EQ(cifar.model.settings.find("soft_mask"), nullptr);
  EXPECT_EQ(of_model(cifar, "drop_path"), 0);
  EXPECT_FALSE(cifar.model.pretrained.empty());
  for (const auto& [name, rate] :
       {std::pair("base", 1e-3), {"large", 1e-3}, {"large_90", 1e-3}, {"huge", 3e-3}}) {
    const Recipe darl = load((std::string("darl/finetune_") + name + ".toml").c_str());
    EXPECT_DOUBLE_EQ(darl.optimiser.lr_for(darl.train.batch_size), rate) << name;  // Table 9, not scaled
  }
  const Recipe linear = load("darl/linear.toml");
  EXPECT_DOUBLE_EQ(linear.optimiser.lr_for(linear.train.batch_size), 0.1);
  for (const char* name : {"deit_tiny_distilled", "swin_base", "twins_large"}) {
    const Recipe baseline = load((std::string("baselines/") + name + ".toml").c_str());
    EXPECT_DOUBLE_EQ(baseline.optimiser.lr_for(baseline.train.batch_size), 1e-3) << name;
    EXPECT_EQ(baseline.train.epochs, 300) << name;
    EXPECT_EQ(of_model(baseline, "drop_path"), std::string(name).starts_with("deit") ? 0.1 : 0.5) << name;
  }
  EXPECT_EQ(*load("baselines/deit_base_distilled.toml").task.find("distil.kind"), Value("hard"));
  EXPECT_EQ(load("baselines/deit3_base_224.toml").preprocess.size, 224);
  EXPECT_EQ(of_model(load("illama/table12_vit_base.toml"), "drop_path"), 0.4);
  const Recipe probe = load("visionllama/linear_probe.toml");
  EXPECT_TRUE(probe.model.settings.find("head_batch_norm")->as_bool());
  EXPECT_DOUBLE_EQ(probe.optimiser.lr_for(probe.train.batch_size), 6.4);
  const Recipe tuned = load("visionllama/mae_finetune_large.toml");
  EXPECT_EQ(tuned.train.epochs, 50);
  EXPECT_EQ(tuned.optimiser.common.layer_decay, 0.45);
  EXPECT_DOUBLE_EQ(tuned.optimiser.lr_for(tuned.train.batch_size), 4e-3);
}

}  // namespace
}  // namespace tessera::train
