#include "recipe/recipe_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/text.h"
#include "recipe/recipe.h"
#include "train/sweep.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class RecipeFilesTest : public TemporaryFolder {
 protected:
  std::string write(const std::string& name, const std::string& content) {
    write_text_atomic(path(name), content);
    return path(name);
  }
  // Returns the error of reading these lines as a file, without the folder.
  std::string refusal(const std::string& lines) {
    const std::string file = write("r.toml", lines);
    std::string line = error_of([&] { read_based(file); });
    const std::string folder = path("");
    for (size_t at; (at = line.find(folder)) != std::string::npos;) line.erase(at, folder.size());
    return line;
  }
};

TEST_F(RecipeFilesTest, LaterBasesAreLaidOverEarlierOnes) {
  make_directories(path("sub"));
  write("recipe.toml", "[model]\ndim = 48\nheads = 3\n[train]\nepochs = 3\nseed = 1\n");
  write("sub/pictures.toml", "[train]\nsteps = 9\nseed = 2\n");
  write("sub/scale.toml", "base = \"pictures.toml\"\n[model]\ndim = 16\n[train]\nbatch_size = 8\n");
  const std::string several =
      write("sub/top.toml", "base = [\"../recipe.toml\", \"scale.toml\"]\n[train]\nseed = 3\n");
  const Value table = read_based(several);
  EXPECT_EQ(*table.find("model.dim"), Value(16));
  EXPECT_EQ(*table.find("model.heads"), Value(3));
  EXPECT_EQ(*table.find("train.steps"), Value(9));
  EXPECT_EQ(table.find("train.epochs"), nullptr);  // steps replace them, also across files
  EXPECT_EQ(*table.find("train.seed"), Value(3));
  EXPECT_EQ(table.find("base"), nullptr);
  const Value pair = read_based(std::vector{path("recipe.toml"), path("sub/scale.toml")});
  EXPECT_EQ(*pair.find("train.seed"), Value(2));
  EXPECT_EQ(*pair.find("model.heads"), Value(3));
  EXPECT_EQ(read_based(write("none.toml", "base = []\nseed = 1\n")),
            read_based(write("plain.toml", "seed = 1\n")));
}

TEST_F(RecipeFilesTest, SeveralFilesAreNamedInErrors) {
  const std::vector files = {write("a.toml", "[train]\nepochs = 1\n"),
                             write("b.toml", "[train]\nepoch = 2\n")};
  EXPECT_EQ(error_of([&] { load_recipe(files); }),
            files[0] + " + " + files[1] + ": unknown key 'train.epoch', did you mean 'epochs'?");
}

