// Points from directories that look like runs.
#include "laws/points.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include "core/error.h"
#include "io/files/file.h"
#include "io/weights/safetensors.h"

namespace tessera::laws {
namespace {

class RunDirectories : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/runs" + std::to_string(getpid());
    remove_all(root_);
    make_directories(root_);
  }
  void TearDown() override { remove_all(root_); }

  // Writes a run of `epochs` of 1000 samples in batches of 100 that ended with these losses.
  void write(const std::string& name, int epochs, const std::vector<std::string>& losses,
             bool finished = true) {
    const std::string directory = root_ + "/" + name;
    make_directories(directory);
    write_text_atomic(directory + "/recipe.toml",
                      "[train]\nepochs = " + std::to_string(epochs) + "\nbatch_size = 100\n");
    std::string lines;
    for (size_t i = 0; i < losses.size(); ++i)
      lines += "{\"kind\":\"eval\",\"step\":" + std::to_string(10 * (i + 1)) +
               ",\"epoch\":" + std::to_string(i + 1) + ",\"loss\":" + losses[i] +
               ",\"top1\":0.5,\"training_macs\":" + std::to_string(3e6 * static_cast<double>(i + 1)) + "}\n";
    write_text_atomic(directory + "/metrics.jsonl", lines + "{\"kind\":\"ev");
    if (!finished) return;
    const std::vector<float> numbers(24);
    const auto bytes = std::as_bytes(std::span(numbers));
    write_safetensors(directory + "/model.safetensors",
                      {{"pos_embed", DType::f32, {4, 2}, bytes.first(32)},
                       {"head.weight", DType::f32, {4, 4}, bytes.subspan(32)}});
  }

  std::string root_;
};

TEST_F(RunDirectories, GivePointsAndCurves) {
  write("a/seed-0", 1, {"2.5"});
  write("b/seed-0", 2, {"2.0", "1.5"});
  const Points read = read_runs({root_});
  ASSERT_EQ(read.points.size(), 2u);
  EXPECT_EQ(read.points[1].parameters, 24);
  EXPECT_EQ(read.points[1].samples, 2000);
  EXPECT_EQ(read.points[1].unique_samples, 1000);
  EXPECT_EQ(read.points[1].flop, 2 * 6e6);
  EXPECT_EQ(read.points[1].loss, 1.5);
  EXPECT_EQ(read.points[1].accuracy, 0.5);
  EXPECT_FALSE(read.points[0].repeats());
  EXPECT_TRUE(read.points[1].repeats());
  ASSERT_EQ(read.curves.size(), 1u);
  EXPECT_EQ(read.curves[0].losses, (std::vector<double>{2.0, 1.5}));
  EXPECT_EQ(read_runs({root_}, {.without_embeddings = true}).points[0].parameters, 16);
}

TEST_F(RunDirectories, MayHoldAProbeAndTheLossOnOtherData) {
  write("a", 1, {"2.5"});
  write_text_atomic(root_ + "/a/other.json", "{\"loss\":2.75}");
  write_text_atomic(root_ + "/a/probe.json", "{\"layers\":[{\"ridge_top1\":0.25},{\"ridge_top1\":0.75}]}");
  const Point point = read_runs({root_}).points.at(0);
  EXPECT_EQ(point.other_loss, 2.75);
  EXPECT_EQ(point.accuracy, 0.75);
  write_text_atomic(root_ + "/a/other.json", "[]");
  EXPECT_THROW(read_runs({root_}), Error);
}

TEST_F(RunDirectories, WhatStoppedOrDivergedIsNamed) {
  write("a", 1, {"2.5"});
  write("b", 2, {"2.0"}, /*finished=*/false);
  write("c", 2, {"2.0", "null"});
  const Points read = read_runs({root_});
  EXPECT_EQ(read.points.size(), 1u);
  ASSERT_EQ(read.left_out.size(), 2u);
  EXPECT_EQ(read.left_out[0], root_ + "/b: stopped early, in epoch 1.00");
  EXPECT_EQ(read.left_out[1], root_ + "/c: diverged");
}

TEST_F(RunDirectories, RefusalsAreOneLine) {
  EXPECT_THROW(read_runs({root_}), Error);
  EXPECT_THROW(read_runs({root_ + "/none"}), Error);
  write("a", 1, {"2.5"});
  try {
    read_runs({root_}, {.loss = "lose"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no evaluation has 'lose'; they have epoch, kind, loss"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::laws
