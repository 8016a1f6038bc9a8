// Training loses nothing but time if it is killed at random moments, its files are damaged, the disk is full,
// or it is interrupted.
//
// TESSERA_CRASHES sets the number of kills (10; `make soak` uses more), TESSERA_CRASH_SEED their seed. After
// three of five kills a bit flips in a file of the newest checkpoint.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/random.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kRecipe = R"(
[model]
name = "vit"
dim = 32
depth = 2
heads = 2
patch_size = 8
drop_path = 0.1
[data]
path = "shapes:train=320,val=64"
[preprocess]
size = 32
[augment]
crop = "padded"
[mixup]
cutmix = 1.0
[optimiser]
name = "adamw"
lr = 0.003
[train]
epochs = 4
batch_size = 8
device = "cpu"
threads = 1
clip_grad = 1.0
ema_decay = 0.95
checkpoint_steps = 7
keep_last = 3
log_every = 5
)";

int64_t number_from(const char* variable, int64_t standard) {
  const char* value = std::getenv(variable);
  return value ? std::atoll(value) : standard;
}

class CrashTest : public TemporaryFolder {
 protected:
  void SetUp() override { write_text_atomic(path("recipe.toml"), kRecipe); }

  // Starts the program; its output goes to RUN.log. `fault` is for io/files/file_faults.h.
  pid_t start(const std::string& run, const std::string& fault = "") const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int log = ::open(path(run + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(log, 1);
    ::dup2(log, 2);
    if (!fault.empty()) ::setenv("TESSERA_FAULT", fault.c_str(), 1);
    ::execl(TESSERA_PROGRAM, "tessera", "train", path("recipe.toml").c_str(), "--output", path(run).c_str(),
            "--resume", "auto", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
  // Runs to the end. Returns the exit code, or -signal.
  int run(const std::string& name, const std::string& fault = "") const {
    const int status = wait_for(start(name, fault));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string log(const std::string& run) const { return read_text(path(run + ".log")); }
  std::string last_line(const std::string& run) const {
    std::string text = log(run);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

  // Checks that the checkpoint under `latest` is complete.
  void expect_whole_checkpoint(const std::string& run) const {
    const std::string latest = path(run + "/checkpoints/latest");
    if (!fs::exists(latest)) return;  // killed before the first one
    const Json manifest = Json::parse(read_text(latest + "/manifest.json"));
    for (const Json& file : manifest.at("files")) {
      const auto bytes = read_file(latest + "/" + file.at("name").get<std::string>());
      EXPECT_EQ(bytes.size(), file.at("bytes").get<size_t>());
      EXPECT_EQ(checksum_of(bytes), file.at("xxh3").get<std::string>());
    }
  }

  // Returns the names of a run's checkpoints, newest last. One that was killed during its removal has no
  // manifest and does not count.
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    std::error_code nothing;
    for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints"), nothing))
      if (const std::string name = entry.path().filename().string();
          name.starts_with("step-") && name.find('.') == std::string::npos &&
          fs::exists(entry.path() / "manifest.json"))
        names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  // True if every file of a checkpoint is as its manifest lists it.
  bool is_whole(const std::string& checkpoint) const {
    try {
      const Json manifest = Json::parse(read_text(checkpoint + "/manifest.json"));
      for (const Json& file : manifest.at("files"))
        if (checksum_of(read_file(checkpoint + "/" + file.at("name").get<std::string>())) !=
            file.at("xxh3").get<std::string>())
          return false;
      return true;
    } catch (const std::exception&) {  // a flipped bit in the manifest
      return false;
    }
  }

  // Flips a bit in a file of the newest checkpoint if an older one is whole: an earlier flip in frozen weights, which
  // checkpoints share, may have damaged it. Returns the name of the newest, else "".
  std::string damage_newest(const std::string& run, RandomStream& random) const {
    const std::vector<std::string> names = checkpoints(run);
    if (std::none_of(names.begin(), names.end() - (names.empty() ? 0 : 1),
                     [&](const std::string& name) { return is_whole(path(run + "/checkpoints/" + name)); }))
      return "";
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path(run + "/checkpoints/" + names.back())))
      if (entry.file_size() > 0) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    const std::string& file = files[static_cast<size_t>(random.integer(0, std::ssize(files) - 1))];
    std::string content = read_text(file);
    const auto bit = static_cast<size_t>(random.integer(0, 8 * std::ssize(content) - 1));
    content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
    std::ofstream(file, std::ios::binary) << content;
    return names.back();
  }

  // True if a run reported its starting checkpoint; it must then have reported that `damaged` is not usable.
  bool said_damage(const std::string& run, const std::string& damaged) const {
    const std::string said = log(run);
    if (said.find("continuing from ") == std::string::npos) return false;
    EXPECT_NE(said.find("checkpoint " + damaged + " is not usable"), std::string::npos) << said;
    EXPECT_EQ(said.find("continuing from " + path(run) + "/checkpoints/" + damaged + "\n"), std::string::npos)
        << said;
    return true;
  }

  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> lines;
    std::istringstream content(read_text(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(content, line);) {
      Json object = Json::parse(line);
      for (const char* key : {"seconds", "images_per_second", "wait_share"}) object.erase(key);
      lines.push_back(object);
    }
    return lines;
  }
  void expect_same(const std::string& run, const std::string& other) const {
    EXPECT_EQ(metrics(run), metrics(other));
    for (const char* name :
         {"/model.safetensors", "/best.safetensors", "/checkpoints/latest/weights.safetensors",
          "/checkpoints/latest/ema.safetensors", "/checkpoints/latest/optimiser.safetensors"})
      EXPECT_TRUE(read_file(path(run + name)) == read_file(path(other + name))) << name;
  }
  // Kills a run `crashes` times, at any moment and in any file operation, sometimes damages its newest
  // checkpoint, and resumes it. The result must equal that of an undisturbed run.
  void kill_and_continue(int64_t crashes);
};

void CrashTest::kill_and_continue(int64_t crashes) {
  const auto began = std::chrono::steady_clock::now();
  ASSERT_EQ(run("whole"), 0) << log("whole");
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const auto seed = static_cast<uint64_t>(number_from("TESSERA_CRASH_SEED", 1));
  int64_t killed = 0, flipped = 0, fell_back = 0;
  std::string damaged;  // a damaged checkpoint not yet reported by any run
  for (int64_t attempt = 0; killed < crashes; ++attempt) {
    ASSERT_LT(attempt, 20 * crashes + 20) << "the program ends before it can be killed";
    RandomStream random(seed, "crash", static_cast<uint64_t>(attempt));
    int status = 0;
    if (random.chance(0.5)) {  // at any moment
      const pid_t child = start("parts");
      std::this_thread::sleep_for(std::chrono::duration<double>(random.uniform(0, whole)));
      ::kill(child, SIGKILL);
      status = wait_for(child);
    } else {  // instead of one of its file operations
      status = wait_for(start("parts", "any:" + std::to_string(random.integer(1, 120)) + ":KILL"));
    }
    if (!damaged.empty() && said_damage("parts", damaged)) {
      ++fell_back;
      damaged.clear();
    }
    if (WIFSIGNALED(status)) {
      ++killed;
      if (damaged.empty()) expect_whole_checkpoint("parts");
      if (damaged.empty() && 5 * flipped < 3 * killed) {
        damaged = damage_newest("parts", random);
        flipped += !damaged.empty();
      }
    } else {  // it finished: check it, and start over
      ASSERT_EQ(WEXITSTATUS(status), 0) << log("parts");
      expect_same("whole", "parts");
      fs::remove_all(path("parts"));
      damaged.clear();
    }
    if (HasFailure()) FAIL() << "seed " << seed << ", attempt " << attempt << "\n" << log("parts");
  }
  ASSERT_EQ(run("parts"), 0) << log("parts");
  expect_same("whole", "parts");
  std::cout << killed << " kills, " << flipped << " flipped bits, " << fell_back
            << " of them reported by a run\n";
}

TEST_F(CrashTest, KilledRunsContinueAsIfNothingHadHappened) {
  kill_and_continue(number_from("TESSERA_CRASHES", 10));
}

TEST_F(CrashTest, SoDoRunsWhoseCheckpointsShareFrozenWeights) {
  write_text_atomic(path("recipe.toml"),
                    std::string(kRecipe) + "freeze = [\"patch_embed.*\", \"blocks.0.*\"]\n");
  kill_and_continue(number_from("TESSERA_CRASHES", 10));
  EXPECT_TRUE(fs::exists(path("parts/checkpoints/latest/frozen.safetensors")));
}

// A batch of pairs computed in pieces, with images and captions drawn again in each.
TEST_F(CrashTest, SoDoBatchesThatAreComputedInPieces) {
  std::string recipe = kRecipe;
  const auto put = [&](const std::string& instead, const std::string& of) {
    const size_t at = recipe.find(of);
    ASSERT_NE(at, std::string::npos) << of;
    recipe.replace(at, of.size(), instead);
  };
  put("[task]\nname = \"clip\"\nembed_dim = 16\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\n"
      "context_length = 24\npiece = 3\n",
      "[mixup]\ncutmix = 1.0\n");
  put("shapes:train=96,val=16", "shapes:train=320,val=64");
  write_text_atomic(path("recipe.toml"), recipe);
  kill_and_continue(number_from("TESSERA_CRASHES", 10));
}

TEST_F(CrashTest, AFullDiskIsOneLineAndLosesNothing) {
  ASSERT_EQ(run("whole"), 0);
  for (const int operation : {1, 2, 5, 11, 24, 60}) {
    EXPECT_EQ(run("parts", "write:" + std::to_string(operation) + "+:ENOSPC"), 1) << log("parts");
    EXPECT_NE(last_line("parts").find("No space left on device"), std::string::npos) << log("parts");
    expect_whole_checkpoint("parts");
  }
  ASSERT_EQ(run("parts"), 0) << log("parts");
  expect_same("whole", "parts");
}

TEST_F(CrashTest, ASignalSavesAndExitsWith130) {
  ASSERT_EQ(run("whole"), 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "parts" + std::to_string(signal);
    const pid_t child = start(name);
    while (!fs::exists(path(name + "/checkpoints/latest")) && is_running(child))
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(child, signal);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130) << log(name);
    EXPECT_NE(last_line(name).find("interrupted after step "), std::string::npos) << log(name);
    ASSERT_EQ(run(name), 0) << log(name);
    expect_same("whole", name);
  }
}

TEST_F(CrashTest, TwoProcessesDoNotShareARun) {
  const pid_t first = start("run");
  while (!fs::exists(path("run/checkpoints/latest")) && is_running(first))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ::kill(first, SIGSTOP);
  const std::string before = log("run");
  const pid_t second = start("run");
  const int status = wait_for(second);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(last_line("run").find("is in use by another process"), std::string::npos) << log("run");
  ::kill(first, SIGCONT);
  EXPECT_EQ(WEXITSTATUS(wait_for(first)), 0);
}

}  // namespace
}  // namespace tessera
