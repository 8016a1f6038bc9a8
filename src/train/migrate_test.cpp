#include "weights/migrate.h"

#include "core/text.h"
#include "core/value.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

Value toml(const std::string& lines) { return parse_toml(lines, "test"); }

// Resolves a recipe with these lines.
Value resolved(const std::string& lines) { return recipe_table(read_recipe(toml(lines), "test")); }

// Returns the first difference between two resolved recipes.
std::string difference(const std::string& lines, const std::string& others) {
  return first_difference(resolved(lines), resolved(others));
}

// Returns the difference between these migrated lines and the current form.
std::string migrated(const std::string& lines, const std::string& today) {
  return first_difference(migrate_recipe(toml(lines)), toml(today));
}

constexpr const char* kEveryOldKey = R"(
[model]
name = "illama"
[mixup]
mixup = 0.8
cutmix = 1.0
mode = "pair"
[distil]
teacher = "teacher.safetensors"
kind = "soft"
tau = 3.0
[soft_mask]
share = 0.7
mode = "late"
shape = "constant"
cutoff_epoch = 25
[train]
epochs = 300
loss = "bce"
label_smoothing = 0.1
class_weights = "balanced"
)";

constexpr const char* kEveryKeyOfToday = R"(
[model]
name = "illama"
soft_mask = 0.7
soft_mask_mode = "late"
soft_mask_shape = "constant"
soft_mask_cutoff = 25
[task]
loss = "bce"
label_smoothing = 0.1
class_weights = "balanced"
[task.mixup]
mixup = 0.8
cutmix = 1.0
mode = "pair"
[task.distil]
teacher = "teacher.safetensors"
kind = "soft"
tau = 3.0
[train]
epochs = 300
)";

constexpr const char* kVit = "[model]\nname = \"vit\"\n[train]\nepochs = 3\n";

TEST(Migrate, EveryOldKeyMeansWhatItsKeyOfTodayMeans) {
  EXPECT_EQ(difference(kEveryOldKey, kEveryKeyOfToday), "");
  EXPECT_EQ(difference(text(kVit, "loss = \"bce\"\ntarget_threshold = 0.0\n"),
                       text(kVit, "[task]\nloss = \"bce\"\ntarget_threshold = 0.0\n")),
            "");
  EXPECT_NE(difference(kEveryOldKey, kVit), "");
}

TEST(Migrate, WhatIsOfTodayStaysAsItIs) {
  for (const char* lines : {kEveryKeyOfToday, kVit, ""}) {
    EXPECT_EQ(migrate_recipe(toml(lines)), toml(lines)) << lines;
    const Value once = migrate_recipe(toml(lines));
    EXPECT_EQ(migrate_recipe(once), once) << lines;
  }
  EXPECT_EQ(migrate_recipe(toml("[augment]\ncrop = \"centre\"\n")), toml("[augment]\ncrop = \"center\"\n"));
  EXPECT_EQ(migrate_recipe(Value(3)), Value(3));
}

TEST(Migrate, ATaskThatIsNoMoreNamesTheOneThatReplacesIt) {
  try {
    migrate_recipe(toml("[task]\nname = \"contrast\"\ntext_length = 32\n"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is now \"clip\""), std::string::npos) << error.what();
  }
}

TEST(Migrate, NoEmptySectionIsLeft) {
  EXPECT_EQ(migrated("[train]\nloss = \"bce\"\n", "[task]\nloss = \"bce\"\n"), "");
  EXPECT_EQ(migrate_recipe(toml("[train]\nloss = \"bce\"\n")).find("train"), nullptr);
  EXPECT_EQ(migrate_recipe(toml(kEveryOldKey)).find("soft_mask"), nullptr);
}

class MigrateFiles : public TemporaryFolder {};

// Recipes and settings are overlaid after each was migrated.
TEST_F(MigrateFiles, OldAndNewFilesAndSettingsAreLaidOverOneAnother) {
  write_text_atomic(path("old.toml"), kEveryOldKey);
  write_text_atomic(path("new.toml"), "base = \"old.toml\"\n[task]\nlabel_smoothing = 0.2\n");
  const Recipe over = load_recipe(path("new.toml"));
  EXPECT_EQ(*over.task.find("label_smoothing"), Value(0.2));
  EXPECT_EQ(*over.task.find("mixup.mixup"), Value(0.8));
  const Recipe set = load_recipe(path("new.toml"), {"train.label_smoothing=0.3", "mixup.mixup=0.5"});
  EXPECT_EQ(*set.task.find("label_smoothing"), Value(0.3));
  EXPECT_EQ(*set.task.find("mixup.mixup"), Value(0.5));
  EXPECT_EQ(*set.task.find("mixup.cutmix"), Value(1.0));
}

