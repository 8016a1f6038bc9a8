#include "runs/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/files/file_faults.h"
#include "io/files/io_testing.h"
#include "io/files/json.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public TemporaryFolder {
 protected:
  void TearDown() override { FileFaults::set(""); }
  CheckpointStore store() const { return CheckpointStore(path("checkpoints")); }
  std::string directory(int64_t step) const { return store().directory_of(step); }

  uint64_t save(int64_t step, double value) const {
    Value state;
    state.set("value", value);
    return store().save(step,
                        {{kWeightsFile, {{"w", torch::full({300}, value)}}, {{"k", "v"}}},
                         {kOptimiserFile, {{"exp_avg.w", torch::full({300}, value)}}, {}}},
                        state);
  }
  // Returns the newest valid one, after checking that its contents agree; -1 if none.
  int64_t newest(std::vector<std::string>* notes = nullptr) const {
    std::vector<std::string> lines;
    const auto stored = store().newest(lines);
    if (notes) *notes = lines;
    if (!stored) return -1;
    const double value = stored->state.find("value")->as_double();
    for (const std::string& file : stored->files)
      for (const auto& [name, tensor] : read_tensors(SafetensorsFile(stored->path(file))))
        EXPECT_EQ(tensor.min().item<double>(), value) << name;
    return stored->step;
  }
  void flip_bit(const std::string& file) const {
    std::string content = read_text(file);
    content[content.size() - 5] = static_cast<char>(content[content.size() - 5] ^ 4);
    write_text_atomic(file, content);
  }
};

TEST_F(CheckpointTest, TheNewestIsFound) {
  EXPECT_EQ(newest(), -1);
  save(1, 0.1);
  save(12, 0.25);
  const uint64_t bytes = save(7, 3);
  EXPECT_EQ(store().steps(), (std::vector<int64_t>{1, 7, 12}));
  EXPECT_EQ(newest(), 12);
  EXPECT_EQ(fs::read_symlink(path("checkpoints/latest")), "step-000007");
  EXPECT_GT(bytes, 2400u);
  EXPECT_LT(bytes, 4000u);
  EXPECT_EQ(SafetensorsFile(directory(7) + "/" + kWeightsFile).metadata().at("k"), "v");
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  save(3, 1);
  save(3, 2);
  EXPECT_EQ(newest(), 3);
  EXPECT_EQ(store().newest(*std::make_unique<std::vector<std::string>>())->state.find("value")->as_double(),
            2);
  EXPECT_EQ(store().steps().size(), 1u);
}

TEST_F(CheckpointTest, FrozenWeightsAreWrittenTwiceAndReadWithTheOthers) {
  CheckpointStore kept = store();
  const auto put = [&](CheckpointStore& into, int64_t step) {
    const NamedTensors frozen = {{"f", torch::full({5000}, 7.0)}},
                       own = {{"w", torch::full({3}, double(step))}};
    return into.save(step,
                     {{kWeightsFile, own, {{"k", "v"}}, frozen},
                      {kOptimiserFile, {{"exp_avg.w", own[0].second}}, {}},
                      {kEmaFile, own, {{"k", "v"}}, frozen}},
                     Value(Value::Table()));
  };
  const auto file = [&](int64_t step) { return directory(step) + "/" + kFrozenFile; };
  EXPECT_GT(put(kept, 1), 20000u);
  EXPECT_GT(put(kept, 2), 20000u);
  EXPECT_LT(put(kept, 3), 5000u);
  EXPECT_LT(put(kept, 4), 5000u);
  EXPECT_TRUE(fs::equivalent(file(1), file(3)));
  EXPECT_TRUE(fs::equivalent(file(2), file(4)));
  EXPECT_FALSE(fs::equivalent(file(3), file(4)));
  EXPECT_LT(kept.bytes(), 2 * 20000u + 4 * 5000u);
  // Another process continues from the newest one; the others may be removed.
  std::vector<std::string> notes;
  const auto stored = store().newest(notes);
  ASSERT_TRUE(stored.has_value());
  CheckpointStore next = store();
  next.share_frozen(*stored);
  EXPECT_LT(put(next, 5), 5000u);
  EXPECT_LT(put(next, 6), 5000u);
  EXPECT_TRUE(fs::equivalent(file(3), file(5)));
  EXPECT_TRUE(fs::equivalent(file(4), file(6)));
  next.retain(6, 1, -1);
  EXPECT_LT(put(next, 7), 5000u);  // the copy two checkpoints back is gone
  for (const char* name : {kWeightsFile, kEmaFile}) {
    const StoredCheckpoint last = read_checkpoint(directory(7));
    EXPECT_EQ(last.weights_path(name), last.path(name) + ".index.json");
    EXPECT_EQ(last.weights_path(kOptimiserFile), last.path(kOptimiserFile));
    const WeightFile all(last.weights_path(name));
    EXPECT_EQ(all.metadata().at("k"), "v");
    double sum = 0;
    for (const auto& [key, tensor] : read_tensors(all)) sum += tensor.sum().item<double>();
    EXPECT_EQ(sum, 7.0 * 5000 + 3 * 7);
  }
  // Without links it writes the file again.
  fs::remove(file(6));
  fs::remove(file(7));
  EXPECT_GT(put(next, 8), 20000u);
  EXPECT_EQ(read_checkpoint(directory(8)).step, 8);
}

