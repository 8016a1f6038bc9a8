// Runs that end before their last step.
#include "train/train_testing.h"

namespace tessera::train {
namespace {

class StopEarlyTest : public TemporaryFolder {
 protected:
  Recipe tiny(const std::string& run, std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"train.epochs=10", "train.checkpoint_steps=3"});
    return tiny_recipe(path(run), settings);
  }
  // The metric of such a run stays that of its first evaluation.
  Recipe flat(const std::string& run, const std::string& patience) const {
    return tiny(run, {"optimiser.lr=1e-30", "train.stop_early=" + patience});
  }
};

struct Crash {};

class Recorder : public Observer {
 public:
  int64_t crash_after_checkpoint = -1, checkpoints = 0;
  std::string notes;
  void checkpointed(const std::string&, uint64_t, double) override {
    if (checkpoints++ == crash_after_checkpoint) throw Crash();
  }
  void note(const std::string& line) override { notes += line + "\n"; }
};

TEST_F(StopEarlyTest, ARunWithoutANewBestEndsWhole) {
  Recorder recorder;
  const RunSummary summary = run_training(flat("run", "2"), {.observers = {&recorder}});
  EXPECT_EQ(summary.best_step, 8);
  EXPECT_EQ(summary.steps, 24);
  EXPECT_EQ(summary.plan.steps, 80);
  const std::string why =
      "stopped early after step 24 of 80: top1 has not improved in 2 evaluations since epoch 1.00 "
      "(train.stop_early)";
  EXPECT_EQ(summary.stopped_early, why);
  EXPECT_NE(recorder.notes.find(why), std::string::npos) << recorder.notes;
  EXPECT_EQ(summary.history.back().step, 24);
  EXPECT_EQ(summary.final.blocks.size(), 2u);  // images and confusion, as at the end of a plan
  for (const char* name : {"model.safetensors", "best.safetensors", "checkpoints/step-000024/manifest.json",
                           "checkpoints/step-000008/manifest.json"})
    EXPECT_TRUE(file_exists(summary.output + "/" + name)) << name;
}

TEST_F(StopEarlyTest, AContinuedRunKeepsTheCount) {
  run_training(flat("whole", "3"));
  int64_t crashes = 0;
  RunSummary last;
  for (const int64_t checkpoints : {2, 4, 3, 1, 100, 100}) {  // the last continues a run that ended
    Recorder recorder;
    recorder.crash_after_checkpoint = checkpoints;
    try {
      last = run_training(flat("parts", "3"), {.resume = Resume::automatic, .observers = {&recorder}});
    } catch (const Crash&) {
      ++crashes;
    }
  }
  EXPECT_GE(crashes, 3);
  EXPECT_EQ(last.steps, 32);
  EXPECT_FALSE(last.stopped_early.empty());
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(StopEarlyTest, PatienceThatSufficesChangesNothing) {
  run_training(tiny("without", {"train.epochs=4"}));
  const RunSummary with = run_training(tiny("with", {"train.epochs=4", "train.stop_early=4"}));
  EXPECT_TRUE(with.stopped_early.empty());
  EXPECT_EQ(with.steps, with.plan.steps);
  expect_same_history(path("without"), path("with"));
  expect_same_weights(path("without"), path("with"));
}

TEST_F(StopEarlyTest, AnEndedRunContinuesWithoutIt) {
  const std::vector<std::string> slow = {"train.epochs=4", "optimiser.lr=1e-30"};
  run_training(tiny("whole", slow));
  std::vector<std::string> patient = slow;
  patient.emplace_back("train.stop_early=1");
  EXPECT_EQ(run_training(tiny("parts", patient)).steps, 16);
  EXPECT_EQ(run_training(tiny("parts", slow), {.resume = Resume::required}).steps, 32);
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(StopEarlyTest, ItNeedsEvaluations) {
  EXPECT_NE(error_of([&] {
              tiny("x", {"train.stop_early=2", "train.eval_every=0"});
            }).find("train.eval_every = 0"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
