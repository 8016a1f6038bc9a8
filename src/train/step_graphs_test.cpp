// Training steps as graphs, by a table that records them and runs them again (models/base/graphs_testing.h): they must change no bit
// of a run.
#include "train/step_graphs.h"

#include "io/weights/safetensors.h"
#include "kernels/gpu/library.h"
#include "models/base/graphs_testing.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

using models::RecordedGraphs;
using Counts = RecordedGraphs::Counts;

constexpr int kSteps = 24, kWarm = static_cast<int>(models::GraphedPass::kWarmCalls);

struct Stop {};  // a crash

struct Watcher : Observer {
  int crash_after = -1;  // checkpoints
  std::vector<std::string> notes;
  void note(const std::string& line) override { notes.push_back(line); }
  void checkpointed(const std::string&, uint64_t, double) override {
    if (crash_after-- == 0) throw Stop();
  }
  int64_t count(const std::string& line) const { return std::count(notes.begin(), notes.end(), line); }
};

class StepGraphsTest : public TemporaryFolder {
 protected:
  // Without draws in the model. One evaluation of one batch has no graph, so all graphs are those of steps.
  Recipe recipe(const std::string& run, const std::vector<std::string>& settings) const {
    std::vector<std::string> all = {"model.drop_path=0", "train.eval_every=0", "train.eval_batch_size=24"};
    all.insert(all.end(), settings.begin(), settings.end());
    return tiny_recipe(path(run), all);
  }
  // Trains without and with graphs, and expects the same files.
  Counts compared(const std::vector<std::string>& settings, const char* capture_error = nullptr,
                  const char* replay_error = nullptr) {
    const std::string name = std::to_string(runs_++), plain = "plain" + name, graphed = "graphs" + name;
    run_training(recipe(plain, settings));
    const RecordedGraphs graphs;
    RecordedGraphs::counts().capture_error = capture_error;
    RecordedGraphs::counts().replay_error = replay_error;
    run_training(recipe(graphed, settings), {.observers = {&watcher}});
    expect_same_history(path(plain), path(graphed));
    expect_same_weights(path(plain), path(graphed));
    return RecordedGraphs::counts();
  }
  void expect_one_graph(const std::vector<std::string>& settings) {
    const Counts counts = compared(settings);
    EXPECT_EQ(counts.captures, 1) << testing::PrintToString(settings);
    EXPECT_EQ(counts.replays, kSteps - kWarm) << testing::PrintToString(settings);
    EXPECT_EQ(counts.alive, 0);
    for (const std::string& note : watcher.notes)
      EXPECT_EQ(note.find("no graphs"), std::string::npos) << note;
  }
  // Expects that no step has a graph, for a reason that is noted once.
  void expect_refusal(const std::string& why, const std::vector<std::string>& settings,
                      const char* capture_error = nullptr) {
    EXPECT_EQ(compared(settings, capture_error).replays, 0) << why;
    EXPECT_EQ(watcher.count("steps have no graphs: " + why), 1) << testing::PrintToString(watcher.notes);
  }

  // Kills and continues a run with graphs, and expects the files of `whole`.
  void expect_killed_is_same(const std::string& whole, const std::vector<std::string>& settings) {
    int crashes = 0;
    const int before = RecordedGraphs::counts().replays;
    for (const int checkpoints : {0, 3, 4, 7, 100}) {
      watcher.crash_after = checkpoints;
      try {
        run_training(recipe("killed", settings), {.resume = Resume::automatic, .observers = {&watcher}});
      } catch (const Stop&) {
        ++crashes;
      }
    }
    EXPECT_EQ(crashes, 4);
    EXPECT_GT(RecordedGraphs::counts().replays, before);
    expect_same_history(path(whole), path("killed"));
    expect_same_weights(path(whole), path("killed"));
  }
  void expect_near_weights(const std::string& run, const std::string& other) {
    const auto weights = [&](const std::string& name) {
      return read_tensors(SafetensorsFile(path(name + "/model.safetensors")));
    };
    const NamedTensors a = weights(run), b = weights(other);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(torch::allclose(a[i].second, b[i].second, 1e-5, 1e-5))
          << run << " " << a[i].first << " " << (a[i].second - b[i].second).abs().max();
  }

  Watcher watcher;

 private:
  int runs_ = 0;
};

TEST_F(StepGraphsTest, ChangeNoBit) {
  expect_one_graph({});  // mixed targets
  expect_one_graph({"train.precision='bf16'"});
  expect_one_graph(
      {"task.mixup={mixup=0.0}", "task.class_weights='balanced'"});  // a weight that differs by step
  expect_one_graph({"task.class_weights='balanced'"});
  expect_one_graph({"task.mixup={mixup=0.0}", "task.loss='bce'", "task.label_smoothing=0.1"});
  expect_one_graph({"train.freeze=['patch_embed.*', 'blocks.0.*']"});
}

