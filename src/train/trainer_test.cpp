#include "train/trainer.h"

#include <signal.h>

#include <cmath>
#include <filesystem>

#include "core/progress.h"
#include "core/threads.h"
#include "open/open_task.h"
#include "open/weights.h"
#include "runs/checkpoint.h"
#include "train/setup.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class TrainerTest : public TemporaryFolder {
 protected:
  void TearDown() override { forget_interrupts(); }
  Recipe tiny(const std::string& run, const std::vector<std::string>& settings = {}) const {
    return tiny_recipe(path(run), settings);
  }
};

struct Stop {};  // a crash

class Watcher : public Observer {
 public:
  int64_t crash_after_checkpoint = -1, interrupt_at_step = -1, interrupt_at_evaluation = -1;
  std::vector<std::string> notes;
  std::vector<int64_t> checkpoints, evaluations;

  void started(const RunPlan&, int64_t) override {
    if (interrupt_at_step == 0) raise(SIGTERM);
  }
  void progressed(const StepProgress& at) override {
    if (at.step == interrupt_at_step) raise(SIGTERM);
  }
  void evaluating(int64_t, int64_t) override {
    if (static_cast<int64_t>(evaluations.size()) == interrupt_at_evaluation) {
      interrupt_at_evaluation = -1;
      raise(SIGINT);
    }
  }
  void evaluated(const EvaluationReport& report) override { evaluations.push_back(report.step); }
  void checkpointed(const std::string&, uint64_t, double) override {
    checkpoints.push_back(static_cast<int64_t>(checkpoints.size()));
    if (static_cast<int64_t>(checkpoints.size()) - 1 == crash_after_checkpoint) throw Stop();
  }
  void note(const std::string& line) override { notes.push_back(line); }
};

TEST_F(TrainerTest, ARunLeavesAllItsFiles) {
  const RunSummary summary = run_training(tiny("run"));
  for (const char* name : {"recipe.toml", "metrics.jsonl", "model.safetensors", "best.safetensors",
                           "checkpoints/latest/manifest.json", "checkpoints/step-000024/ema.safetensors"})
    EXPECT_TRUE(file_exists(summary.output + "/" + name)) << name;
  EXPECT_EQ(summary.plan.steps, 24);
  const auto* pictures = std::get_if<report::PicturesBlock>(&summary.final.blocks.at(0));
  ASSERT_NE(pictures, nullptr);
  EXPECT_EQ(pictures->pictures.size(), 24u);
  const auto* mistakes = std::get_if<report::ConfusionBlock>(&summary.final.blocks.at(1));
  ASSERT_NE(mistakes, nullptr);
  EXPECT_EQ(mistakes->confusion.classes(), 10u);
  EXPECT_EQ(mistakes->confusion.counts.size(), 100u);
  int64_t evaluations = 0, epochs = 0, lines = 0;
  for (const HistoryPoint& point : summary.history)
    ++(point.kind == "eval" ? evaluations : point.kind == "epoch" ? epochs : lines);
  EXPECT_EQ(evaluations, 3);
  EXPECT_EQ(epochs, 3);
  EXPECT_EQ(lines, 8);
  // TensorBoard's file contains the recipe as text and the first batch as a picture.
  std::string events;
  for (const auto& entry : fs::directory_iterator(summary.output))
    if (entry.path().filename().string().starts_with("events.")) events += read_text(entry.path().string());
  EXPECT_NE(events.find("```toml\n" + read_text(summary.output + "/recipe.toml")), std::string::npos);
  EXPECT_NE(events.find("\x89PNG"), std::string::npos);
  int64_t shown = 0;  // images of each evaluation
  for (size_t at = 0; (at = events.find("eval/" + pictures->heading, at)) != std::string::npos; ++at) ++shown;
  EXPECT_EQ(shown, 3);
  // The written file alone gives the evaluated accuracy.
  const train::Setup setup = make_setup(tiny("run"));
  const OpenedTask opened = open_task(summary.model_file, {.validation = setup.data.validation});
  EXPECT_EQ(values_of(evaluate(setup, *opened.task)), values_of(summary.final));
}

