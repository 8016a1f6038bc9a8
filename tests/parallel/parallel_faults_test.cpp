// Training over processes: what happens when one of them dies, stops, fails or is not like the others.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "core/random.h"
#include "tests/parallel/parallel_testing.h"

namespace tessera::parallel_testing {
namespace {

TEST_F(ParallelTest, AProcessThatDiesEndsTheJobAndFewerContinue) {
  ASSERT_EQ(run(1, "whole", {"train.precision=fp64", "train.checkpoint_steps=4"}), 0);
  const std::vector<std::string> slow = {"train.precision=fp64", "train.checkpoint_steps=4"};
  const pid_t job = start(3, "parts", slow, {"--resume", "auto"});
  while (!fs::exists(path("parts/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto processes = children_of(job);
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_FALSE(processes.empty());
  ::kill(processes.back(), SIGKILL);
  const int code = exit_code(job);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30));
  EXPECT_NE(code, 0);
  // mpirun may end the others before they have named it; Dying has the names.
  ASSERT_EQ(run(2, "parts", slow, {"--resume", "required"}), 0) << log("parts");
  EXPECT_NE(log("parts").find("the run was made by 3 processes, now there are 2"), std::string::npos)
      << log("parts");
  expect_close_metrics("whole", "parts", 1e-9);
  expect_close_weights("whole", "parts");
}

TEST_F(ParallelTest, WhatIsWrongIsSaidOnce) {
  EXPECT_EQ(run(2, "typo", {"train.epoch=1"}), 2);
  const std::string line = "tessera: process 0 of 2: --set train.epoch: unknown key 'train.epoch'";
  const std::string said = log("typo");
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find("unknown key"), said.rfind("unknown key")) << said;
  EXPECT_EQ(run(2, "small", {"train.batch_size=3"}), 2);
  EXPECT_NE(log("small").find("batch size is 3, must be at least twice the number of ranks, 2"),
            std::string::npos)
      << log("small");
}

// The process of a rank among the children of a launcher.
pid_t process_of(pid_t job, int rank) {
  for (const pid_t child : children_of(job)) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    for (std::string variable; std::getline(file, variable, '\0');)
      if (variable == text("OMPI_COMM_WORLD_RANK=", rank) || variable == text("RANK=", rank)) return child;
  }
  return 0;
}

// Variables of the environment for the programs that are started meanwhile.
using Variables = std::vector<std::pair<const char*, const char*>>;
class Environment {
 public:
  explicit Environment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& variable : variables_) ::unsetenv(variable.first);
  }

 private:
  Variables variables_;
};

constexpr const char* kRightLauncher = "srun --kill-on-bad-exit=1";

