// Training over processes: what happens when one of them dies, stops, fails or is not like the others.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/parallel/parallel_testing.h"

namespace tessera::parallel_testing {
namespace {

// Children of a process.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    pid_t ppid = 0;
    if (stat >> pid >> name >> state >> ppid && ppid == parent) found.push_back(std::stoi(pid));
  }
  return found;
}

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
  EXPECT_NE(log("parts").find("signal 9"), std::string::npos) << log("parts");
  ASSERT_EQ(run(2, "parts", slow, {"--resume", "required"}), 0) << log("parts");
  EXPECT_NE(log("parts").find("the run was made by 3 processes, now there are 2"), std::string::npos)
      << log("parts");
  expect_close_metrics("whole", "parts", 1e-9);
  expect_close_weights("whole", "parts");
}

TEST_F(ParallelTest, WhatIsWrongIsSaidOnce) {
  EXPECT_EQ(run(2, "typo", {"train.epoch=1"}), 2);
  const std::string line = "tessera: process 0 of 2: " + path("recipe.toml") + ": unknown key 'train.epoch'";
  const std::string said = log("typo");
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find("unknown key"), said.rfind("unknown key")) << said;
  EXPECT_EQ(run(2, "small", {"train.batch_size=3"}), 2);
  EXPECT_NE(log("small").find("batch size is 3, must be at least twice the number of ranks, 2"),
            std::string::npos)
      << log("small");
}

// The process of a rank among the children of mpirun.
pid_t process_of(pid_t job, int rank) {
  for (const pid_t child : children_of(job)) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    for (std::string variable; std::getline(file, variable, '\0');)
      if (variable == "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)) return child;
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

constexpr const char* kRightLauncher = "srun --mpi=pmix --kill-on-bad-exit=1";

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
  EXPECT_NE(refused("other", {{"OMPI_COMM_WORLD_SIZE", "3"}})
                .find("3 processes were started, but MPI finds this one alone"),
            std::string::npos);
  // One process of a job of several tasks is alone and may run.
  const Environment one(
      Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(run(1, "one", {"train.steps=1", "schedule.warmup_steps=0"}), 0) << log("one");
  // So is a batch script without srun: its job has several tasks, which nothing started.
  const Environment script(Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  EXPECT_EQ(run(1, "script", {"train.steps=1", "schedule.warmup_steps=0"}), 0) << log("script");
}

TEST_F(ParallelTest, OtherDataOnOneMachineIsSeenBeforeTheFirstStep) {
  std::vector<std::string> words = mpirun(1, training("other", {}));
  const auto second = training("other", {"data.path=shapes:train=264,val=50"});
  words.insert(words.end(), {":", "-n", "1"});
  words.insert(words.end(), second.begin(), second.end());
  EXPECT_EQ(exit_code(start_words(path("other"), words)), 1) << log("other");
  EXPECT_NE(log("other").find("has another train_data than the first one"), std::string::npos)
      << log("other");
  EXPECT_FALSE(fs::exists(path("other")));
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
  std::vector<std::string> words = mpirun(1, training("other", {doubles, pretrained("weights1")}));
  const auto second = training("other", {doubles, pretrained("weights2")});
  words.insert(words.end(), {":", "-n", "1"});
  words.insert(words.end(), second.begin(), second.end());
  ASSERT_EQ(exit_code(start_words(path("other"), words)), 0) << log("other");
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
  EXPECT_EQ(exit_code(job), 1) << log("stuck");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  EXPECT_NE(log("stuck").find("tessera: process 0 of 3: the "), std::string::npos) << log("stuck");
  EXPECT_NE(log("stuck").find(" s for process 2, which is stopped or stuck"), std::string::npos)
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