TEST_F(RecipeFilesTest, BasesThatCannotBeRead) {
  EXPECT_EQ(refusal("base = \"none.toml\"\n"),
            "the recipe: cannot open 'none.toml': No such file or directory (a base of r.toml)");
  EXPECT_EQ(refusal("base = 3\n"), "r.toml: base is an integer, must be a file name or a list of file names");
  EXPECT_EQ(refusal("base = [\"r.toml\", 3]\n").substr(0, 7), "r.toml:");
  EXPECT_EQ(refusal("base = [3]\n"),
            "r.toml: base holds an integer, must be a file name or a list of file names");
  EXPECT_EQ(refusal("base = \"r.toml\"\n"),
            "r.toml: its bases lead back to it, must not go in a circle: r.toml -> r.toml");
  write("middle.toml", "base = [\"plain.toml\", \"r.toml\"]\n");
  write("plain.toml", "[train]\nseed = 1\n");
  EXPECT_EQ(refusal("base = \"middle.toml\"\n"),
            "r.toml: its bases lead back to it, must not go in a circle: r.toml -> middle.toml -> r.toml");
  EXPECT_EQ(refusal("base = [\"plain.toml\", \"plain.toml\"]\n"), "");  // the same file twice is no cycle
  try {
    read_based(write("c.toml", "base = \"c.toml\"\n"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
  }
}

TEST_F(RecipeFilesTest, LevelsAndFilesAreCounted) {
  write("level-0.toml", "[train]\nseed = 1\n");
  for (int level = 1; level <= 9; ++level)
    write(text("level-", level, ".toml"), text("base = \"level-", level - 1, ".toml\"\n"));
  EXPECT_EQ(*read_based(path("level-8.toml")).find("train.seed"), Value(1));
  EXPECT_EQ(error_of([&] { read_based(path("level-9.toml")); }),
            path("level-0.toml") + ": more than 8 levels of bases, from " + path("level-9.toml") + " on");
  write("many-0.toml", "");
  for (int level = 1; level <= 7; ++level)  // 3^7 files
    write(text("many-", level, ".toml"), text("base = [\"many-", level - 1, ".toml\", \"many-", level - 1,
                                              ".toml\", \"many-", level - 1, ".toml\"]\n"));
  EXPECT_EQ(error_of([&] { read_based(path("many-7.toml")); }),
            path("many-0.toml") + ": more than 100 files based on one another");
}

// --- the files under recipes/

const fs::path kRecipes = TESSERA_TEST_DATA "/../../recipes";
const std::string kTable = TESSERA_TEST_DATA "/recipes.txt";

std::string hash_of_settings(const std::vector<std::string>& files, const Value& settings) {
  return recipe_hash(load_recipe(files, overrides_of(settings)));
}

// Hashes the resolved files: a recipe, or a sweep's recipes and seeds.
std::string hash_of_files(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) files.push_back((kRecipes / name).string());
  Value settings;
  if (names.front() == "finetune.toml") settings.set("model.name", "vit");  // "auto" needs a file
  if (!read_based(files.front()).find("recipe")) return hash_of_settings(files, settings);
  const Sweep sweep = read_sweep(files.front(), {files.begin() + 1, files.end()});
  std::string lines;
  for (const SweepPoint& point : sweep.points) {
    settings = sweep.common;
    apply_overrides(settings, point.settings);
    lines += text(point.name, " ", hash_of_settings(sweep.recipes, settings));
    apply_overrides(settings, sweep.final_settings);
    lines += text(" ", hash_of_settings(sweep.recipes, settings), "\n");
  }
  for (const int64_t seed : sweep.seeds) lines += text("seed ", seed, "\n");
  for (const int64_t seed : sweep.final_seeds) lines += text("final seed ", seed, "\n");
  return checksum_of(as_bytes(lines));
}

// tests/data/recipes.txt has a line "HASH FILE [FILE...]" for each file under recipes/, and for each pair of
// a recipe and a scale that replaces a single file. An intended change of a recipe, or a new key, changes
// hashes: TESSERA_WRITE_RECIPES=1 rewrites them.
TEST(PublishedRecipes, ResolveToWhatTheyDid) {
  const bool write = std::getenv("TESSERA_WRITE_RECIPES") != nullptr;
  std::string table;
  std::set<std::string> listed;
  std::istringstream lines(read_text(kTable));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = split(line, ' ');
    const std::vector<std::string> names(words.begin() + 1, words.end());
    ASSERT_FALSE(names.empty()) << line;
    const std::string found = hash_of_files(names);
    EXPECT_TRUE(write || found == words.front()) << join(names, " ") << " resolves to " << found;
    table += found + " " + join(names, " ") + "\n";
    if (names.size() == 1) listed.insert(names.front());
  }
  for (const auto& entry : fs::recursive_directory_iterator(kRecipes)) {
    const std::string name = fs::relative(entry.path(), kRecipes).string();
    if (!name.ends_with(".toml") || name.starts_with("scale/") || name.starts_with("parts/")) continue;
    if (listed.contains(name)) continue;
    EXPECT_TRUE(write) << name << " is missing in " << kTable;
    table += hash_of_files({name}) + " " + name + "\n";
  }
  if (write) write_text_atomic(kTable, table);
}

// A scale changes the size of a run, but not how it trains.
TEST(PublishedRecipes, AScaleLeavesTheRecipeAsItIs) {
  const auto load = [](const std::vector<std::string>& names) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back((kRecipes / name).string());
    return load_recipe(files);
  };
  const Recipe full = load({"vil/table10_tiny.toml"});
  const Recipe scaled = load({"vil/table10_tiny.toml", "scale/cifar10.toml"});
  EXPECT_EQ(*scaled.model.settings.find("depth"), Value(3));
  EXPECT_EQ(*scaled.model.settings.find("classes"), Value(10));
  EXPECT_EQ(scaled.preprocess.size, 32);
  EXPECT_EQ(scaled.train.epochs, 16);
  EXPECT_EQ(scaled.train.clip_grad, full.train.clip_grad);
  EXPECT_EQ(*scaled.task.find("mixup.cutmix"), *full.task.find("mixup.cutmix"));
  EXPECT_EQ(scaled.optimiser.common.weight_decay, full.optimiser.common.weight_decay);
  EXPECT_EQ(scaled.schedule.find("min_lr")->as_double(), full.schedule.find("min_lr")->as_double());
  EXPECT_DOUBLE_EQ(scaled.optimiser.lr_for(scaled.train.batch_size), 2e-3);
  EXPECT_EQ(*load({"illama/table12_tiny.toml", "scale/shapes_transformer.toml"}).model.settings.find("depth"),
            Value(6));
}

}  // namespace
}  // namespace tessera::train
