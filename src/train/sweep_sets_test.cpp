#include "train/sweep_sets.h"

#include <cmath>
#include <filesystem>

#include "core/text.h"
#include "io/files/io_testing.h"
#include "io/images/image.h"

#include "train/train_testing.h"

namespace tessera::train {
namespace {

constexpr const char* kSweep = R"(
recipe = "tiny.toml"
[set]
train.epochs = 1
train.eval_every = 0.0
data.val_share = 0.25
[grid]
optimiser.lr = [1e-3, 3e-3]
[final]
seeds = [0, 1]
[sets]
natural = ["lists", "folders"]
structured = ["more"]
)";

// A few uniformly coloured pictures per class; one set by the benchmark's lists, two by folders.
class SweepSetsTest : public TemporaryFolder {
 protected:
  void SetUp() override {
    write_text_atomic(path("tiny.toml"), kTinyRecipe);
    write_text_atomic(path("sweep.toml"), kSweep);
    for (const char* set : {"folders", "more"}) {
      for (int i = 0; i < 16; ++i)
        picture(text(set, "/train1000/", i % 2 ? "red" : "blue", "/", i, ".png"), i % 2);
      for (int i = 0; i < 4; ++i) picture(text(set, "/test/", i % 2 ? "red" : "blue", "/", i, ".png"), i % 2);
    }
    std::string train, held_out, all, test;
    for (int i = 0; i < 20; ++i) {
      const std::string name = text("images/", i, ".png"), line = text(name, " ", i % 2, "\n");
      picture("lists/" + name, i % 2);
      (i < 12 ? train : i < 16 ? held_out : test) += line;
      if (i < 16) all += line;
    }
    for (const auto& [name, lines] : {std::pair("train800.txt", train),
                                      {"val200.txt", held_out},
                                      {"train800val200.txt", all},
                                      {"test.txt", test}})
      write_text_atomic(path(std::string("sets/lists/") + name), lines);
  }
  void picture(const std::string& name, int label) const {
    const std::string file = path("sets/" + name);
    make_directories(std::filesystem::path(file).parent_path().string());
    Image image(32, 32);
    for (int64_t i = 0; i < 32 * 32; ++i) image.pixels[static_cast<size_t>(3 * i + 2 * label)] = 255;
    write_file_atomic(file, encode_png(image));
  }
  Sweep sweep() const { return read_sweep(path("sweep.toml")); }
  std::string refusal(const std::string& sets) const {
    write_text_atomic(path("wrong.toml"), "recipe = \"tiny.toml\"\n[grid]\noptimiser.lr = [1e-3]\n" + sets);
    const std::string line = error_of([&] { read_sweep(path("wrong.toml")); });
    return line.substr(line.find(": ") + 2);
  }
};

TEST_F(SweepSetsTest, ListsAreTakenWhereTheyAreGiven) {
  const SetData lists = data_of_set(path("sets/lists"), true);
  EXPECT_EQ(lists.settings[0], "data.path=\"" + path("sets/lists/train800.txt") + "\"");
  EXPECT_EQ(lists.settings[1], "data.val_path=\"" + path("sets/lists/val200.txt") + "\"");
  EXPECT_EQ(lists.final_settings[0], "data.path=\"" + path("sets/lists/train800val200.txt") + "\"");
  EXPECT_EQ(lists.final_settings[1], "data.val_path=\"" + path("sets/lists/test.txt") + "\"");
  const SetData folders = data_of_set(path("sets/folders"), true);
  EXPECT_EQ(folders.settings, std::vector{"data.path=\"" + path("sets/folders/train1000") + "\""});
  EXPECT_EQ(folders.final_settings[1], "data.val_path=\"" + path("sets/folders/test") + "\"");
  EXPECT_TRUE(data_of_set(path("sets/folders"), false).final_settings.empty());
}

TEST_F(SweepSetsTest, EachSetIsSweptAndTheGroupsAreMeant) {
  std::vector<std::string> started;
  const auto note = [&](const std::string& set, int64_t, int64_t) { started.push_back(set); };
  const auto results = run_sets(sweep(), path("sets"), path("runs"), {}, note);
  EXPECT_EQ(started, (std::vector<std::string>{"lists", "folders", "more"}));
  ASSERT_EQ(results.size(), 3u);
  for (const SetResult& result : results) {
    EXPECT_EQ(result.failure, "") << result.set;
    EXPECT_TRUE(result.row.final) << result.set;
    EXPECT_EQ(result.row.done, 2) << result.set;
  }
  // The points were evaluated on the lists, the final runs on the other two.
  const Recipe point = load_recipe(path("runs/lists/lr=0.001/seed-0/recipe.toml"));
  EXPECT_EQ(point.data.path, path("sets/lists/train800.txt"));
  EXPECT_EQ(point.data.val_path, path("sets/lists/val200.txt"));
  const Recipe last = load_recipe(path("runs/lists/final/" + results[0].row.point + "/seed-1/recipe.toml"));
  EXPECT_EQ(last.data.path, path("sets/lists/train800val200.txt"));
  EXPECT_EQ(last.data.val_path, path("sets/lists/test.txt"));
  EXPECT_EQ(load_recipe(path("runs/more/lr=0.001/seed-0/recipe.toml")).data.val_path, "");
  const auto groups = group_means(results);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "natural");
  EXPECT_DOUBLE_EQ(groups[0].mean, (results[0].row.mean + results[1].row.mean) / 2);
  EXPECT_EQ(groups[1].sets, 1);
  EXPECT_EQ(groups[2].name, "all");
  EXPECT_DOUBLE_EQ(groups[2].mean, (results[0].row.mean + results[1].row.mean + results[2].row.mean) / 3);
  EXPECT_NE(read_text(path("runs/groups.csv")).find("natural,2," + shortest(groups[0].mean)),
            std::string::npos);
  EXPECT_NE(read_text(path("runs/sets.csv")).find("more,structured,\"" + results[2].row.point + "\","),
            std::string::npos);
}