TEST_F(StepGraphsTest, ChangeNoBitOfOtherModels) {
  expect_one_graph({"model={name='vil', dim=32, depth=2, patch_size=16}"});
  // Batch norms change their statistics once a step.
  expect_one_graph({"model={name='resnet', dims=[16, 32], depths=[1, 1], block='basic', stem='conv3'}"});
}

// Two steps of a sampler have no graph.
TEST_F(StepGraphsTest, ChangeNoBitOfOtherTasks) {
  expect_one_graph({"model={name='dit', dim=16, depth=2, heads=2, patch_size=8}",
                    "task={name='diffuse', sample_steps=2}"});
}

TEST_F(StepGraphsTest, ChangeNoBitOfPreTraining) {
  const std::string images = "preprocess={size=32, mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]}";
  expect_one_graph({"task={name='simmim', mask_patch=16}"});
  expect_one_graph({"task={name='maskfeat', cell=4, window=32, mask_least=1}"});
  expect_one_graph({"task={name='moco_v3', hidden=16, dim=8}"});
  expect_one_graph({"model={name='igpt', image_size=32, patch_size=8, dim=16, depth=1, heads=2, colours=8}",
                    "task={name='igpt'}", images});
  expect_one_graph({"model={name='autoencoder_kl', dims=[8, 16], depth=1, latent_channels=2, groups=4}",
                    "task={name='vae'}", images});
  for (const std::string order : {"raster", "nested"})
    expect_one_graph({"model={name='darl', dim=16, depth=1, heads=2, patch_size=16}",
                      "task={name='darl', objective='diffusion', order='" + order + "', block=1}"});
  expect_one_graph(
      {"model={name='darl', dim=16, depth=1, heads=2, patch_size=16, two_stream=true, positions='rope_2d'}",
       "task={name='darl', order='random'}"});
}

TEST_F(StepGraphsTest, ChangeNoBitOfTokenTargets) {
  const std::string tokeniser = path("dvae/model.safetensors");
  run_training(recipe("dvae", {"model={name='dalle', dims=[8, 16, 32, 32], depths=[1, 1, 1, 1], outputs=8}",
                               "task={name='dvae', code_width=8}", "train.epochs=1",
                               "preprocess={size=32, mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0]}"}));
  expect_one_graph({"task={name='beit', mask_least=1, codes=8, tokeniser='" + tokeniser + "'}"});
  run_training(recipe("classify", {"train.epochs=1"}));
  expect_one_graph(
      {"task={name='mvp', mask_least=1, width=16, teacher='" + path("classify/model.safetensors") + "'}"});
  expect_one_graph({"model={name='darl', dim=16, depth=1, heads=2, patch_size=16}",
                    "task={name='darl', objective='tokens', codes=8, tokeniser='" + tokeniser + "'}"});
}

// Windows of texts: the last one is shorter, so that the number of tokens differs by step.
TEST_F(StepGraphsTest, ChangeNoBitOfLanguageTasks) {
  make_directories(path("texts"));
  for (const std::string name : {"numbers", "others"}) {
    std::string words;
    for (int64_t i = 0; std::ssize(words) < 1000; ++i)
      words += name + " after " + std::to_string(i * i) + ", ";
    write_text_atomic(path("texts/" + name + ".txt"), words);
  }
  const std::string data = "data={path='text:" + path("texts") + "', val_share=0.5}",
                    none = "model={name='none'}", steps = "train.steps=" + std::to_string(kSteps),
                    small = "dim=16, heads=2";
  for (const std::string kind : {"gpt2", "llama", "bloom"})
    expect_one_graph({none, data, "train.epochs=0", steps,
                      "task={name='language', length=16, language={kind='" + kind + "', " + small +
                          ", depth=1, context=16}}"});
  for (const std::string kind : {"t5", "transformer"})
    expect_one_graph({none, data, "train.epochs=0", steps,
                      "task={name='language', form='seq2seq', length=16, seq2seq={kind='" + kind + "', " +
                          small + ", encoder_depth=1, decoder_depth=1, hidden=32, head_dim=8}}"});
  expect_one_graph({none, data, "train.epochs=0", steps,
                    "task={name='bert', length=16, encoder={" + small + ", depth=1, context=16}}"});
}

TEST_F(StepGraphsTest, ChangeNoBitOfPairs) {
  const std::string data = "data={path='shapes:task=text,size=32,train=64,val=24'}",
                    texts = "embed_dim=8, text_dim=16, text_depth=1, text_heads=2, context_length=24, ";
  expect_one_graph({data, "task={name='clip', " + texts + "equal_captions='ignored'}"});
  expect_one_graph({data, "task={name='clip', " + texts + "loss='sigmoid', causal=false, text_pool='last'}"});
  expect_one_graph({data, "task={name='clip', " + texts + "similarity='tokens'}"});
  expect_one_graph({data, "task={name='clip', " + texts + "views={weight=1.0, hidden=16, dim=8}}"});
}