TEST_F(CheckpointTest, DamageIsSaidAndTheOneBeforeUsed) {
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) save(step, static_cast<double>(step));
  flip_bit(directory(6) + "/" + kOptimiserFile);
  fs::resize_file(directory(5) + "/" + kWeightsFile, 100);
  fs::remove(directory(4) + "/" + kWeightsFile);
  fs::remove(directory(3) + "/manifest.json");
  write_text_atomic(directory(2) + "/manifest.json", "{\"format\": 1, \"step\": 2}");
  std::vector<std::string> notes;
  EXPECT_EQ(newest(&notes), 1);
  ASSERT_EQ(notes.size(), 5u);
  EXPECT_EQ(notes[0], "checkpoint step-000006 is not usable: '" + directory(6) +
                          "/optimiser.safetensors' is damaged: "
                          "its checksum is not the manifest's");
  EXPECT_NE(notes[1].find("has 100 bytes, its manifest lists"), std::string::npos);
  EXPECT_NE(notes[2].find("No such file"), std::string::npos);
  EXPECT_NE(notes[3].find("has no manifest.json: its writing was never finished"), std::string::npos);
  EXPECT_NE(notes[4].find("no usable 'state'"), std::string::npos);
}

// If any bit of any file of a checkpoint flips, the previous checkpoint is used.
TEST_F(CheckpointTest, NoFlippedBitPassesUnseen) {
  save(1, 1);
  save(2, 2);
  for (const char* name : {"manifest.json", kWeightsFile, kOptimiserFile}) {
    const std::string file = directory(2) + "/" + name, whole = read_text(file);
    const size_t stride = std::string(name) == "manifest.json" ? 1 : 37;
    for (size_t bit = 0; bit < 8 * whole.size(); bit += stride) {
      std::string content = whole;
      content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
      std::ofstream(file, std::ios::binary) << content;
      std::vector<std::string> notes;
      ASSERT_EQ(newest(&notes), 1) << name << " bit " << bit;
      ASSERT_EQ(notes.size(), 1u);
      ASSERT_EQ(notes[0].find("checkpoint step-000002 is not usable: "), 0u) << notes[0];
    }
    std::ofstream(file, std::ios::binary) << whole;
  }
  EXPECT_EQ(newest(), 2);
}

TEST_F(CheckpointTest, AManifestBelongsToItsDirectory) {
  save(1, 1);
  fs::rename(directory(1), directory(3));
  std::vector<std::string> notes;
  EXPECT_EQ(newest(&notes), -1);
  EXPECT_NE(notes[0].find("is of step 1, but its directory is named after another"), std::string::npos);
}

TEST_F(CheckpointTest, AManifestThatListsNoFilesVerifiesNone) {
  save(1, 1);
  write_text_atomic(directory(1) + "/manifest.json", R"({"format":1,"step":1,"state":{},"files":[]})");
  std::vector<std::string> notes;
  EXPECT_EQ(newest(&notes), -1);
  EXPECT_NE(notes[0].find("does not list weights.safetensors"), std::string::npos);
}

