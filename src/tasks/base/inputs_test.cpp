#include "tasks/base/inputs.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::tasks {
namespace {

data::Batch two_samples() {
  data::Batch batch;
  batch.size = batch.whole = 2;
  const auto images = batch.add({"image", DType::f32, {3, 1, 1}}).values<float>();
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i + 1);
  const auto labels = batch.add({"label", DType::i64, {}}).values<int64_t>();
  labels[0] = 1, labels[1] = 0;
  return batch;
}

TEST(ToDevice, TensorsLieOnTheBatchesMemoryAndKeepIt) {
  auto batch = std::make_unique<data::Batch>(two_samples());
  const void* place = batch->at("image").memory.data();
  const StreamInputs inputs = to_device(*batch, "train", torch::kCPU, Precision::fp32);
  EXPECT_EQ(inputs.at("image").const_data_ptr(), place) << "no copy";
  batch.reset();
  EXPECT_EQ(inputs.at("image")[1][2].item<float>(), 6);
  EXPECT_EQ(inputs.at("image").sizes(), (std::vector<int64_t>{2, 3, 1, 1}));
  EXPECT_EQ(inputs.at("label").sizes(), (std::vector<int64_t>{2}));
  EXPECT_EQ(inputs.at("label")[0].item<int64_t>(), 1);
}

TEST(ToDevice, FloatsBecomeDoublesWhereThatIsAsked) {
  const StreamInputs inputs = to_device(two_samples(), "train", torch::kCPU, Precision::fp64);
  EXPECT_EQ(inputs.at("image").scalar_type(), torch::kFloat64);
  EXPECT_EQ(inputs.at("label").scalar_type(), torch::kInt64);
}

// All fields in one copy; a part of it is a field.
TEST(ToDevice, FieldsShareABlockOnADevice) {
  const StreamInputs inputs = to_device(two_samples(), "train", torch::kMeta, Precision::fp32);
  EXPECT_EQ(inputs.at("image").sizes(), (std::vector<int64_t>{2, 3, 1, 1}));
  EXPECT_EQ(inputs.at("image").scalar_type(), torch::kFloat32);
  EXPECT_EQ(inputs.at("label").scalar_type(), torch::kInt64);
  EXPECT_EQ(inputs.at("label").storage_offset() * 8, 64);
  EXPECT_TRUE(inputs.at("image").is_alias_of(inputs.at("label")));
  // The host keeps its own, for what it decides.
  EXPECT_EQ(inputs.on_host("label")[0].item<int64_t>(), 1);
  EXPECT_EQ(inputs.piece(1, 2).on_host("label").item<int64_t>(), 0);
  EXPECT_EQ(inputs.piece(1, 2).at("label").device(), torch::kMeta);
}

TEST(Inputs, PiecesAreItsSamplesInOrder) {
  Inputs inputs;
  inputs.streams.push_back({"train", 7, 3, 20, {{"label", torch::arange(7)}}});
  inputs.streams.push_back({"unlabelled", 3, 1, 5, {{"image", torch::rand({3, 2})}}});
  std::vector<torch::Tensor> labels, unlabelled;
  int64_t next = 3;
  for (int64_t i = 0; i < 4; ++i) {
    const Inputs piece = inputs.piece(i, 4);
    EXPECT_EQ(piece.main().first, next);
    EXPECT_EQ(piece.main().whole, 20);
    EXPECT_EQ(piece.at("label").size(0), piece.size());
    next += piece.size();
    labels.push_back(piece.at("label")), unlabelled.push_back(piece.stream("unlabelled")->at("image"));
  }
  EXPECT_TRUE(torch::equal(torch::cat(labels), inputs.at("label")));
  EXPECT_TRUE(torch::equal(torch::cat(unlabelled), inputs.streams[1].at("image")));
}

// Samples of 0, 2, 1 and 3 rows.
TEST(Inputs, PiecesOfRaggedFieldsKeepTheirRows) {
  Inputs inputs;
  inputs.streams.push_back({"train", 4, 0, 4, {{"boxes", torch::arange(6), {0, 0, 2, 3, 6}}}});
  const Inputs last = inputs.piece(1, 2);
  EXPECT_TRUE(torch::equal(last.at("boxes"), torch::arange(2, 6)));
  EXPECT_EQ(last.streams[0].fields[0].offsets, (std::vector<int64_t>{0, 1, 4}));
}

TEST(Inputs, AnUnknownFieldNamesThoseThatThereAre) {
  const StreamInputs inputs = to_device(two_samples(), "train", torch::kCPU, Precision::fp32);
  EXPECT_EQ(inputs.find("mask"), nullptr);
  try {
    inputs.at("mask");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the stream 'train' has no field 'mask', it has image, label");
  }
}

}  // namespace
}  // namespace tessera::tasks
