#include "tasks/generate/generator_fid.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/value.h"

namespace tessera::tasks {
namespace {

TEST(GeneratorFid, IsSmallForTheReferenceItself) {
  const std::shared_ptr<const data::Source> source =
      data::open_source({.path = "shapes:train=80,val=4"}, data::Split::train);
  const auto model = models::build_classifier(
      models::resolve_model(
          "vit",
          parse_toml("dim = 8\nheads = 2\ndepth = 1\npatch_size = 8\nimage_size = 32\nclasses = 3", "model")),
      1);
  model->backbone->eval();
  const OpenExtractor open = [&](const std::string& path, const ExtractorPlace& place) {
    if (path != "weights") fail_usage("there is no ", path);
    data::Preprocess preprocess;
    preprocess.size = 32;
    return make_backbone_extractor(model->backbone, model, preprocess, path, "", place);
  };
  GeneratorFid fid(open, {.classifier = "weights", .samples = 80, .reference = 1000}, source);
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
  const double zero = fid.measure(same, torch::kCPU, {}), far = fid.measure(gray, torch::kCPU, {});
  EXPECT_NEAR(zero, 0, 1e-4);
  EXPECT_GT(far, 100 * std::abs(zero));
  EXPECT_NE(error_of([&] { fid.measure(same, torch::kCPU, [] { return false; }); }).find("interrupted"),
            std::string::npos);
  EXPECT_ANY_THROW(GeneratorFid(open, {.classifier = "nothing"}, source));
}

}  // namespace
}  // namespace tessera::tasks
