#include "train/sweep.h"

#include <filesystem>

#include "core/text.h"

#include "train/train_testing.h"

namespace tessera::train {
namespace {

class SweepTest : public TemporaryFolder {
 protected:
  void SetUp() override { write_text_atomic(path("tiny.toml"), kTinyRecipe); }
  Sweep sweep(const std::string& content) const {
    write_text_atomic(path("sweep.toml"), content);
    return read_sweep(path("sweep.toml"));
  }
  std::string refusal(const std::string& content) const {
    const std::string line = error_of([&] { sweep(content); });
    return line.substr(line.find(": ") + 2);
  }
};

constexpr const char* kGrid = R"(
recipe = "tiny.toml"
seeds = [0, 1]
[set]
train.epochs = 1
[grid]
optimiser.lr = [1e-3, 3e-3]
task.mixup.mode = ["batch", "pair"]
)";

TEST_F(SweepTest, AGridIsEveryCombination) {
  const Sweep read = sweep(kGrid);
  ASSERT_EQ(read.points.size(), 4u);
  EXPECT_EQ(read.points[0].name, "lr=0.001,mode=batch");
  EXPECT_EQ(read.points[3].name, "lr=0.003,mode=pair");
  EXPECT_EQ(read.points[3].settings.find("task.mixup.mode")->as_string(), "pair");
  EXPECT_EQ(read.common.find("train.epochs")->as_int(), 1);
  EXPECT_FALSE(read.has_final);
}

TEST_F(SweepTest, WhatIsWrongIsSaidBeforeTheFirstRun) {
  EXPECT_EQ(refusal("seeds = [1]"), "recipe is missing: which recipe is to be swept");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\""), "give [grid] or [[points]], one of them");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\n[grid]\noptimiser.lr = 1"),
            "grid.optimiser.lr is 1, must be a list of values");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\nseeds = [1, 1]\n[grid]\noptimiser.lr = [1]"),
            "seeds names a seed twice");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\n[[points]]\nname = \"a/b\"\n[[points]]\nname = \"a_b\""),
            "two points are called 'a_b'");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\n[gird]\na = [1]"), "unknown key 'gird', did you mean 'grid'?");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\nset = \"train.epochs=1\"\n[grid]\noptimiser.lr = [1]"),
            "set is a string, must be a table");
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\nfinal = true\n[grid]\noptimiser.lr = [1]"),
            "final is a boolean, must be a table");
  const Sweep seeded = sweep("recipe = \"tiny.toml\"\n[grid]\ntrain.seed = [0, 1]");
  EXPECT_EQ(error_of([&] { run_sweep(seeded, path("runs")); }),
            "a sweep sets train.seed itself: give seeds, and --output");
  const Sweep last =
      sweep("recipe = \"tiny.toml\"\n[grid]\noptimiser.lr = [1]\n[final]\nset = { train = { epoch = 1 } }");
  EXPECT_NE(error_of([&] { run_sweep(last, path("runs")); }).find("train.epoch"), std::string::npos);
  const Sweep wrong = sweep("recipe = \"tiny.toml\"\n[grid]\noptimiser.lr = [1e-3, \"fast\"]");
  EXPECT_NE(error_of([&] { run_sweep(wrong, path("runs")); }).find("optimiser.lr is a string"),
            std::string::npos);
  EXPECT_FALSE(file_exists(path("runs")));
}

TEST_F(SweepTest, ItsRecipeMayBeSeveralFiles) {
  make_directories(path("scale"));
  write_text_atomic(path("scale/small.toml"), "[train]\nbatch_size = 4\n");
  write_text_atomic(path("asked.toml"), "[train]\nseed = 1\n");
  const std::string grid = "[grid]\noptimiser.lr = [1e-3, 3e-3]\n";
  const Sweep listed = sweep("recipe = [\"tiny.toml\", \"scale/small.toml\"]\n" + grid);
  EXPECT_EQ(listed.recipes, (std::vector{path("tiny.toml"), path("scale/small.toml")}));
  EXPECT_EQ(load_recipe(listed.recipes).train.batch_size, 4);
  const Sweep asked = read_sweep(path("sweep.toml"), {path("asked.toml")});
  EXPECT_EQ(asked.recipes.back(), path("asked.toml"));
  EXPECT_EQ(asked.recipes.size(), 3u);
  EXPECT_EQ(refusal("recipe = 3\n" + grid), "recipe is 3, must be a file name or a list of file names");
  EXPECT_EQ(refusal("recipe = [\"tiny.toml\", 3]\n" + grid),
            "recipe is [\"tiny.toml\", 3], must be a file name or a list of file names");
  EXPECT_EQ(refusal("recipe = []\n" + grid),
            "recipe is an empty list, must be a file name or a list of file names");
}

