#include "data/loading/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "data/base/data_testing.h"

namespace tessera::data {
namespace {

// `size` samples, sample i of class i % classes; images in `bad` cannot be read.
class NumberedSource final : public LabelledSource {
 public:
  NumberedSource(int64_t size, int64_t classes, std::set<int64_t> bad = {})
      : size_(size), bad_(std::move(bad)) {
    for (int64_t i = 0; i < classes; ++i) names_.push_back("class " + std::to_string(i));
  }
  int64_t size() const override { return size_; }
  RawSample read(int64_t index) const override {
    if (bad_.contains(index)) fail("sample ", index, ": broken");
    Image image(1, 1, 3);
    image.pixels[0] = static_cast<uint8_t>(index);
    return {"sample " + std::to_string(index), image};
  }
  int64_t label(int64_t index) const override { return index % static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& class_names() const override { return names_; }
  uint64_t fingerprint() const override { return 1; }
  std::string describe() const override { return "numbered"; }

 private:
  int64_t size_;
  std::set<int64_t> bad_;
  std::vector<std::string> names_;
};

// Writes the sample's index and two random draws. Sometimes it is slow, so that threads finish out of order.
class RecordingTransform final : public Transform {
 public:
  explicit RecordingTransform(std::function<void(int64_t)> hook = {}) : hook_(std::move(hook)) {}
  const std::vector<Field>& fields() const override { return fields_; }
  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> slots) const override {
    auto* out = slots[0].as<float>();
    *slots[1].as<int64_t>() = sample.annotation.classes.at(0);
    const int64_t index = std::get<Image>(sample.picture).pixels[0];
    if (index % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (hook_) hook_(index);
    out[0] = static_cast<float>(index);
    out[1] = static_cast<float>(random.uniform());
    out[2] = static_cast<float>(random.uniform());
  }

 private:
  std::function<void(int64_t)> hook_;
  std::vector<Field> fields_ = {{"image", DType::f32, {3, 1, 1}}, {"label", DType::i64, {}}};
};

std::vector<float> images(const Batch& batch) {
  const auto values = batch.values<float>("image");
  return {values.begin(), values.end()};
}
std::vector<int64_t> labels(const Batch& batch) {
  const auto values = batch.values<int64_t>("label");
  return {values.begin(), values.end()};
}

const auto kRecord = std::make_shared<RecordingTransform>();

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.step_in_epoch, b.step_in_epoch);
  EXPECT_EQ(a.indices, b.indices);
  EXPECT_EQ(labels(a), labels(b));
  EXPECT_EQ(images(a), images(b));
}

std::vector<Batch> take(Loader& loader, int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(loader.next().value());
  return batches;
}

LoaderConfig training(int64_t batch_size = 8, int64_t threads = 1) {
  LoaderConfig config;
  config.batch_size = batch_size;
  config.threads = threads;
  config.seed = 3;
  return config;
}

LoaderConfig evaluation(int64_t batch_size = 8) {
  LoaderConfig config = training(batch_size, 2);
  config.shuffle = config.drop_last = false;
  return config;
}

TEST(Loader, ThreadsDoNotChangeBatches) {
  const NumberedSource source(61, 5, {4, 33});
  Loader one(source, kRecord, training(8, 1)), four(source, kRecord, training(8, 4));
  const auto a = take(one, 25), b = take(four, 25);
  for (size_t i = 0; i < a.size(); ++i) expect_equal(a[i], b[i]);
  EXPECT_EQ(one.bad_images().lines, four.bad_images().lines);
  EXPECT_EQ(one.bad_images().count, 2);
}

TEST(Loader, AnEpochMeetsEverySampleOnceInAnOrderOfItsOwn) {
  const NumberedSource source(64, 4);
  Loader loader(source, kRecord, training());
  EXPECT_EQ(loader.batches_per_epoch(), 8);
  std::vector<std::vector<int64_t>> orders(2);
  for (auto& order : orders)
    for (const Batch& batch : take(loader, 8))
      order.insert(order.end(), batch.indices.begin(), batch.indices.end());
  EXPECT_NE(orders[0], orders[1]);
  std::vector<int64_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  for (auto& order : orders) {
    EXPECT_NE(order, all);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, all);
  }
}

TEST(Loader, AugmentationDependsOnSeedEpochAndSampleOnly) {
  const NumberedSource source(32, 4);
  std::map<std::pair<int64_t, int64_t>, float> draws;  // by (epoch, sample), with batches of 8
  Loader eight(source, kRecord, training(8));
  for (const Batch& batch : take(eight, 8))
    for (size_t i = 0; i < 8; ++i) draws[{batch.epoch, batch.indices[i]}] = images(batch)[3 * i + 1];
  Loader four(source, kRecord, training(4));
  for (const Batch& batch : take(four, 16))
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ((draws[{batch.epoch, batch.indices[i]}]), images(batch)[3 * i + 1]);
  std::set<float> distinct;
  for (const auto& [place, draw] : draws) distinct.insert(draw);
  EXPECT_EQ(distinct.size(), 64u);
  LoaderConfig config = training(8);
  config.seed = 4;
  Loader other(source, kRecord, config);
  const Batch batch = other.next().value();
  EXPECT_NE((draws[{0, batch.indices[0]}]), images(batch)[1]);
}