// --- the soft mask

TEST(Migrate, TheSoftMaskWasSoftWhereItsModeWasNotSaid) {
  EXPECT_EQ(migrated("[soft_mask]\nshare = 1.0\ncutoff_epoch = 2\n",
                     "[model]\nsoft_mask = 1.0\nsoft_mask_mode = \"soft\"\nsoft_mask_cutoff = 2\n"),
            "");
  EXPECT_EQ(migrated("[soft_mask]\nshare = 1.0\nmode = \"standard\"\n",
                     "[model]\nsoft_mask = 1.0\nsoft_mask_mode = \"standard\"\n"),
            "");
}

// A layer does not depend on the content of another.
TEST_F(MigrateFiles, AShareLaidOverAnotherRecipeLeavesItsMode) {
  const auto mode = [&](const std::string& base, const std::string& setting) {
    write_text_atomic(path("base.toml"), text("[model]\nname = \"illama\"\n[train]\nepochs = 3\n", base));
    return load_recipe(path("base.toml"), {setting}).model.settings.find("soft_mask_mode")->as_string();
  };
  const std::string now = "[model]\nname = \"illama\"\n[train]\nepochs = 3\n";
  EXPECT_EQ(mode("[soft_mask]\nshare = 1.0\nmode = \"late\"\n", "soft_mask.share=0.5"), "late");
  EXPECT_EQ(mode("[soft_mask]\nshare = 1.0\ncutoff_epoch = 2\n", "soft_mask.share=0.5"), "soft");
  EXPECT_EQ(mode("[soft_mask]\ncutoff_epoch = 2\n", "soft_mask.share=0.5"), "soft");
  write_text_atomic(path("new.toml"), "[model]\nname = \"illama\"\nsoft_mask = 1.0\n[train]\nepochs = 3\n");
  for (const char* setting : {"soft_mask.share=0.5", "soft_mask.cutoff_epoch=2"})
    EXPECT_EQ(*load_recipe(path("new.toml"), {setting}).model.settings.find("soft_mask_mode"),
              Value("standard"))
        << setting;
  write_text_atomic(path("late.toml"), "base = \"new.toml\"\n[model]\nsoft_mask_mode = \"late\"\n");
  const Value late = load_recipe(path("late.toml"), {"soft_mask.share=0.5"}).model.settings;
  EXPECT_EQ(*late.find("soft_mask_mode"), Value("late"));
  EXPECT_EQ(*late.find("soft_mask"), Value(0.5));
}

// A share of 0 was off, whether or not the section has other keys, and also for models without a mask.
TEST_F(MigrateFiles, ASectionThatIsOffIsForgottenForEveryModel) {
  for (const char* section : {"[soft_mask]\nshare = 0\n", "[soft_mask]\nshare = 0.0\nmode = \"soft\"\n",
                              "[soft_mask]\nshape = \"linear\"\n"}) {
    EXPECT_EQ(difference(text(kVit, section), kVit), "") << section;
    EXPECT_EQ(migrated(section, ""), "") << section;
  }
  write_text_atomic(path("vit.toml"), kVit);
  EXPECT_EQ(
      first_difference(recipe_table(load_recipe(path("vit.toml"), {"soft_mask.share=0"})), resolved(kVit)),
      "");
  // Over a recipe with a soft mask it turns that off.
  write_text_atomic(path("soft.toml"), kEveryOldKey);
  EXPECT_EQ(*load_recipe(path("soft.toml"), {"soft_mask.share=0"}).model.settings.find("soft_mask"),
            Value(0.0));
  // A current key name is still an error.
  EXPECT_THROW(resolved("[model]\nname = \"vit\"\nsoft_mask = 0.0\n[train]\nepochs = 3\n"), Error);
}

// Later versions refused such a run at its start, but continued one that had begun earlier.
TEST(Migrate, AnOldRunWithoutAMaskGoesOn) {
  const std::string bare = "[model]\nname = \"illama\"\nmask = \"none\"\n[train]\nepochs = 3\n";
  EXPECT_EQ(
      difference(
          text(bare, "[soft_mask]\nshare = 1.0\nmode = \"soft\"\nshape = \"linear\"\ncutoff_epoch = 2\n"),
          bare),
      "");
}