TEST_F(SweepTest, RunsAreMadeOnceAndTabulated) {
  const Sweep read = sweep(kGrid);
  int64_t started = 0;
  const auto run = [&] {
    return run_sweep(read, path("runs"),
                     {.starting = [&](const std::string&, int64_t, int64_t, int64_t) { ++started; }});
  };
  const auto runs = run();
  EXPECT_EQ(started, 8);
  ASSERT_EQ(runs.size(), 8u);
  EXPECT_TRUE(file_exists(path("runs/lr=0.001,mode=batch/seed-1/model.safetensors")));
  const auto rows = tabulate(runs);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].done, 2);
  EXPECT_DOUBLE_EQ(rows[0].mean, (runs[0].value + runs[1].value) / 2);
  EXPECT_NEAR(rows[0].deviation, std::abs(runs[0].value - runs[1].value) / std::sqrt(2.0), 1e-12);
  // The losses are those of the run's own log and evaluation.
  for (const SweepRun& one : runs) {
    const std::string folder = text(path("runs"), "/", one.point, "/seed-", one.seed);
    double train = 0, test = 0;
    for (const HistoryPoint& point : read_history(folder))
      for (const auto& [name, value] : point.values)
        if (name == "loss" && point.kind != "train") (point.kind == "epoch" ? train : test) = value;
    EXPECT_EQ(one.train_loss.value(), train);
    EXPECT_EQ(one.test_loss.value(), test);
  }
  EXPECT_DOUBLE_EQ(rows[0].train_loss.value(), (*runs[0].train_loss + *runs[1].train_loss) / 2);
  // Called again, it only makes the missing run; the numbers are the same.
  std::filesystem::remove_all(path("runs/lr=0.003,mode=pair/seed-0"));
  const auto again = run();
  EXPECT_EQ(started, 9);
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].value, again[i].value) << runs[i].point;
    EXPECT_EQ(runs[i].train_loss, again[i].train_loss) << runs[i].point;
    EXPECT_EQ(runs[i].test_loss, again[i].test_loss) << runs[i].point;
  }
  const std::string csv = read_text(path("runs/results.csv"));
  EXPECT_NE(csv.find(text(",", shortest(*runs[7].train_loss), ",", shortest(*runs[7].test_loss), ",")),
            std::string::npos)
      << csv;
  // A changed recipe is never mistaken for the old one.
  write_text_atomic(path("tiny.toml"), text(kTinyRecipe, "label_smoothing = 0.1\n"));
  EXPECT_NE(error_of([&] { run(); }).find("holds a run of another recipe"), std::string::npos);
}

// A point that cannot start is recorded like one that fails later; the last layer sets the length of a run.
TEST_F(SweepTest, ABadPointDoesNotEndTheSweep) {
  const Sweep read = sweep(R"(
recipe = "tiny.toml"
[set]
train.epochs = 1
[[points]]
name = "no such policy"
set = { augment = { auto_augment = "rand-x9" } }
[[points]]
name = "short"
set = { train = { steps = 3 } }
[final]
set = { train = { epochs = 2 } }
)");
  const auto runs = run_sweep(read, path("runs"));
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_NE(runs[0].failure.find("rand-x9"), std::string::npos);
  EXPECT_EQ(load_recipe(path("runs/short/seed-0/recipe.toml")).train.steps, 3);
  EXPECT_EQ(load_recipe(path("runs/final/short/seed-0/recipe.toml")).train.epochs, 2);
  EXPECT_EQ(refusal("recipe = \"tiny.toml\"\n[[points]]\nname = \"..\""),
            "a point is called '..': its name is that of its folder, not 'final', '.' or '..'");
}

