// ZeRO: the optimiser's state, the average and gradients divided over processes give the run of one process.
#include "tests/parallel/parallel_testing.h"

namespace tessera::parallel_testing {
namespace {

class ZeroTest : public ParallelTest {
 protected:
  // A way to divide the run, with its number of processes.
  struct Divided {
    int processes;
    Words settings;
  };
  void expect_as_one(const std::vector<Divided>& ways, Words settings) const {
    settings.emplace_back("train.precision=fp64");
    fs::remove_all(path("one"));
    ASSERT_EQ(run(1, "one", settings), 0) << log("one");
    for (const Divided& way : ways) {
      Words all = settings;
      all.insert(all.end(), way.settings.begin(), way.settings.end());
      SCOPED_TRACE(text(way.processes, " processes, ", join(way.settings, ", ")));
      fs::remove_all(path("divided"));
      ASSERT_EQ(run(way.processes, "divided", all, {}, By::script), 0) << log("divided");
      const bool zero = join(way.settings, " ").find("parallel.zero") != std::string::npos;
      EXPECT_TRUE(fs::exists(path("divided/checkpoints/latest/optimiser-00002-of-00002.safetensors")) ||
                  way.processes > 2 || !zero);
      expect_close_weights("one", "divided");
      expect_close_metrics("one", "divided", 1e-9);
    }
  }
};

TEST_F(ZeroTest, EveryStageMakesTheWeightsOfOneProcess) {
  expect_as_one({{2, {"parallel.zero=1"}},
                 {2, {"parallel.zero=2"}},
                 {4, {"parallel.zero=1"}},
                 {4, {"parallel.zero=2", "parallel.replicate=2"}},
                 {2, {"parallel.zero=3"}},
                 {4, {"parallel.zero=3"}},
                 {4, {"parallel.zero=3", "parallel.replicate=2"}}},
                {"train.accumulate=2", "train.steps=6", "train.eval_every=0.3", "train.eval_batch_size=7",
                 "optimiser.layer_decay=0.7"});
}

// Updates that look at all rows of a tensor, or at all gradients.
TEST_F(ZeroTest, OptimisersAndClippingMakeTheWeightsOfOneProcess) {
  const Words few = {"train.steps=4"};
  const auto with = [&](Words more) {
    more.insert(more.end(), few.begin(), few.end());
    return more;
  };
  for (const char* optimiser : {"sgd", "lamb", "lars", "muon"}) {
    SCOPED_TRACE(optimiser);
    expect_as_one({{2, {"parallel.zero=2"}}, {2, {"parallel.zero=3"}}},
                  with({text("optimiser.name=", optimiser)}));
  }
  for (const char* mode : {"agc", "each", "value"}) {
    SCOPED_TRACE(mode);
    expect_as_one({{2, {"parallel.zero=1"}}}, with({text("train.clip_mode=", mode), "train.clip_grad=0.02"}));
  }
}

// Tensors that some processes do not use, statistics of batch norms, frozen weights, recomputed blocks.
TEST_F(ZeroTest, TasksMakeTheWeightsOfOneProcess) {
  const std::vector<Divided> way = {{2, {"parallel.zero=2"}}, {2, {"parallel.zero=3"}}};
  use_task("[task]\nname = \"mae\"\ndecoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n");
  expect_as_one(way, {"train.steps=4", "train.accumulate=2", "train.checkpoint_activations=true"});
  use_task(
      "[task]\nname = \"clip\"\nembed_dim = 16\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\n"
      "context_length = 32\n");
  expect_as_one(way, {"train.steps=4", "train.freeze=[\"blocks.0.*\"]"});
  use_task(
      "[task]\nname = \"segment\"\nchannels = 8\nauxiliary_channels = 8\nblocks = [0, 0, 1, 1]\n"
      "scale = [32, 32]\ntest_mode = \"whole\"\n");
  expect_as_one(way, {"train.steps=4", "data.path=shapes:task=segment,train=48,val=10,size=32"});
}

// Processes with the same samples divide heads and hidden channels, next to those with other samples and rows.
TEST_F(ZeroTest, DividedLayersMakeTheWeightsOfOneProcess) {
  expect_as_one({{2, {"parallel.tensor=2"}},
                 {4, {"parallel.tensor=2"}},
                 {2, {"parallel.tensor=2", "parallel.zero=3"}},
                 {4, {"parallel.tensor=2", "parallel.zero=1"}},
                 {4, {"parallel.tensor=2", "parallel.zero=3"}}},
                {"train.accumulate=2", "train.steps=6", "train.eval_every=0.3", "train.eval_batch_size=7"});
  use_task("");  // fewer samples than processes
  expect_as_one({{4, {"parallel.tensor=2"}}},
                {"train.batch_size=3", "train.eval_batch_size=3", "train.steps=3"});
  const std::vector<Divided> ways = {{2, {"parallel.tensor=2"}},
                                     {4, {"parallel.tensor=2", "parallel.zero=3"}}};
  expect_as_one(ways,
                {"model.name=vil", "model.heads=4", "train.steps=4", "train.checkpoint_activations=true"});
  use_task("[task]\nname = \"mae\"\ndecoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n");
  expect_as_one(ways, {"train.steps=4"});
  use_task(
      "[task]\nname = \"clip\"\nembed_dim = 16\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\n"
      "context_length = 32\n");
  expect_as_one(ways, {"train.steps=4"});
}

// Processes with the same samples each run a range of blocks, next to those with other samples.
TEST_F(ZeroTest, PipelinesMakeTheWeightsOfOneProcess) {
  expect_as_one({{2, {"parallel.pipeline=2"}}, {4, {"parallel.pipeline=2"}}, {4, {"parallel.pipeline=4"}}},
                {"model.depth=5", "train.accumulate=5", "train.steps=6", "train.eval_every=0.3",
                 "train.eval_batch_size=7", "optimiser.layer_decay=0.7"});
  const std::vector<Divided> ways = {{2, {"parallel.pipeline=2"}}};
  expect_as_one(ways, {"train.steps=3"});  // one piece a step
  expect_as_one(
      ways, {"train.steps=4", "train.accumulate=3", "optimiser.name=muon", "train.freeze=[\"blocks.0.*\"]"});
  use_task("[task]\nname = \"mae\"\ndecoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n");
  expect_as_one({{3, {"parallel.pipeline=3"}}},
                {"train.steps=4", "train.accumulate=4", "train.checkpoint_activations=true"});
}

TEST_F(ZeroTest, ModelsThatAreNoChainOfBlocksAreNamed) {
  const auto refusal = [&](int processes, Words settings) {
    settings.push_back(text("parallel.pipeline=", processes));
    fs::remove_all(path("refused"));
    EXPECT_NE(run(processes, "refused", settings, {}, By::script), 0);
    return log("refused");
  };
  const auto expect = [&](const std::string& line, const std::string& what) {
    EXPECT_NE(line.find(what), std::string::npos) << line;
  };
  expect(refusal(3, {}), "model 'vit' has 2 blocks for as many processes at most");
  expect(refusal(2, {"train.noise_scale=true"}), "train.noise_scale");
  use_task(
      "[task]\nname = \"clip\"\nembed_dim = 16\ntext_dim = 32\ntext_depth = 3\ntext_heads = 2\n"
      "context_length = 32\n");
  expect(refusal(2, {"model.depth=1"}), "the loss reads the output of a block in the middle");
  use_task(
      "[task]\nname = \"segment\"\nchannels = 8\nauxiliary_channels = 8\nblocks = [0, 0, 1, 1]\nscale = [32, "
      "32]\n");
  expect(refusal(2, {"data.path=shapes:task=segment,train=48,val=10,size=32"}), "running statistics");
}

TEST_F(ZeroTest, LayersThatDoNotDivideAreNamed) {
  const auto refusal = [&](int processes, const Words& settings) {
    EXPECT_NE(run(processes, "refused", settings, {}, By::script), 0);
    return log("refused");
  };
  EXPECT_NE(refusal(4, {"parallel.tensor=4"})
                .find("layer 'blocks.0.attn' of model 'vit' divides into 2 shares at most"),
            std::string::npos)
      << log("refused");
  EXPECT_NE(refusal(2, {"parallel.tensor=2", "train.noise_scale=true"}).find("train.noise_scale"),
            std::string::npos)
      << log("refused");
}

// A run goes on with other numbers of processes and other stages. Its checkpoints share frozen weights, which processes
// hold in parts at stage 3.
TEST_F(ZeroTest, AnyNumberOfProcessesContinuesAnyStage) {
  const Words common = {"train.precision=fp64", "train.checkpoint_steps=2", "train.freeze=[\"blocks.0.*\"]"};
  ASSERT_EQ(run(1, "whole", common), 0) << log("whole");
  struct Stretch {
    int processes;
    const char* setting;
    int64_t until;
  };
  for (const Stretch& stretch :
       {Stretch{1, "parallel.zero=0", 4}, Stretch{4, "parallel.zero=3", 8}, Stretch{3, "parallel.zero=1", 12},
        Stretch{2, "parallel.tensor=2", 14}, Stretch{2, "parallel.pipeline=2", 15},
        Stretch{2, "parallel.zero=2", 16}, Stretch{1, "parallel.zero=0", 0}}) {
    Words settings = common;
    settings.emplace_back(stretch.setting);
    const pid_t job = start(stretch.processes, "parts", settings, {"--resume", "auto"}, By::script);
    if (stretch.until > 0) {
      const std::string reached = path(text("parts/checkpoints/step-0000", stretch.until < 10 ? "0" : "",
                                            stretch.until, "/manifest.json"));
      while (!fs::exists(reached) && is_running(job))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (const pid_t process : stretch.processes == 1 ? std::vector{job} : children_of(job))
        ::kill(process, SIGKILL);
    }
    const int code = exit_code(job);
    if (stretch.until == 0) {
      ASSERT_EQ(code, 0) << log("parts");
    }
  }
  expect_close_metrics("whole", "parts", 1e-9);
  expect_close_weights("whole", "parts");
}

TEST_F(ZeroTest, TheFilesAreThoseOfOneProcess) {
  const Words still = {"optimiser.lr=0", "train.steps=1", "schedule.warmup_steps=0", "train.ema_decay=0"};
  ASSERT_EQ(run(1, "one", still), 0) << log("one");
  Words divided = still;
  divided.emplace_back("parallel.zero=2");
  ASSERT_EQ(run(2, "two", divided, {}, By::script), 0) << log("two");
  EXPECT_EQ(read_text(path("one/model.safetensors")), read_text(path("two/model.safetensors")));
  divided.back() = "parallel.zero=3";
  ASSERT_EQ(run(2, "three", divided, {}, By::script), 0) << log("three");
  EXPECT_EQ(read_text(path("one/model.safetensors")), read_text(path("three/model.safetensors")));
}

// Products in bfloat16 read the same numbers if their weights travel in bfloat16.
TEST_F(ZeroTest, WeightsThatTravelInBfloat16TrainTheSame) {
  Words settings = {"train.precision=bf16", "train.steps=3", "parallel.zero=2"};
  ASSERT_EQ(run(2, "whole", settings, {}, By::script), 0) << log("whole");
  settings.back() = "parallel.zero=3";
  ASSERT_EQ(run(2, "travel", settings, {}, By::script), 0) << log("travel");
  EXPECT_EQ(read_text(path("whole/model.safetensors")), read_text(path("travel/model.safetensors")));
}

// Each process rounds its rows of frozen weights alone, from which the checkpoints come.
TEST_F(ZeroTest, FrozenWeightsInBfloat16AreThoseOfOneProcess) {
  Words settings = {"optimiser.lr=0",          "train.steps=2",        "train.checkpoint_steps=1",
                    "schedule.warmup_steps=0", "train.precision=bf16", "train.freeze=[\"blocks.0.*\"]",
                    "train.frozen=bf16"};
  ASSERT_EQ(run(1, "one", settings), 0) << log("one");
  settings.emplace_back("parallel.zero=3");
  ASSERT_EQ(run(2, "two", settings, {}, By::script), 0) << log("two");
  for (const char* file : {"model.safetensors", "checkpoints/latest/frozen.safetensors"})
    EXPECT_EQ(read_text(path(text("one/", file))), read_text(path(text("two/", file)))) << file;
}

TEST_F(ZeroTest, WhatCannotBeDividedIsRefused) {
  const auto refusal = [&](const std::string& name, int processes, const Words& settings) {
    EXPECT_EQ(run(processes, name, settings), 2) << log(name);
    return log(name);
  };
  EXPECT_NE(refusal("four", 2, {"parallel.zero=4"}).find("parallel.zero = 4, must be 0 to 3"),
            std::string::npos)
      << log("four");
  EXPECT_NE(refusal("odd", 3, {"parallel.zero=1", "parallel.shard=2"}).find("start 4 processes"),
            std::string::npos)
      << log("odd");
  EXPECT_NE(refusal("cpu", 1, {"parallel.offload=optimiser"})
                .find("the device of this run is the CPU, so leave it out"),
            std::string::npos)
      << log("cpu");
  EXPECT_NE(refusal("none", 2, {"parallel.shard=2"}).find("set parallel.zero to 1, 2 or 3"),
            std::string::npos)
      << log("none");
  EXPECT_NE(refusal("noise", 2, {"parallel.zero=1", "train.noise_scale=true", "train.accumulate=2"})
                .find("train.noise_scale reads"),
            std::string::npos)
      << log("noise");
}

}  // namespace
}  // namespace tessera::parallel_testing