TEST(Migrate, AnOldKeyReplacesNoSectionThatIsNoTable) {
  const auto refusal = [](const std::string& lines) -> std::string {
    try {
      read_recipe(toml(lines), "r.toml");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal("task = \"mae\"\n[mixup]\nmixup = 0.5\n[train]\nepochs = 1\n"),
            "r.toml: task is a string, must be a table");
  EXPECT_EQ(refusal("model = \"vit\"\n[soft_mask]\nshare = 0.5\n[train]\nepochs = 1\n"),
            "r.toml: model is a string, must be a table");
  EXPECT_EQ(refusal("task = 3\n[train]\nepochs = 1\nloss = \"bce\"\n"),
            "r.toml: task is an integer, must be a table");
}

// Every old resolved recipe has the section, including those of models without a mask.
TEST(Migrate, AnIdleSoftMaskOfAResolvedRecipeIsForgotten) {
  const std::string idle =
      "[soft_mask]\nshare = 0.0\nmode = \"soft\"\nshape = \"linear\"\ncutoff_epoch = 0\n";
  EXPECT_EQ(difference(text(kVit, idle), kVit), "");
  EXPECT_EQ(migrated(text(kVit, idle), kVit), "");
  // The model's own constant share still applies.
  const std::string own = "[model]\nname = \"illama\"\nsoft_mask = 0.3\n[train]\nepochs = 3\n";
  EXPECT_EQ(difference(text(own, idle), own), "");
}

TEST(Migrate, TheShareOfTheSectionStandsForTheOneThatTheModelStartedWith) {
  const std::string section =
      "[soft_mask]\nshare = 0.7\nmode = \"soft\"\nshape = \"linear\"\ncutoff_epoch = 2\n";
  EXPECT_EQ(migrated(text("[model]\nname = \"illama\"\nsoft_mask = 0.0\n", section),
                     "[model]\nname = \"illama\"\nsoft_mask = 0.7\nsoft_mask_mode = \"soft\"\n"
                     "soft_mask_shape = \"linear\"\nsoft_mask_cutoff = 2\n"),
            "");
}

// --- both

TEST(Migrate, OldAndNewKeyTogetherAreAUsageError) {
  const auto refusal = [](const std::string& lines) {
    try {
      read_recipe(toml(lines), "r.toml");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage) << lines;
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("[task]\nloss = \"bce\"\n[train]\nepochs = 1\nloss = \"bce\"\n"),
            "r.toml: train.loss is now task.loss: give one of them");
  EXPECT_EQ(refusal("[model]\nname = \"illama\"\nsoft_mask = 0.5\n[soft_mask]\nshare = 1.0\n"
                    "[train]\nepochs = 1\n"),
            "r.toml: soft_mask.share is now model.soft_mask: give one of them");
  EXPECT_EQ(refusal("mixup = 3\n[task.mixup]\nmixup = 0.2\n[train]\nepochs = 1\n"),
            "r.toml: mixup is now task.mixup: give one of them");
  EXPECT_EQ(refusal("[mixup]\nmixup = 0.8\n[task.mixup]\nmixup = 0.2\n[train]\nepochs = 1\n"),
            "r.toml: mixup.mixup is now task.mixup.mixup: give one of them");
}

// A moved section may have some keys under the old name and others under the new one.
TEST(Migrate, ASectionMayBeGivenInTwoParts) {
  EXPECT_EQ(migrated("[mixup]\nmixup = 0.8\n[task.mixup]\ncutmix = 1.0\n",
                     "[task.mixup]\nmixup = 0.8\ncutmix = 1.0\n"),
            "");
}

// --- checkpoints

TEST(Migrate, ClassesOfAnEarlyCheckpointAreMetadataOfItsTask) {
  const Value classes = Value::Array{"a", "b"};
  const Value early = migrate_state(toml("step = 3\nclasses = [\"a\", \"b\"]\n"));
  ASSERT_NE(early.find("task_metadata.class_names"), nullptr);
  EXPECT_EQ(*early.find("task_metadata.class_names"), classes);
  for (const char* lines : {"step = 3\n", "step = 3\n[task_metadata]\nmulti_label = true\n"})
    EXPECT_EQ(migrate_state(toml(lines)), toml(lines)) << lines;
}

}  // namespace
}  // namespace tessera::train