// Its class count comes from the data, in the run.
TEST_F(SweepTest, ASweepOfAutoIsMadeOnce) {
  const RunSummary first = run_training(
      load_recipe(path("tiny.toml"), {"train.epochs=1", "train.output=\"" + path("first") + "\""}));
  write_text_atomic(path("auto.toml"), text("[model]\nname = \"auto\"\npretrained = \"", first.model_file,
                                            "\"\n[data]\npath = \"shapes:task=texture,train=64,val=24\"\n"
                                            "[train]\nepochs = 1\nbatch_size = 8\ndevice = \"cpu\"\n"));
  const Sweep read = sweep("recipe = \"auto.toml\"\n[grid]\noptimiser.lr = [1e-3, 1e-4]\n");
  int64_t started = 0;
  for (int time = 0; time < 2; ++time) {
    const auto runs = run_sweep(read, path("runs"),
                                {.starting = [&](const auto&, int64_t, int64_t, int64_t) { ++started; }});
    for (const SweepRun& run : runs) EXPECT_EQ(run.failure, "");
  }
  EXPECT_EQ(started, 2);
}

// A result from before losses were stored is accepted.
TEST_F(SweepTest, ResultsWithoutLossesAreRead) {
  const Sweep read = sweep("recipe = \"tiny.toml\"\n[set]\ntrain.steps = 4\n[[points]]\nname = \"a\"\n");
  run_sweep(read, path("runs"));
  std::string stored = read_text(path("runs/a/seed-0/result.json"));
  for (const char* key : {"\"train_loss\"", "\"test_loss\""}) {
    const size_t at = stored.find(key), end = stored.find(',', at);
    ASSERT_NE(at, std::string::npos);
    stored.erase(at, end + 1 - at);
  }
  write_text_atomic(path("runs/a/seed-0/result.json"), stored);
  const auto runs = run_sweep(read, path("runs"));
  EXPECT_FALSE(runs[0].train_loss || runs[0].test_loss);
  EXPECT_FALSE(tabulate(runs)[0].train_loss);
  EXPECT_NE(read_text(path("runs/results.csv")).find(text(shortest(runs[0].value), ",,,")),
            std::string::npos);
}

TEST(SweepRows, TheBestIsTheHighestMeanThatFailsWithNoSeed) {
  const auto row = [](const std::string& name, int64_t done, int64_t failed, double mean) {
    SweepRow made;
    made.point = name, made.done = done, made.failed = failed, made.mean = mean;
    return made;
  };
  const auto best = [](const std::vector<SweepRow>& rows) {
    const SweepRow* found = best_of(rows);
    return found ? found->point : "";
  };
  EXPECT_EQ(best({row("low", 2, 0, 0.3), row("high", 2, 0, 0.7), row("middle", 2, 0, 0.5)}), "high");
  EXPECT_EQ(best({row("fails once", 1, 1, 0.9), row("sound", 2, 0, 0.4)}), "sound");
  EXPECT_EQ(best({row("fails once", 1, 1, 0.6), row("fails as well", 1, 1, 0.8), row("never ends", 0, 2, 0)}),
            "fails as well");
  EXPECT_EQ(best({row("first of two", 1, 0, 0.5), row("second", 1, 0, 0.5)}), "first of two");
  EXPECT_EQ(best({row("never ends", 0, 2, 0)}), "");
}

TEST_F(SweepTest, ARunThatFailsIsNotedAndTheBestPointIsRunAtTheEnd) {
  const Sweep read = sweep(R"(
recipe = "tiny.toml"
[set]
train.epochs = 1
[[points]]
name = "astray"
set = { optimiser = { lr = 1e30 }, train = { max_skipped = 0 } }
[[points]]
name = "good"
set = { optimiser = { lr = 3e-3 } }
[final]
set = { train = { epochs = 2 } }
seeds = [3, 4]
)");
  const auto runs = run_sweep(read, path("runs"));
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_NE(runs[0].failure.find("not finite"), std::string::npos);
  EXPECT_EQ(runs[1].failure, "");
  EXPECT_TRUE(runs[2].final);
  EXPECT_EQ(runs[3].point, "good");
  EXPECT_EQ(runs[3].seed, 4);
  EXPECT_EQ(load_recipe(path("runs/final/good/seed-4/recipe.toml")).train.epochs, 2);
  const std::string csv = read_text(path("runs/results.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5) << csv;
  EXPECT_EQ(tabulate(runs)[0].failed, 1);
}

}  // namespace
}  // namespace tessera::train
