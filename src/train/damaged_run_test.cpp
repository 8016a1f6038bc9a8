// Runs with damaged files, and diverged runs: good files are kept, and damage is reported.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/progress.h"
#include "io/weights/safetensors_shards.h"
#include "open/open_task.h"
#include "runs/checkpoint.h"
#include "runs/manifest.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class Notes : public Observer {
 public:
  int64_t interrupt_at_step = -1;
  std::vector<std::string> lines;
  void note(const std::string& line) override { lines.push_back(line); }
  void progressed(const StepProgress& at) override {
    if (at.step == interrupt_at_step) raise(SIGTERM);
  }
  bool say(const std::string& part) const {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
};

// Stops a run like a crash.
struct Stop {};
class StopAfter : public Observer {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void progressed(const StepProgress& at) override {
    if (at.step == step_) throw Stop();
  }

 private:
  int64_t step_;
};

class DamagedRun : public TemporaryFolder {
 protected:
  void TearDown() override { forget_interrupts(); }
  Recipe tiny(const std::string& run, std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"train.checkpoint_steps=4", "train.keep_last=4"});
    return tiny_recipe(path(run), settings);
  }
  // Leaves a run of 24 steps that was killed after 18, with checkpoints at least after 8, 12 and 16.
  void leave_half_a_run() const {
    StopAfter stop(18);
    EXPECT_THROW(run_training(tiny("run"), {.observers = {&stop}}), Stop);
  }
  Notes resume() const {
    Notes notes;
    run_training(tiny("run"), {.resume = Resume::required, .observers = {&notes}});
    return notes;
  }
  void expect_as_undisturbed() const {
    run_training(tiny("whole"));
    expect_same_history(path("whole"), path("run"));
    expect_same_weights(path("whole"), path("run"));
  }
  std::vector<int64_t> steps() const { return CheckpointStore(path("run/checkpoints")).steps(); }
  void change_state(int64_t step, const char* key, int64_t value) const {
    const std::string file = CheckpointStore(path("run/checkpoints")).directory_of(step) + "/manifest.json";
    Manifest manifest = parse_manifest(read_text(file), file);
    manifest.state.set(key, value);
    write_text_atomic(file, write_manifest(manifest));
  }
};

TEST_F(DamagedRun, AFlippedBitInTheManifestFallsBack) {
  leave_half_a_run();
  const std::string file = path("run/checkpoints/step-000016/manifest.json");
  std::string text = read_text(file);
  const size_t at = text.find("\"batch\": ");
  ASSERT_NE(at, std::string::npos);
  text[at + 9] = static_cast<char>(text[at + 9] ^ 1);
  write_text_atomic(file, text);
  const Notes notes = resume();
  EXPECT_TRUE(notes.say("checkpoint step-000016 is not usable: '" + file +
                        "' is damaged: its checksum is not that of its text"));
  EXPECT_TRUE(notes.say("continuing from " + path("run/checkpoints/step-000012")));
  expect_as_undisturbed();
}

TEST_F(DamagedRun, AStateThatContradictsItselfFallsBack) {
  leave_half_a_run();
  change_state(16, "skipped", 3);
  change_state(12, "optimiser_steps", -1);
  const Notes notes = resume();
  EXPECT_TRUE(notes.say("are not those of a run at step 16"));
  EXPECT_TRUE(notes.say("'optimiser_steps' is -1, must be at least 0"));
  EXPECT_TRUE(notes.say("continuing from " + path("run/checkpoints/step-000008")));
  expect_as_undisturbed();
}

TEST_F(DamagedRun, APositionThatIsNotTheStepsIsRefused) {
  leave_half_a_run();
  change_state(16, "epoch", 1);
  EXPECT_NE(error_of([&] { resume(); }).find("epoch 1 and batch 0 are not where step 16 ends"),
            std::string::npos);
}

TEST_F(DamagedRun, FilesAndPipesInTheWayDoNotStopARun) {
  leave_half_a_run();
  write_text_atomic(path("run/checkpoints/step-000099"), "a file");
  const std::string manifest = path("run/checkpoints/step-000016/manifest.json");
  fs::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_TRUE(resume().say("is a device or a pipe"));
  expect_as_undisturbed();
}

TEST_F(DamagedRun, APipeInPlaceOfTheMetricsIsRefused) {
  leave_half_a_run();
  fs::remove(path("run/metrics.jsonl"));
  ASSERT_EQ(::mkfifo(path("run/metrics.jsonl").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { resume(); }).find("is a device or a pipe"), std::string::npos);
}

TEST_F(DamagedRun, DamagedMetricsAreSaidAtTheStart) {
  leave_half_a_run();
  const std::string file = path("run/metrics.jsonl");
  std::string text = read_text(file);
  const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const size_t second = text.find('\n') + 1;
  std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(second), 20, '\0');
  std::ofstream(file, std::ios::binary) << text;
  const Notes notes = resume();
  ASSERT_GE(notes.lines.size(), 2u);
  EXPECT_TRUE(notes.say("metrics.jsonl: 1 line is damaged and taken out; '" + file + "' line 2"));
  EXPECT_GT(read_history(path("run")).size(), lines - 2);
  run_training(tiny("whole"));
  EXPECT_EQ(read_history(path("run")).size() + 1, read_history(path("whole")).size());
  expect_same_weights(path("whole"), path("run"));
}