// Checkpoints share copies of them; the run, killed and continued, is the same, and all its files are
// complete.
TEST_F(TrainerTest, FrozenWeightsStandInAFileOfTheirOwn) {
  const std::vector<std::string> frozen = {"train.freeze=['patch_embed.*', 'blocks.0.*']",
                                           "train.checkpoint_steps=3", "train.keep_last=3"};
  const RunSummary whole = run_training(tiny("whole", frozen));
  Watcher watcher;
  watcher.crash_after_checkpoint = 3;
  EXPECT_THROW(run_training(tiny("run", frozen), {.observers = {&watcher}}), Stop);
  std::filesystem::remove(path("run/best.safetensors"));
  run_training(tiny("run", frozen), {.resume = Resume::automatic});
  const auto expect_same = [](const NamedTensors& a, const NamedTensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  };
  for (const char* name : {"/model.safetensors", "/best.safetensors"})
    expect_same(read_tensors(SafetensorsFile(path("run") + name)),
                read_tensors(SafetensorsFile(path("whole") + name)));
  const CheckpointStore store(path("run/checkpoints"));
  const std::vector<int64_t> steps = store.steps();
  ASSERT_GE(steps.size(), 3u);
  const auto copy = [&](size_t behind) {
    return store.directory_of(steps.at(steps.size() - 1 - behind)) + "/frozen.safetensors";
  };
  EXPECT_TRUE(std::filesystem::equivalent(copy(0), copy(2)));
  EXPECT_FALSE(std::filesystem::equivalent(copy(0), copy(1)));
  EXPECT_LE(store.bytes(), whole.plan.disk_bytes);
  for (const auto& [name, tensor] :
       read_tensors(SafetensorsFile(store.directory_of(steps.back()) + "/weights.safetensors")))
    EXPECT_FALSE(name.starts_with("patch_embed.") || name.starts_with("blocks.0.")) << name;
  // The last checkpoint is the final model.
  const OpenedTask last = open_task(store.directory_of(steps.back())), final = open_task(whole.model_file);
  expect_same(tasks::named_state(last.task->parts()), tasks::named_state(final.task->parts()));
}

// Earlier versions also kept moments of frozen parameters.
TEST_F(TrainerTest, MomentsOfFrozenParametersAreLeftOut) {
  const std::vector<std::string> frozen = {"train.freeze=['patch_embed.*']", "train.ema_decay=0"};
  run_training(tiny("run", frozen));
  const std::string file = path("run/checkpoints/latest/optimiser.safetensors");
  NamedTensors kept = read_tensors(SafetensorsFile(file));
  for (const auto& [name, tensor] : kept) EXPECT_EQ(name.find("patch_embed"), std::string::npos) << name;
  auto optimisation = make_setup(tiny("other", frozen)).optimisation;
  EXPECT_EQ(optimisation.optimiser->parameters().size(), optimisation.trained.size());
}

TEST_F(TrainerTest, AnAverageThatOutlastsTheRunIsNamed) {
  const auto notes = [&](const std::vector<std::string>& settings) {
    std::string all;
    for (const std::string& line : make_setup(tiny("run", settings)).model.notes) all += line + "\n";
    return all;
  };
  const std::string named = notes({"train.ema_decay=0.99", "train.ema_warmup=false"});
  EXPECT_NE(named.find("% of the averaged weights are still the first ones"), std::string::npos) << named;
  for (const char* other : {"train.ema_warmup=true", "train.ema_decay=0.5", "train.ema_decay=0"})
    EXPECT_EQ(notes({"train.ema_decay=0.99", "train.ema_warmup=false", other}).find("still the first ones"),
              std::string::npos)
        << other;
}