TEST(Loader, ContinuesFromAnyPosition) {
  const NumberedSource source(50, 5, {9});
  Loader whole(source, kRecord, training(8, 3));
  std::vector<LoaderPosition> positions;
  std::vector<Batch> batches;
  for (int i = 0; i < 16; ++i) {
    positions.push_back(whole.position());
    batches.push_back(whole.next().value());
  }
  for (const size_t i : {0u, 1u, 5u, 6u, 7u, 14u}) {
    Loader resumed(source, kRecord, training(8, 2), positions[i]);
    expect_equal(resumed.next().value(), batches[i]);
    expect_equal(resumed.next().value(), batches[i + 1]);
  }
  EXPECT_EQ(positions[6].epoch, 1);
  EXPECT_EQ(positions[6].batch, 0);
}

TEST(Loader, RanksPartitionEveryGlobalBatch) {
  const NumberedSource source(45, 5);
  for (const auto& [train, pairs] : {std::pair{true, false}, {true, true}, {false, false}}) {
    LoaderConfig config = train ? training(10) : evaluation(10);
    config.pairs = pairs;
    Loader whole(source, kRecord, config);
    std::vector<std::unique_ptr<Loader>> ranks;
    config.world_size = 3;
    for (config.rank = 0; config.rank < 3; ++config.rank)
      ranks.push_back(std::make_unique<Loader>(source, kRecord, config));
    for (int64_t step = 0; step < whole.batches_per_epoch(); ++step) {
      const Batch global = whole.next().value();
      Batch joined;
      std::vector<float> joined_images;
      for (auto& rank : ranks) {
        const Batch part = rank->next().value();
        EXPECT_LE(std::abs(part.size * 3 - global.size), pairs ? 6 : 3);
        EXPECT_EQ(part.whole, global.size);
        EXPECT_EQ(part.first, static_cast<int64_t>(joined.indices.size()));
        EXPECT_TRUE(!pairs || part.first % 2 == 0);
        joined.indices.insert(joined.indices.end(), part.indices.begin(), part.indices.end());
        for (const float value : images(part)) joined_images.push_back(value);
      }
      EXPECT_EQ(joined.indices, global.indices);
      EXPECT_EQ(joined_images, images(global));
    }
  }
}

// Repeated augmentation: every sample occurs three times in a row as different images; an epoch covers a
// third of the set.
TEST(Loader, RepeatsAreTheSameSampleAugmentedAnew) {
  const NumberedSource source(45, 5);
  LoaderConfig config = training(9);
  config.repeats = 3;
  Loader loader(source, kRecord, config);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < loader.batches_per_epoch(); ++step) {
    const Batch batch = loader.next().value();
    const std::vector<float> all = images(batch);
    const size_t pixels = all.size() / 9;
    for (size_t i = 0; i < 8; i += 2)
      EXPECT_NE(batch.indices[i], batch.indices[i + 1]) << "mixed with itself";
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(seen.insert(batch.indices[i]).second);
      EXPECT_EQ(batch.indices[i], batch.indices[i + 3]);
      EXPECT_EQ(batch.indices[i], batch.indices[i + 6]);
      const auto picture = [&](size_t k) {
        return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(k * pixels),
                                  all.begin() + static_cast<std::ptrdiff_t>((k + 1) * pixels));
      };
      EXPECT_NE(picture(i), picture(i + 3));
      EXPECT_NE(picture(i + 3), picture(i + 6));
    }
  }
  EXPECT_EQ(seen.size(), 15u);
}

TEST(Loader, EvaluationKeepsOrderAndTheLastPartialBatchAndEnds) {
  const NumberedSource source(19, 3);
  Loader loader(source, kRecord, evaluation(8));
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  std::vector<int64_t> seen;
  int batches = 0;
  while (const auto batch = loader.next()) {
    seen.insert(seen.end(), batch->indices.begin(), batch->indices.end());
    ++batches;
  }
  EXPECT_EQ(batches, 3);
  std::vector<int64_t> all(19);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_FALSE(loader.next().has_value());
}

TEST(Loader, BalancedDrawsClassesEquallyOften) {
  // Class 0 has 40 samples, class 1 has 2.
  class Skewed final : public LabelledSource {
   public:
    int64_t size() const override { return 42; }
    RawSample read(int64_t index) const override { return inner_.read(index); }
    int64_t label(int64_t index) const override { return index < 40 ? 0 : 1; }
    const std::vector<std::string>& class_names() const override { return names_; }
    uint64_t fingerprint() const override { return 1; }
    std::string describe() const override { return "skewed"; }

   private:
    NumberedSource inner_{42, 1};
    std::vector<std::string> names_ = {"many", "few", "none"};
  } const source;
  LoaderConfig config = training(6, 2);
  config.balanced = true;
  Loader loader(source, kRecord, config);
  int64_t few = 0;
  std::set<float> draws;
  for (const Batch& batch : take(loader, 7)) {
    for (const int64_t label : labels(batch)) few += label == 1;
    for (size_t i = 0; i < 6; ++i) draws.insert(images(batch)[3 * i + 1]);
  }
  EXPECT_EQ(few, 21);
  EXPECT_EQ(draws.size(), 42u) << "a sample drawn again must be augmented anew";
}