TEST_F(StepGraphsTest, ChangeNoBitOfMaskedAutoEncoders) {
  expect_one_graph({"task={name='mae', decoder_dim=16, decoder_depth=1, decoder_heads=2}"});
  expect_one_graph({"model={name='eva02', dim=16, depth=2, heads=2, patch_size=16}",
                    "task={name='mae', decoder_dim=16, decoder_depth=1, decoder_heads=2, fuse=[0]}"});
}

// A step ends without the host, by the kernels' emulator.
TEST_F(StepGraphsTest, GoTogetherWithKernels) {
  kernels::gpu::use_table(tessera_gpu_table());
  expect_one_graph({});
  kernels::gpu::use_table(nullptr);
}

TEST_F(StepGraphsTest, EachSizeHasItsOwn) {
  const Counts counts = compared({"train.sizes=[32, 48, 64]"});
  EXPECT_EQ(counts.captures, 3);
  EXPECT_EQ(counts.replays, kSteps - 3 * kWarm);
}

// The mask changes until step 7: a graph would repeat an old one.
TEST_F(StepGraphsTest, WaitForValuesThatTheHostChanges) {
  const Counts counts =
      compared({"model={name='illama', dim=16, depth=2, heads=2, patch_size=16, soft_mask=0.5, "
                "soft_mask_mode='soft', soft_mask_cutoff=1}"});
  EXPECT_EQ(counts.captures, 1);
  EXPECT_EQ(counts.replays, kSteps - 7 - kWarm);
}

TEST_F(StepGraphsTest, KilledAndContinuedRunsAreTheSame) {
  const std::vector<std::string> settings = {"train.checkpoint_steps=1", "train.eval_every=1"};
  run_training(recipe("plain", settings));
  const RecordedGraphs graphs;
  expect_killed_is_same("plain", settings);
}

// Branches run on all samples, with factors that are an input; the first step does not know its branches.
TEST_F(StepGraphsTest, DropPathDiffersByRoundingAlone) {
  const std::vector<std::string> models = {
      "model.drop_path=0.4", "model={name='vil', dim=32, depth=2, patch_size=16, drop_path=0.4}",
      "model={name='resnet', dims=[16, 32], depths=[1, 1], block='basic', stem='conv3', drop_path=0.4}",
      "model={name='dit', dim=16, depth=2, heads=2, patch_size=8, drop_path=0.4}"};
  for (size_t i = 0; i < models.size(); ++i) {
    std::vector<std::string> settings = {models[i], "optimiser={name='sgd', lr=0.1}"};
    if (models[i].find("dit") != std::string::npos)
      settings.push_back("task={name='diffuse', sample_steps=2}");
    const std::string plain = "plain" + std::to_string(i), graphed = "graphs" + std::to_string(i);
    run_training(recipe(plain, settings));
    const RecordedGraphs graphs;
    run_training(recipe(graphed, settings));
    EXPECT_EQ(RecordedGraphs::counts().captures, 1) << models[i];
    EXPECT_EQ(RecordedGraphs::counts().replays, kSteps - kWarm - 1) << models[i];
    expect_near_weights(plain, graphed);
  }
}

TEST_F(StepGraphsTest, DropPathOfTwoViewsHasNone) {
  const RecordedGraphs graphs;
  run_training(recipe("graphs", {"model.drop_path=0.2", "task={name='moco_v3', hidden=16, dim=8}"}),
               {.observers = {&watcher}});
  EXPECT_EQ(watcher.count("steps have no graphs: the recording failed: random numbers are drawn (drop_path)"),
            1);
  EXPECT_EQ(RecordedGraphs::counts().replays, 0);
}

TEST_F(StepGraphsTest, KilledAndContinuedRunsWithDropPathAreTheSame) {
  const std::vector<std::string> settings = {"model.drop_path=0.4", "train.checkpoint_steps=1",
                                             "train.eval_every=1"};
  const RecordedGraphs graphs;
  run_training(recipe("whole", settings));
  expect_killed_is_same("whole", settings);
}

TEST_F(StepGraphsTest, WhatDiffersByStepHasNone) {
  expect_refusal("train.accumulate is 2", {"train.accumulate=2"});
  expect_refusal("train.checkpoint_activations is on", {"train.checkpoint_activations=true"});
  expect_refusal("the task's steps differ in their calls",
                 {"task={name='dino', local_crops=0, out_dim=8, head_hidden=8, head_bottleneck=4}"});
}

TEST_F(StepGraphsTest, AFailureIsNotedAndIsNoError) {
  expect_refusal("the recording failed: out of memory", {}, "out of memory\nat line 3");
  compared({}, nullptr, "illegal address");
  EXPECT_EQ(watcher.count("steps have no graphs: the graph failed: illegal address"), 1);
}

}  // namespace
}  // namespace tessera::train