// If a set cannot be trained, its group and the overall mean have no number.
TEST_F(SweepSetsTest, ASetThatFailsLeavesTheOthersTheirNumbers) {
  std::filesystem::remove_all(path("sets/folders/train1000/red"));
  const auto results = run_sets(sweep(), path("sets"), path("runs"));
  EXPECT_NE(results[1].failure, "");
  EXPECT_EQ(results[1].row.done, 0);
  const auto groups = group_means(results);
  EXPECT_FALSE(groups[0].complete);
  EXPECT_TRUE(groups[1].complete);
  EXPECT_FALSE(groups[2].complete);
  EXPECT_NE(read_text(path("runs/groups.csv")).find("natural,2,\n"), std::string::npos);
}

TEST_F(SweepSetsTest, WhatIsMissingIsSaidBeforeTheFirstRun) {
  const auto refused = [&] {
    std::string line = error_of([&] { run_sets(sweep(), path("sets"), path("runs")); });
    for (size_t at; (at = line.find(path("sets/"))) != std::string::npos;)
      line.erase(at, path("sets/").size());
    return line;
  };
  std::filesystem::remove(path("sets/lists/test.txt"));
  EXPECT_EQ(refused(), "'lists' holds lists/train800val200.txt but not lists/test.txt");
  std::filesystem::remove(path("sets/lists/train800val200.txt"));
  EXPECT_EQ(refused(), "'lists' must hold train800val200.txt and test.txt, or folders train1000 and test");
  std::filesystem::remove(path("sets/lists/train800.txt"));
  std::filesystem::remove(path("sets/lists/val200.txt"));
  EXPECT_EQ(refused(), "'lists' must hold train800.txt and val200.txt, or a folder train1000");
  std::filesystem::remove_all(path("sets/lists"));
  EXPECT_EQ(refused(), "'lists' does not exist, [sets] names it in natural");
  EXPECT_FALSE(file_exists(path("runs")));
  Sweep none = sweep();
  none.groups.clear();
  EXPECT_EQ(error_of([&] { check_sets(none, "x", "runs"); }),
            "the sweep has no [sets]: which folders under 'x' are sets");
}

TEST_F(SweepSetsTest, SetsAreNamesOfFoldersByGroup) {
  EXPECT_EQ(refusal("[sets]\na = \"x\"\n"), "sets.a is \"x\", must be a list of folders' names");
  EXPECT_EQ(refusal("[sets]\na = [\"../x\"]\n"), "sets.a holds \"../x\", must be the name of a folder");
  EXPECT_EQ(refusal("[sets]\na = [\"x\"]\nb = [\"x\"]\n"), "[sets] names 'x' twice");
  EXPECT_EQ(refusal("[sets]\nall = [\"x\"]\n"),
            "sets.all: the group must have another name, all sets together are called so");
}

// The three groups of the benchmark, with 7, 4 and 8 sets.
TEST(PublishedSets, VtabHasNineteen) {
  for (const char* file : {"vil/vtab_sweep.toml", "darl/vtab_sweep.toml", "darl/vtab_sweep_mixed.toml"}) {
    const Sweep sweep = read_sweep(std::string(TESSERA_TEST_DATA "/../../recipes/") + file);
    ASSERT_EQ(sweep.groups.size(), 3u) << file;
    EXPECT_EQ(sweep.groups[0].sets.size(), 7u);
    EXPECT_EQ(sweep.groups[1].sets.size(), 4u);
    EXPECT_EQ(sweep.groups[2].sets.size(), 8u);
  }
}

}  // namespace
}  // namespace tessera::train