TEST_F(ParallelTest, ProcessesThatCannotFindEachOtherDoNotMakeTheSameRunEach) {
  const auto refused = [&](const std::string& name, Variables variables) {
    const Environment environment(std::move(variables));
    EXPECT_EQ(run(1, name), 2) << log(name);
    EXPECT_FALSE(fs::exists(path(name))) << name;
    return log(name);
  };
  EXPECT_NE(refused("slurm", {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}})
                .find("srun started 4 processes that cannot find each other"),
            std::string::npos);
  EXPECT_NE(refused("pmi", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).find(kRightLauncher), std::string::npos);
  EXPECT_NE(
      refused("other", {{"OMPI_COMM_WORLD_SIZE", "3"}}).find("the variable OMPI_COMM_WORLD_RANK is missing"),
      std::string::npos);
  // One process of a job of several tasks is alone and may run.
  const Environment one(
      Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(run(1, "one", {"train.steps=1", "schedule.warmup_steps=0"}), 0) << log("one");
  // So is a batch script without srun: its job has several tasks, which nothing started.
  const Environment script(Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(run(1, "script", {"train.steps=1", "schedule.warmup_steps=0"}), 0) << log("script");
}

TEST_F(ParallelTest, AnotherLayoutOnOneMachineIsSeenBeforeTheFirstStep) {
  const std::vector<Words> programs = {training("other", {}), training("other", {"parallel.zero=1"})};
  EXPECT_EQ(exit_code(start_each(path("other"), programs)), 1) << log("other");
  EXPECT_NE(log("other").find("has another [parallel] than the first one"), std::string::npos)
      << log("other");
}

TEST_F(ParallelTest, OtherDataOnOneMachineIsSeenBeforeTheFirstStep) {
  const std::vector<Words> programs = {training("other", {}),
                                       training("other", {"data.path=shapes:train=264,val=50"})};
  EXPECT_EQ(exit_code(start_each(path("other"), programs)), 1) << log("other");
  EXPECT_NE(log("other").find("has another train_data than the first one"), std::string::npos)
      << log("other");
  EXPECT_FALSE(fs::exists(path("other")));
}

TEST_F(ParallelTest, ARunDirectoryThatIsNotSharedIsNamed) {
  const std::vector<Words> programs = {training("shared", {}), training("elsewhere", {})};
  EXPECT_EQ(exit_code(start_each(path("shared"), programs, By::script)), 2) << log("shared");
  EXPECT_NE(log("shared").find("process 1 on machine '"), std::string::npos) << log("shared");
  EXPECT_NE(log("shared").find("does not see the run directory '" + path("shared") + "'"), std::string::npos)
      << log("shared");
  EXPECT_FALSE(fs::exists(path("shared/metrics.jsonl")));
}

// Each process reads a file of its own: the run is that of the first one's.
TEST_F(ParallelTest, OtherFirstWeightsGiveWayToThoseOfTheFirstProcess) {
  const auto pretrained = [&](const std::string& run) {
    return "model.pretrained=" + path(run + "/checkpoints/latest/weights.safetensors");
  };
  for (const char* seed : {"1", "2"})
    ASSERT_EQ(run(1, text("weights", seed),
                  {"train.steps=1", "schedule.warmup_steps=0", text("train.seed=", seed)}),
              0);
  const std::string doubles = "train.precision=fp64";
  ASSERT_EQ(run(2, "same", {doubles, pretrained("weights1")}), 0) << log("same");
  const std::vector<Words> programs = {training("other", {doubles, pretrained("weights1")}),
                                       training("other", {doubles, pretrained("weights2")})};
  ASSERT_EQ(exit_code(start_each(path("other"), programs)), 0) << log("other");
  EXPECT_NE(log("other").find("the first weights differ between processes"), std::string::npos)
      << log("other");
  EXPECT_EQ(log("same").find("the first weights differ"), std::string::npos) << log("same");
  expect_close_weights("same", "other");
}

TEST_F(ParallelTest, AProcessThatIsStoppedIsNamedByThoseThatWait) {
  const Environment environment(Variables{{"TESSERA_WAIT_SECONDS", "6"}});
  const pid_t job = start(3, "stuck", {"train.steps=1000000", "train.checkpoint_steps=4"});
  while (!fs::exists(path("stuck/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t stopped = process_of(job, 2);
  ASSERT_GT(stopped, 0);
  const auto began = std::chrono::steady_clock::now();
  ::kill(stopped, SIGSTOP);
  EXPECT_EQ(exit_code(job), 75) << log("stuck");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  EXPECT_NE(log("stuck").find(" of 3: exchange "), std::string::npos) << log("stuck");
  EXPECT_NE(log("stuck").find(" on axis '"), std::string::npos) << log("stuck");
  EXPECT_NE(log("stuck").find(" s for process 2, which is dead or stopped"), std::string::npos)
      << log("stuck");
}

TEST_F(ParallelTest, WhatFailsInOneProcessEndsAllInItsName) {
  const fs::path picture = fs::path(TESSERA_TEST_DATA) / "../../examples/pictures/star.png";
  for (const char* place : {"train/a", "train/b", "val/a", "val/b"}) {
    fs::create_directories(path("photos") / fs::path(place));
    for (int i = 0; i < 60; ++i)
      fs::copy_file(picture, path("photos") / fs::path(place) / (std::to_string(i) + ".png"));
  }
  write_text_atomic(path("photos/train/b/broken.png"), "no picture");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(run(2, "bad", {"data.path=" + path("photos"), "train.on_bad_image=fail", "train.steps=100"}), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  const std::string said = log("bad");
  const size_t line = said.find("tessera: process "), name = said.find("train/b/broken.png");
  ASSERT_NE(line, std::string::npos) << said;
  EXPECT_NE(said.find(" of 2: ", line), std::string::npos) << said;
  EXPECT_NE(name, std::string::npos) << said;

  const Environment full(Variables{{"TESSERA_FAULT", "write:40+:ENOSPC"}});
  EXPECT_EQ(run(2, "full", {"train.steps=1000", "train.checkpoint_steps=4"}), 1);
  EXPECT_NE(log("full").find("tessera: process 0 of 2: "), std::string::npos) << log("full");
  EXPECT_NE(log("full").find("No space left on device"), std::string::npos) << log("full");
}

// Returns the step of the newest complete checkpoint of a run; 0 without one.
int64_t newest_step(const std::string& run) {
  int64_t newest = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && fs::exists(entry.path() / "manifest.json"))
      newest = std::max<int64_t>(newest, parse_int(name.substr(5)).value_or(0));
  }
  return newest;
}

// A launcher that starts the job again after code 75, each time with another number of processes.
// TESSERA_CRASHES sets the number of kills.
TEST_F(ParallelTest, ARunThatLosesProcessesEndsWithTheSameWeights) {
  const char* asked = std::getenv("TESSERA_CRASHES");
  const int kills = asked ? std::stoi(asked) : 5;
  const Words settings = {"train.precision=fp64", "train.checkpoint_steps=2",
                          text("train.steps=", 10 * kills)};
  ASSERT_EQ(run(1, "whole", settings), 0) << log("whole");
  RandomStream random(1, "kills");
  for (int kill = 0; kill < kills; ++kill) {
    const int processes = 2 + kill % 3;
    const int64_t before = newest_step(path("parts"));
    const pid_t job = start(processes, "parts", settings, {"--resume", "auto"}, By::script);
    while (newest_step(path("parts")) <= before && is_running(job))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto children = children_of(job);
    ASSERT_EQ(static_cast<int>(children.size()), processes) << log("parts");
    ::kill(children[random.below(children.size())], SIGKILL);
    EXPECT_EQ(exit_code(job), 75) << log("parts");
  }
  ASSERT_EQ(run(3, "parts", settings, {"--resume", "auto"}, By::script), 0) << log("parts");
  expect_close_metrics("whole", "parts", 1e-9);
  expect_close_weights("whole", "parts");
}

TEST_F(ParallelTest, AxesOfOtherKindsAreRefusedByName) {
  EXPECT_EQ(run(1, "shard", {"parallel.shard=2"}), 2);
  EXPECT_NE(log("shard").find("parallel.shard = 2 divides nothing: set parallel.zero to 1, 2 or 3"),
            std::string::npos)
      << log("shard");
  EXPECT_EQ(run(2, "degree", {"parallel.replicate=3"}), 2);
  EXPECT_NE(log("degree").find("divides processes as replicate 3, and there are 2: start 3 processes"),
            std::string::npos)
      << log("degree");
  EXPECT_EQ(run(1, "twice", {"parallel.shard=auto"}), 2);
  EXPECT_NE(log("twice").find("parallel.replicate and parallel.shard are both \"auto\""), std::string::npos)
      << log("twice");
}

TEST_F(ParallelTest, ASignalStopsAllAfterTheSameStep) {
  const pid_t job = start(2, "stopped", {"train.steps=100000", "train.checkpoint_steps=4"});
  while (!fs::exists(path("stopped/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const pid_t process : children_of(job)) ::kill(process, SIGTERM);
  EXPECT_EQ(exit_code(job), 130) << log("stopped");
  EXPECT_NE(log("stopped").find("interrupted after step "), std::string::npos) << log("stopped");
}

}  // namespace
}  // namespace tessera::parallel_testing