TEST_F(TrainerTest, LearnsATinySetByHeart) {
  const RunSummary summary = run_training(
      tiny("run", {"train.epochs=40", "task.mixup.mixup=0", "task.mixup.cutmix=0", "augment.crop=centre",
                   "augment.flip=0", "model.drop_path=0", "model.patch_size=8", "model.dim=32",
                   "train.eval_every=0", "train.ema_decay=0"}));
  double first = 0, last = 0;
  for (const HistoryPoint& point : summary.history)
    if (point.kind == "epoch") (first == 0 ? first : last) = point.values.front().second;
  EXPECT_GT(first, 1.5);
  EXPECT_LT(last, 0.5 * first);
}

// Stops the run after every n-th checkpoint and continues it; the result must equal that of an uninterrupted
// run.
TEST_F(TrainerTest, ContinuedRunsAreTheSameByteForByte) {
  run_training(tiny("whole"));
  const Recipe recipe = tiny("parts", {"train.checkpoint_steps=1", "train.keep_last=1"});
  int64_t crashes = 0;
  for (const int64_t checkpoints : {0, 1, 3, 4, 1, 6, 2, 0, 100}) {
    Watcher watcher;
    watcher.crash_after_checkpoint = checkpoints;
    try {
      run_training(recipe, {.resume = Resume::automatic, .observers = {&watcher}});
    } catch (const Stop&) {
      ++crashes;
    }
  }
  EXPECT_EQ(crashes, 8);
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(TrainerTest, WhatCameAfterTheCheckpointIsDoneAgain) {
  run_training(tiny("whole"));
  Watcher watcher;
  watcher.crash_after_checkpoint = 2;  // steps 0, 5, 8 (best) …
  const Recipe recipe = tiny("parts", {"train.checkpoint_steps=5"});
  EXPECT_THROW(run_training(recipe, {.observers = {&watcher}}), Stop);
  std::filesystem::remove_all(path("parts/checkpoints/step-000008"));
  run_training(recipe, {.resume = Resume::required});
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(TrainerTest, ASignalSavesFirst) {
  catch_interrupts();
  run_training(tiny("whole"));
  for (const int64_t step : {1, 8, 13, 23, 24}) {
    const std::string run = "stopped" + std::to_string(step);
    Watcher watcher;
    watcher.interrupt_at_step = step;
    try {
      run_training(tiny(run), {.observers = {&watcher}});
      FAIL() << "not interrupted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::interrupted);
      EXPECT_NE(std::string(error.what()).find("interrupted after step " + std::to_string(step)),
                std::string::npos);
    }
    forget_interrupts();
    run_training(tiny(run), {.resume = Resume::required});
    expect_same_history(path("whole"), path(run));
    expect_same_weights(path("whole"), path(run));
  }
}

TEST_F(TrainerTest, ASignalBeforeTheFirstCheckpointEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  catch_interrupts();
  Watcher watcher;
  watcher.interrupt_at_step = 0;
  EXPECT_EXIT(run_training(tiny("stopped"), {.observers = {&watcher}}), testing::KilledBySignal(SIGTERM), "");
}

TEST_F(TrainerTest, ASignalDuringEvaluationEvaluatesLater) {
  catch_interrupts();
  run_training(tiny("whole"));
  for (const int64_t evaluation : {0, 2}) {
    const std::string run = "stopped" + std::to_string(evaluation);
    Watcher watcher, second;
    watcher.interrupt_at_evaluation = evaluation;
    EXPECT_THROW(run_training(tiny(run), {.observers = {&watcher}}), Error);
    EXPECT_EQ(static_cast<int64_t>(watcher.evaluations.size()), evaluation);
    forget_interrupts();
    run_training(tiny(run), {.resume = Resume::required, .observers = {&second}});
    EXPECT_EQ(second.evaluations.size(), static_cast<size_t>(3 - evaluation));
    expect_same_history(path("whole"), path(run));
    expect_same_weights(path("whole"), path(run));
  }
}

// As after a kill between the last checkpoint and its link.
TEST_F(TrainerTest, LatestIsTheCheckpointThatARunGoesOnFrom) {
  run_training(tiny("run", {"train.checkpoint_steps=5"}));
  const std::string latest = path("run/checkpoints/latest");
  const auto newest = fs::read_symlink(latest);
  ASSERT_EQ(newest, "step-000024");
  fs::remove(latest);
  fs::create_symlink("step-000020", latest);
  run_training(tiny("run", {"train.checkpoint_steps=5"}), {.resume = Resume::required});
  EXPECT_EQ(fs::read_symlink(latest), newest);
}

TEST_F(TrainerTest, AFinishedRunIsNotTrainedAgain) {
  const RunSummary first = run_training(tiny("run"));
  Watcher watcher;
  const RunSummary again = run_training(tiny("run"), {.resume = Resume::automatic, .observers = {&watcher}});
  EXPECT_TRUE(watcher.checkpoints.empty());
  EXPECT_EQ(values_of(first.final), values_of(again.final));
  EXPECT_EQ(std::get<report::ConfusionBlock>(first.final.blocks.at(1)).confusion.counts,
            std::get<report::ConfusionBlock>(again.final.blocks.at(1)).confusion.counts);
  EXPECT_EQ(first.history.size(), again.history.size());
}

TEST_F(TrainerTest, ADamagedCheckpointIsSaidAndTheOneBeforeUsed) {
  run_training(tiny("whole"));
  const Recipe recipe = tiny("parts", {"train.checkpoint_steps=5", "train.keep_last=3"});
  Watcher watcher, second;
  watcher.crash_after_checkpoint = 4;  // 0, 5, 8, 10, 15
  EXPECT_THROW(run_training(recipe, {.observers = {&watcher}}), Stop);
  const std::string damaged = path("parts/checkpoints/step-000015/optimiser.safetensors");
  std::string content = read_text(damaged);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  write_text_atomic(damaged, content);
  run_training(recipe, {.resume = Resume::automatic, .observers = {&second}});
  ASSERT_GE(second.notes.size(), 2u);
  EXPECT_EQ(second.notes[0], "checkpoint step-000015 is not usable: '" + damaged +
                                 "' is damaged: its checksum is not the manifest's");
  EXPECT_EQ(second.notes[1], "continuing from " + path("parts/checkpoints/step-000010"));
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(TrainerTest, OnlyTheLastAndTheBestCheckpointsAreKept) {
  Watcher watcher;
  const RunSummary summary =
      run_training(tiny("run", {"train.checkpoint_steps=2", "train.keep_last=3"}), {.observers = {&watcher}});
  std::vector<int64_t> expected = {20, 22, 24};
  if (summary.best_step < 20) expected.insert(expected.begin(), summary.best_step);
  EXPECT_EQ(CheckpointStore(path("run/checkpoints")).steps(), expected);
  EXPECT_GE(watcher.checkpoints.size(), 13u);
}

TEST_F(TrainerTest, ALossThatIsNoNumberLeavesTheGoodCheckpoint) {
  const Recipe recipe = tiny("run", {"optimiser.lr=1e30", "train.checkpoint_steps=1", "train.clip_grad=0"});
  const std::string line = error_of([&] { run_training(recipe); });
  EXPECT_NE(line.find("finite"), std::string::npos) << line;
  EXPECT_NE(line.find("optimiser.lr"), std::string::npos) << line;
  std::vector<std::string> notes;
  const auto stored = CheckpointStore(path("run/checkpoints")).newest(notes);
  ASSERT_TRUE(stored.has_value());
  EXPECT_TRUE(notes.empty());
  for (const auto& [name, tensor] : read_tensors(SafetensorsFile(stored->path(kWeightsFile))))
    EXPECT_TRUE(torch::isfinite(tensor).all().item<bool>()) << name;
}

TEST_F(TrainerTest, OtherRecipesAreRefusedByTheirKey) {
  Watcher watcher;
  watcher.crash_after_checkpoint = 1;
  EXPECT_THROW(run_training(tiny("run"), {.observers = {&watcher}}), Stop);
  const auto refusal = [&](const std::vector<std::string>& settings) {
    return error_of([&] { run_training(tiny("run", settings), {.resume = Resume::automatic}); });
  };
  EXPECT_EQ(refusal({"train.batch_size=4"}),
            "the run cannot be continued with another recipe: train.batch_size: 4 against 8 in the run");
  EXPECT_EQ(refusal({"optimiser.lr=0.01"}),
            "the run cannot be continued with another recipe: optimiser.lr: 0.01 against 0.003 in the run");
  EXPECT_EQ(refusal({"model.dim=32"}),
            "the run cannot be continued with another recipe: model.dim: 32 against 16 in the run");
  EXPECT_NE(refusal({"data.path=\"shapes:train=64,val=24,seed=1\""}), "");
  EXPECT_NE(refusal({"train.threads=2"}).find("made with 1 compute threads, now there are 2"),
            std::string::npos);
  run_training(tiny("run", {"train.keep_last=5", "train.loader_threads=2", "train.checkpoint_steps=7",
                            "train.max_bad=7", "train.eval_batch_size=5", "train.device=\"auto\"",
                            "train.log_every=3", "train.on_bad_image=\"fail\""}),
               {.resume = Resume::automatic});
}

// After fixing the cause and retrying, a user must not meet a directory that "already holds a run".
TEST_F(TrainerTest, WhatCannotRunIsRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const std::string& setting, const std::string& reason) {
    const Recipe recipe = tiny("run", {setting});
    EXPECT_NE(error_of([&] { run_training(recipe); }).find(reason), std::string::npos) << setting;
    EXPECT_NE(error_of([&] { plan_training(recipe); }).find(reason), std::string::npos) << setting;
    EXPECT_FALSE(file_exists(path("run"))) << setting;
  };
  refused("augment.auto_augment=\"rand-x9\"", "rand-x9");
  refused("task.class_weights=[1.0, 2.0]", "2 numbers, the data has");
  refused("train.sizes=[16, 32, 48, 64]", "4 sizes, more than the run has epochs, 3");
  const Recipe even = tiny("run", {"train.balanced_sampling=true", "task.class_weights=balanced"});
  EXPECT_EQ(error_of([&] { run_training(even); }),
            "train.balanced_sampling and task.class_weights both even out the classes: give one");
  EXPECT_FALSE(file_exists(path("run")));
  const Recipe recipe = tiny("run", {"train.batch_size=1"});
  EXPECT_NE(error_of([&] { make_setup(recipe, false, 2); }).find("the number of ranks, 2"),
            std::string::npos);
  make_setup(tiny("run", {"train.eval_batch_size=1"}), false, 2);  // a sample for each
}

TEST_F(TrainerTest, AnEvaluationFurtherAwayThanTheEndIsTheOneAtTheEnd) {
  Watcher watcher;
  run_training(tiny("run", {"train.eval_every=inf"}), {.observers = {&watcher}});
  EXPECT_EQ(watcher.evaluations, std::vector<int64_t>{24});
}

TEST_F(TrainerTest, ShortRunsAreProfiledToo) {
  run_training(tiny("run", {"train.epochs=0", "train.steps=2"}), {.profile = path("trace.json")});
  EXPECT_NE(read_text(path("trace.json")).find("optimiser and moving average"), std::string::npos);
  EXPECT_NE(
      error_of([&] { run_training(tiny("other"), {.profile = path("none/trace.json")}); }).find("trace"),
      std::string::npos);
  EXPECT_FALSE(file_exists(path("other")));
}

TEST_F(TrainerTest, ARunOfAutoGoesOnWithoutTheFileItStartedFrom) {
  const RunSummary first = run_training(tiny("first", {"train.epochs=1"}));
  fs::copy_file(first.model_file, path("start.safetensors"));
  const auto load = [&] {
    write_text_atomic(path("auto.toml"),
                      text("[model]\nname = \"auto\"\npretrained = \"", path("start.safetensors"),
                           "\"\n[data]\npath = \"shapes:train=64,val=24\"\n[train]\n"
                           "epochs = 1\nbatch_size = 8\ndevice = \"cpu\"\n"));
    return load_recipe(path("auto.toml"), {"train.output=\"" + path("run") + "\""});
  };
  Watcher watcher;
  watcher.crash_after_checkpoint = 0;
  EXPECT_THROW(run_training(load(), {.observers = {&watcher}}), Stop);
  fs::remove(path("start.safetensors"));
  EXPECT_EQ(run_training(load(), {.resume = Resume::required}).plan.steps, 8);
}

TEST_F(TrainerTest, ADirectoryHoldsOneRunAndOneProcess) {
  EXPECT_NE(error_of([&] { run_training(tiny("run"), {.resume = Resume::required}); }).find("holds no run"),
            std::string::npos);
  run_training(tiny("run", {"train.epochs=0", "train.steps=2"}));
  EXPECT_NE(error_of([&] { run_training(tiny("run")); }).find("already holds a run"), std::string::npos);
  make_directories(path("hub"));
  write_text_atomic(path("hub/model.safetensors"), "weights of another program");
  for (const Resume resume : {Resume::never, Resume::automatic})
    EXPECT_EQ(error_of([&] { run_training(tiny("hub"), {.resume = resume}); }),
              "'" + path("hub") +
                  "' holds model.safetensors and no run, which would replace it: choose another --output");
  RunDirectory other(path("run"));
  other.claim();
  EXPECT_EQ(error_of([&] { run_training(tiny("run"), {.resume = Resume::automatic}); }),
            "run directory '" + path("run") + "' is in use by another process");
}

TEST_F(TrainerTest, FrozenParametersStayAsTheyAre) {
  for (const std::string decay : {"0", "0.9"}) {  // also in the moving average
    const std::string run = "run" + decay;
    run_training(tiny(run, {"train.freeze=[\"patch_embed.*\", \"blocks.0.*\"]", "train.ema_decay=" + decay}));
    const auto fresh = models::build_classifier(make_setup(tiny("run")).model.info.model, 0);
    const SafetensorsFile trained(path(run + "/model.safetensors"));
    for (const auto& [name, before] : named_state(*fresh->backbone)) {
      const torch::Tensor after = to_tensor(*trained.find(name));
      const bool frozen = name.starts_with("patch_embed.") || name.starts_with("blocks.0.");
      EXPECT_EQ(torch::equal(before, after), frozen) << run << " " << name;
    }
  }
  EXPECT_EQ(
      error_of([&] { make_setup(tiny("x", {"train.freeze=[\"block.0.*\"]"})); }),
      "train.freeze: no parameter matches 'block.0.*', did you mean 'blocks.0.*'? (`tessera inspect` lists "
      "the names)");
  EXPECT_NE(error_of([&] { make_setup(tiny("x", {"train.freeze=[\"*\"]"})); }).find("nothing to train"),
            std::string::npos);
}

TEST_F(TrainerTest, DoublePrecisionIsDoubleThroughout) {
  run_training(tiny("run", {"train.precision=fp64", "train.steps=4", "train.epochs=0"}));
  const StoredCheckpoint stored = read_checkpoint(path("run/checkpoints/latest"));
  for (const std::string& file : stored.files) {
    const SafetensorsFile tensors(stored.path(file));
    for (const TensorView& view : tensors.tensors()) EXPECT_EQ(view.dtype, DType::f64) << view.name;
  }
}

TEST_F(TrainerTest, HalfPrecisionTrainsAndContinuesTheSame) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const std::vector<std::string> settings = {"train.precision=" + precision};
    const std::string whole = precision + "_whole", parts = precision + "_parts";
    run_training(tiny(whole, settings));
    Watcher watcher;
    watcher.crash_after_checkpoint = 1;
    EXPECT_THROW(run_training(tiny(parts, settings), {.observers = {&watcher}}), Stop);
    run_training(tiny(parts, settings), {.resume = Resume::automatic});
    expect_same_weights(path(whole), path(parts));
    const OpenedTask opened = open_task(path(whole));
    EXPECT_EQ(tasks::named_parameters(opened.task->parts()).front().second.scalar_type(), torch::kFloat32);
  }
}