TEST_F(CheckpointTest, WhatTheRunCannotUseIsPassedOver) {
  for (const int64_t step : {1, 2, 3}) save(step, static_cast<double>(step));
  std::vector<std::string> notes;
  const auto stored = store().newest(notes, [](const StoredCheckpoint& one) {
    if (one.step > 1) fail("step ", one.step, " is refused");
  });
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->step, 1);
  EXPECT_EQ(notes, (std::vector<std::string>{"checkpoint step-000003 is not usable: step 3 is refused",
                                             "checkpoint step-000002 is not usable: step 2 is refused"}));
}

TEST_F(CheckpointTest, FilesAndPipesInTheWayAreNoCheckpoints) {
  save(1, 1);
  write_text_atomic(path("checkpoints/step-000099"), "a file");
  ASSERT_EQ(::mkfifo(path("checkpoints/step-000098").c_str(), 0600), 0);
  EXPECT_EQ(newest(), 1);
  store().retain(1, 1, -1);
  save(2, 2);
  fs::remove(directory(2) + "/manifest.json");
  ASSERT_EQ(::mkfifo((directory(2) + "/manifest.json").c_str(), 0600), 0);
  std::vector<std::string> notes;
  EXPECT_EQ(newest(&notes), 1);
  EXPECT_NE(notes[0].find("is a device or a pipe"), std::string::npos);
  save(99, 5);
  EXPECT_EQ(newest(), 99);
}

TEST_F(CheckpointTest, AManifestCannotReachOutOfItsDirectory) {
  save(1, 1);
  write_text_atomic(path("secret"), "x");
  write_text_atomic(
      directory(1) + "/manifest.json",
      R"({"format":1,"step":1,"state":{},"files":[{"name":"../../secret","bytes":1,"xxh3":"0"}]})");
  std::vector<std::string> notes;
  EXPECT_EQ(newest(&notes), -1);
  EXPECT_NE(notes[0].find("is not a file name"), std::string::npos);
}

TEST_F(CheckpointTest, RetentionKeepsTheLastTheBestAndWhatWasSavedNow) {
  for (const int64_t step : {1, 2, 3, 4, 5}) save(step, 1);
  store().retain(5, 2, 2);
  EXPECT_EQ(store().steps(), (std::vector<int64_t>{2, 4, 5}));
  save(6, 1);
  store().retain(6, 1, -1);
  EXPECT_EQ(store().steps(), (std::vector<int64_t>{6}));
  save(9, 1);  // damaged and detected; the run continued from 6 and saved 7
  save(7, 1);
  store().retain(7, 3, 6);
  EXPECT_EQ(store().steps(), (std::vector<int64_t>{6, 7}));
}

// Each file operation of a save fails in turn, in every way. The newest checkpoint is then intact, and is
// either the previous or the new one.
TEST_F(CheckpointTest, NoFailureLosesAValidCheckpoint) {
  for (const std::string result : {":EIO", "+:ENOSPC", ":SHORT", ":EINTR"})
    for (int n = 1;; ++n) {
      fs::remove_all(path("checkpoints"));
      save(1, 1);
      FileFaults::set("any:" + std::to_string(n) + result);
      const std::string line = error_of([&] {
        save(2, 2);
        store().retain(2, 1, -1);
      });
      const int64_t operations = FileFaults::count();
      FileFaults::set("");
      const int64_t found = newest();
      ASSERT_TRUE((found == 1 && !line.empty()) || found == 2) << n << result << ": " << found;
      store().prepare();
      EXPECT_EQ(newest(), found);
      save(2, 3);
      EXPECT_EQ(newest(), 2);
      if (operations < n) break;
      ASSERT_LT(n, 200);
    }
}

// The same with a process killed at its n-th operation, also while it replaces a step.
TEST_F(CheckpointTest, NoKillLosesAValidCheckpoint) {
  for (const int64_t next : {2, 1})
    for (int n = 1;; ++n) {
      fs::remove_all(path("checkpoints"));
      save(1, 1);
      const pid_t child = ::fork();
      if (child == 0) {
        FileFaults::set("any:" + std::to_string(n) + ":KILL");
        save(next, 2);
        store().retain(next, 1, -1);
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(newest() == 1 || newest() == 2) << n;
      store().prepare();
      for (const auto& entry : fs::directory_iterator(path("checkpoints")))
        EXPECT_EQ(entry.path().string().find("writing"), std::string::npos) << entry.path();
      save(5, 2);
      EXPECT_EQ(newest(), 5);
      if (WIFEXITED(status)) break;
      ASSERT_LT(n, 200);
    }
}

}  // namespace
}  // namespace tessera::train
