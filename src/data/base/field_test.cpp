#include "data/base/field.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "data/base/source.h"
#include "data/loading/loader.h"
#include "data/transforms/transform.h"

namespace tessera::data {
namespace {

TEST(BufferPool, MemoryComesBackOnceNobodyHoldsIt) {
  BufferPool pool;
  Buffer first = pool.take(1000);
  const std::byte* place = first.data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 64, 0u);
  Buffer holder = first;
  first = Buffer();
  const Buffer second = pool.take(1000);
  EXPECT_NE(second.data(), place) << "still held";
  holder = Buffer();
  EXPECT_NE(pool.take(2000).data(), place) << "of another size";
  EXPECT_EQ(pool.take(1000).data(), place);
}

TEST(BufferPool, BuffersOutliveThePool) {
  Buffer kept;
  {
    BufferPool pool;
    kept = pool.take(64);
    pool.take(64);
  }
  kept.data()[63] = std::byte{1};
  EXPECT_EQ(kept.data()[63], std::byte{1});
}

// Images of 8 x 8 without classes; sample i has i boxes.
class Boxed final : public Source {
 public:
  int64_t size() const override { return 5; }
  RawSample read(int64_t index) const override {
    RawSample sample{"sample " + std::to_string(index), Image(8, 8), {}};
    if (index == broken) sample.annotation.instances.resize(100);
    for (int64_t i = 0; i < index; ++i) sample.annotation.instances.push_back({0, 0, 4, 4, i});
    for (auto& one : sample.annotation.instances) one.right = one.bottom = 4;
    return sample;
  }
  uint64_t fingerprint() const override { return 1; }
  std::string describe() const override { return "boxed"; }
  int64_t broken = -1;
};

LoaderConfig in_order() {
  LoaderConfig config;
  config.batch_size = 3;
  config.shuffle = config.drop_last = false;
  return config;
}

std::shared_ptr<const Transform> boxes() {
  Preprocess p;
  p.size = 8, p.crop = 1;
  return make_eval_transform(p, {.most_boxes = 10});
}

TEST(Loader, RaggedFieldsHaveOffsets) {
  const Boxed source;
  Loader loader(source, boxes(), in_order());
  const Batch first = loader.next().value(), last = loader.next().value();
  EXPECT_EQ(first.at("boxes").offsets, (std::vector<int64_t>{0, 0, 1, 3}));
  EXPECT_EQ(last.at("boxes").offsets, (std::vector<int64_t>{0, 3, 7}));
  const auto values = last.values<float>("boxes");
  ASSERT_EQ(values.size(), 35u);
  for (size_t row = 0; row < 7; ++row) {
    EXPECT_EQ(values[5 * row + 2], 4);
    EXPECT_EQ(values[5 * row + 4], static_cast<float>(row < 3 ? row : row - 3)) << "the class";
  }
}

TEST(Loader, RowsOfASampleThatFailsAreTakenBack) {
  Boxed source;
  source.broken = 2;
  Loader loader(source, boxes(), in_order());
  const Batch batch = loader.next().value();
  EXPECT_EQ(loader.bad_images().count, 1);
  EXPECT_NE(loader.bad_images().lines[0].find("has 102 boxes, must be at most 10"), std::string::npos);
  const auto& offsets = batch.at("boxes").offsets;
  EXPECT_EQ(offsets[3] - offsets[2], batch.indices[2]);
}

TEST(Loader, SamplesWithoutClassesAreRefusedWhereClassesAreNeeded) {
  const Boxed source;
  LoaderConfig config;
  config.batch_size = 2, config.balanced = true;
  EXPECT_THROW(check_loader(source, config), Error);
  EXPECT_TRUE(class_counts(source).empty());
}

TEST(Batch, AnUnknownFieldNamesThoseThatThereAre) {
  const Boxed source;
  Loader loader(source, boxes(), in_order());
  Batch batch = loader.next().value();
  try {
    batch.at("label");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a batch has no field 'label', it has image, boxes");
  }
  Column& added = batch.add({"label", DType::i64, {}});
  EXPECT_EQ(added.values<int64_t>().size(), 3u);
  EXPECT_EQ(batch.find("label"), &batch.columns.back());
}

TEST(Views, AreDrawnApartAndJoined) {
  Preprocess p;
  p.size = 8;
  const auto source = open_source({.path = "shapes:train=4,val=4,size=32"}, Split::train);
  const auto transform =
      join_transforms({make_views(make_train_transform(p, {}), 2), make_label_transform(10, false)});
  ASSERT_EQ(transform->fields().size(), 3u);
  LoaderConfig config = in_order();
  Loader loader(*source, transform, config);
  const Batch batch = loader.next().value();
  const auto one = batch.values<float>("image_0"), two = batch.values<float>("image_1");
  EXPECT_FALSE(std::equal(one.begin(), one.end(), two.begin()));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.values<int64_t>("label")[i], source->class_labels()->label(static_cast<int64_t>(i)));
  }
  EXPECT_THROW(join_transforms({transform, transform}), Error);
}

}  // namespace
}  // namespace tessera::data