TEST_F(DamagedRun, TheBestWeightsAreMadeAgain) {
  leave_half_a_run();
  EXPECT_FALSE(resume().say("best.safetensors"));
  const std::string best = path("run/best.safetensors"), whole = read_text(best);
  const auto again = [&] {
    Notes notes;
    run_training(tiny("run"), {.resume = Resume::required, .observers = {&notes}});
    EXPECT_TRUE(read_text(best) == whole);
    return notes;
  };
  fs::remove(best);
  EXPECT_TRUE(again().say("is missing, the file of step"));
  std::string content = whole;
  content[content.size() - 9] = static_cast<char>(content[content.size() - 9] ^ 16);
  write_text_atomic(best, content);
  EXPECT_TRUE(again().say("is not the file of step"));
  EXPECT_FALSE(again().say("best"));
}

// Large weights are written in several files. Any command that reads a run's folder finds them.
TEST_F(DamagedRun, LargeWeightsAreFilesWithAnIndex) {
  const auto train = [&](Resume resume) {
    Notes notes;
    const RunSummary summary =
        run_training(tiny("run"), {.resume = resume, .observers = {&notes}, .most_file_bytes = 20'000});
    EXPECT_EQ(summary.best_file, path("run/best.safetensors.index.json"));
    EXPECT_EQ(summary.model_file, path("run/model.safetensors.index.json"));
    return notes;
  };
  train(Resume::never);
  EXPECT_FALSE(file_exists(path("run/model.safetensors")));
  EXPECT_GT(read_shard_index(path("run/model.safetensors.index.json")).files.size(), 1u);
  const std::string latest = read_checkpoint(path("run/checkpoints/latest")).weights_path(kEmaFile);
  const NamedTensors large = read_tensors(WeightFile(weights_file_of(path("run"), false))),
                     saved = read_tensors(WeightFile(latest));
  ASSERT_EQ(large.size(), saved.size());
  const std::map<std::string, torch::Tensor> by_name(saved.begin(), saved.end());
  for (const auto& [name, tensor] : large) EXPECT_TRUE(torch::equal(tensor, by_name.at(name))) << name;
  EXPECT_EQ(WeightFile(path("run/model.safetensors.index.json")).metadata(), WeightFile(latest).metadata());
  EXPECT_FALSE(train(Resume::required).say("best"));
  fs::remove(read_shard_index(path("run/best.safetensors.index.json")).files.rbegin()->first);
  EXPECT_TRUE(train(Resume::required).say("is not the file of step"));
  EXPECT_FALSE(train(Resume::required).say("best"));
}

TEST_F(DamagedRun, BestWeightsThatAreLostAreSaid) {
  leave_half_a_run();
  resume();
  const auto stored = read_checkpoint(path("run/checkpoints/latest"));
  const int64_t best = stored.state.find("best_step")->as_int();
  fs::remove(path("run/best.safetensors"));
  Notes notes;
  if (best == stored.step) GTEST_SKIP() << "the last step is the best";
  fs::remove_all(CheckpointStore(path("run/checkpoints")).directory_of(best));
  const RunSummary summary = run_training(tiny("run"), {.resume = Resume::required, .observers = {&notes}});
  EXPECT_TRUE(notes.say("the best weights, of step"));
  EXPECT_EQ(summary.best_file, "");
}

// --- diverged weights: at this learning rate the first update destroys them

class AstrayRun : public DamagedRun {
 protected:
  Recipe astray(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"optimiser.lr=1e30", "train.clip_grad=0", "train.max_skipped=100",
                                       "train.checkpoint_steps=1", "train.keep_last=1"});
    return tiny("run", settings);
  }
  void expect_good_checkpoint() const {
    EXPECT_FALSE(file_exists(path("run/model.safetensors")));
    EXPECT_FALSE(file_exists(path("run/best.safetensors")));
    ASSERT_FALSE(steps().empty());
    EXPECT_EQ(steps().front(), 0);
    EXPECT_LE(steps().back(), 1);  // saved before the divergence was detected
  }
};

TEST_F(AstrayRun, ARunThatEndsInSkippedStepsHasFailed) {
  const std::string line = error_of([&] { run_training(astray({"train.epochs=1"})); });
  EXPECT_NE(line.find("finite"), std::string::npos) << line;
  EXPECT_NE(line.find("step-000000"), std::string::npos) << line;
  expect_good_checkpoint();
}

TEST_F(AstrayRun, AnEvaluationWithoutNumbersIsNotTheBest) {
  const std::string line = error_of([&] {
    run_training(astray({"train.epochs=1", "train.eval_every=0.125"}));
  });
  EXPECT_NE(line.find("finite"), std::string::npos) << line;
  expect_good_checkpoint();
}

TEST_F(AstrayRun, ARunThatEndsInAnEvaluationWithoutNumbersHasFailed) {
  const std::string line = error_of([&] { run_training(astray({"train.epochs=0", "train.steps=1"})); });
  EXPECT_NE(line.find("finite"), std::string::npos) << line;
  expect_good_checkpoint();
}

TEST_F(AstrayRun, ASignalAmongSkippedStepsSavesNothing) {
  catch_interrupts();
  Notes notes;
  notes.interrupt_at_step = 4;
  try {
    run_training(astray({}), {.observers = {&notes}});
    FAIL() << "not interrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::interrupted);
    EXPECT_NE(std::string(error.what()).find("not saved since the loss or its gradient is not finite"),
              std::string::npos)
        << error.what();
  }
  expect_good_checkpoint();
}

}  // namespace
}  // namespace tessera::train