TEST(Loader, ABadImageIsReplacedDeterministicallyAndCountedOnce) {
  const NumberedSource source(24, 4, {5});
  Loader loader(source, kRecord, training(8));
  std::set<int64_t> in_place_of_five;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::multiset<int64_t> seen;
    for (const Batch& batch : take(loader, 3))
      for (size_t i = 0; i < 8; ++i) {
        seen.insert(batch.indices[i]);
        EXPECT_EQ(static_cast<float>(batch.indices[i]), images(batch)[3 * i]);
        EXPECT_EQ(labels(batch)[i], batch.indices[i] % 4);
      }
    EXPECT_EQ(seen.count(5), 0u);
    for (int64_t i = 0; i < 24; ++i)
      if (seen.count(i) == 2) in_place_of_five.insert(i);
  }
  EXPECT_GE(in_place_of_five.size(), 2u) << "each epoch draws another one";
  EXPECT_EQ(loader.bad_images().count, 1);
  EXPECT_EQ(loader.bad_images().lines, std::vector<std::string>{"sample 5: broken"});
}

TEST(Loader, MoreThanMaxBadFailsNamingTheLast) {
  const NumberedSource source(20, 2, {3, 8, 11});
  LoaderConfig config = evaluation(4);
  config.max_bad = 2;
  Loader loader(source, kRecord, config);
  EXPECT_EQ(loader.next()->size, 4);
  EXPECT_EQ(loader.next()->size, 4);
  const std::string line =
      "3 images are bad, more than the 2 allowed by max_bad; the last: sample 11: broken";
  EXPECT_EQ(error_of([&] { loader.next(); }), line);
  EXPECT_EQ(error_of([&] { loader.next(); }), line);
}

TEST(Loader, OnBadImageFailNamesTheImageAtItsBatch) {
  const NumberedSource source(20, 2, {9});
  LoaderConfig config = evaluation(4);
  config.on_bad_image = OnBadImage::fail;
  Loader loader(source, kRecord, config);
  EXPECT_TRUE(loader.next() && loader.next());
  EXPECT_EQ(error_of([&] { loader.next(); }), "sample 9: broken");
}

TEST(Loader, ASetWithoutAnyGoodImageEnds) {
  std::set<int64_t> all;
  for (int64_t i = 0; i < 30; ++i) all.insert(i);
  const NumberedSource source(30, 2, all);
  Loader loader(source, kRecord, training(4));
  EXPECT_NE(error_of([&] { loader.next(); }).find("no good image found"), std::string::npos);
}

TEST(Loader, AnyExceptionOfAWorkerReachesNext) {
  const NumberedSource source(40, 2);
  const auto throwing = std::make_shared<RecordingTransform>([](int64_t index) {
    if (index == 13) throw std::bad_alloc();
  });
  Loader loader(source, throwing, evaluation(4));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next());
  EXPECT_THROW(loader.next(), std::bad_alloc);
}

TEST(Loader, EndsCleanlyAtAnyMoment) {
  const NumberedSource source(200, 2);
  for (int batches = 0; batches < 12; ++batches) {
    LoaderConfig config = training(4, 3);
    config.queue = 1 + batches % 3;
    Loader loader(source, kRecord, config);
    for (int i = 0; i < batches; ++i) loader.next();
  }
}

TEST(Loader, TheQueueIsBounded) {
  const NumberedSource source(200, 2);
  std::mutex mutex;
  int64_t loaded = 0;
  const auto counting = std::make_shared<RecordingTransform>([&](int64_t) {
    const std::lock_guard lock(mutex);
    ++loaded;
  });
  LoaderConfig config = training(5, 2);
  config.queue = 3;
  Loader loader(source, counting, config);
  take(loader, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(loaded, (2 + 3) * 5);
}

TEST(Loader, WrongRequestsAreRefused) {
  const NumberedSource source(6, 2);
  EXPECT_EQ(error_of([&] { Loader(source, kRecord, training(7)); }),
            "numbered: 6 images make no batch of 7; take a smaller batch");
  LoaderConfig config = training(2);
  config.world_size = 3;
  EXPECT_EQ(error_of([&] { Loader(source, kRecord, config); }),
            "batch size is 2, must be at least the number of ranks, 3");
  EXPECT_EQ(error_of([&] {
              Loader(source, kRecord, training(2), {0, 4});
            }),
            "loader position epoch 0 batch 4 is beyond the 3 batches of an epoch");
}

}  // namespace
}  // namespace tessera::data