// Overflows of fp16 with a loss scale are no divergence: with max_skipped = 0 one would end the run.
TEST_F(TrainerTest, AGradientBeyondHalfPrecisionOnlyLowersTheLossScale) {
  Watcher watcher;
  run_training(tiny("run", {"train.precision=fp16", "train.max_skipped=0"}), {.observers = {&watcher}});
  const Value state = read_checkpoint(path("run/checkpoints/latest")).state;
  const double scale = state.find("loss_scale.scale")->as_double();
  EXPECT_EQ(scale, 65536 / std::exp2(static_cast<double>(state.find("skipped")->as_int())));
  EXPECT_EQ(state.find("skipped_in_row")->as_int(), 0);
}

TEST_F(TrainerTest, FineTuningSaysWhatIsNew) {
  run_training(tiny("base", {"train.steps=2", "train.epochs=0"}));
  Watcher watcher;
  run_training(tiny("fine", {"train.steps=2", "train.epochs=0", "preprocess.size=64",
                             "data.path=\"shapes:train=64,val=24,size=64,task=texture\"",
                             "model.pretrained=" + path("base/model.safetensors")}),
               {.observers = {&watcher}});
  ASSERT_EQ(watcher.notes.size(), 4u);
  EXPECT_NE(watcher.notes[0].find("loaded "), std::string::npos);
  EXPECT_NE(watcher.notes[1].find("new head for "), std::string::npos);
  EXPECT_EQ(watcher.notes[2], "positions interpolated: pos_embed [1, 5, 16] to [1, 17, 16]");
  EXPECT_TRUE(watcher.notes[3].starts_with("images: size 64, crop ")) << watcher.notes[3];
  EXPECT_TRUE(watcher.notes[3].ends_with(", as the pretrained weights")) << watcher.notes[3];
  // A started run no longer needs the file.
  std::filesystem::remove(path("base/model.safetensors"));
  const RunSummary again =
      run_training(tiny("fine", {"train.steps=2", "train.epochs=0", "preprocess.size=64",
                                 "data.path=\"shapes:train=64,val=24,size=64,task=texture\"",
                                 "model.pretrained=" + path("base/model.safetensors")}),
                   {.resume = Resume::automatic});
  EXPECT_EQ(again.plan.steps, 2);
}

TEST_F(TrainerTest, AHeadAloneIsNotTrainedOnRandomWeights) {
  const std::string head_alone =
      "train.freeze=[\"cls_token\", \"pos_embed\", \"patch_embed.*\", \"blocks.*\", \"norm.*\"]";
  EXPECT_NE(
      error_of([&] { make_setup(tiny("x", {head_alone})); }).find("the frozen backbone has random weights"),
      std::string::npos);
  run_training(tiny("base"));
  EXPECT_EQ(make_setup(tiny("x", {head_alone, "model.pretrained=" + path("base/model.safetensors")}))
                .optimisation.trained.size(),
            2u);
}

TEST_F(TrainerTest, TheOrderOfLoaderThreadsDoesNotMatter) {
  run_training(tiny("one"));
  run_training(tiny("three", {"train.loader_threads=3"}));
  expect_same_weights(path("one"), path("three"));
}

}  // namespace
}  // namespace tessera::train
