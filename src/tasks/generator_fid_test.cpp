#include "tasks/generator_fid.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/toml.h"

namespace tessera::tasks {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GeneratorFid, IsSmallForTheReferenceItself) {
  const std::shared_ptr<const data::Source> source =
      data::open_source({.path = "shapes:train=80,val=4"}, data::Split::train);
  OpenedClassifier classifier;
  classifier.model = models::build_classifier(
      models::resolve_model(
          "vit",
          parse_toml("dim = 8\nheads = 2\ndepth = 1\npatch_size = 8\nimage_size = 32\nclasses = 3", "model")),
      1);
  classifier.model->backbone->eval();
  classifier.preprocess.size = 32;
  GeneratorFid fid(classifier, source, 1000, 80);
  const auto same = [&](int64_t first, int64_t count) {
    std::vector<Image> images;
    for (int64_t i = first; i < first + count; ++i) images.push_back(data::decode_sample(source->read(i)));
    return images;
  };
  const auto gray = [&](int64_t first, int64_t count) {
    std::vector<Image> images = same(first, count);
    for (Image& image : images)
      for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(value / 4 + 96);
    return images;
  };
  const double zero = fid.measure(same, {}, {}), far = fid.measure(gray, {}, {});
  EXPECT_NEAR(zero, 0, 1e-4);
  EXPECT_GT(far, 100 * std::abs(zero));
  EXPECT_NE(error_of([&] { fid.measure(same, {}, [] { return false; }); }).find("interrupted"),
            std::string::npos);
  EXPECT_ANY_THROW(GeneratorFid(classifier, source, 1000, 1));
}

}  // namespace
}  // namespace tessera::tasks
