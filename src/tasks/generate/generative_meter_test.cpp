#include "tasks/generate/generative_meter.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::tasks {
namespace {

// Returns given features.
class Listed final : public FeatureExtractor {
 public:
  std::shared_ptr<const data::Transform> transform() const override { return nullptr; }
  ImageFeatures extract(const torch::Tensor& images) override { return {images, {}, {}}; }
  int64_t width() const override { return 3; }
  eval::FeatureOrigin origin() const override { return {"listed", "as they are"}; }
};

torch::Tensor rows(int64_t count) {
  torch::manual_seed(1);
  return torch::randn({count, 3});
}

std::span<const float> values(const torch::Tensor& x) {
  return {x.const_data_ptr<float>(), static_cast<size_t>(x.numel())};
}

TEST(GenerativeMeter, BatchesChangeNothing) {
  Listed extractor;
  const torch::Tensor x = rows(100);
  GenerativeMeter whole(extractor, {.samples = 100, .keep = 30}),
      pieces(extractor, {.samples = 100, .keep = 30});
  whole.add(extractor.extract(x));
  for (const torch::Tensor& piece : x.split(7)) pieces.add(extractor.extract(piece.contiguous()));
  EXPECT_EQ(whole.statistics().pooled.covariance, pieces.statistics().pooled.covariance);
  const auto a = whole.kept(), b = pieces.kept();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  EXPECT_EQ(whole.statistics().origin.extractor, "listed");
}

// The sums of a device, here in main memory.
TEST(MomentsThere, AreThoseOfTheHost) {
  const torch::Tensor x = 5 + rows(100);
  eval::Moments here(3);
  MomentsThere there(3);
  for (const torch::Tensor& piece : x.split(7)) {
    here.add(values(piece.contiguous())), there.add(piece);
  }
  EXPECT_EQ(there.samples(), 100);
  const eval::Gaussian want = here.gaussian(), got = there.gaussian();
  for (size_t i = 0; i < want.mean.size(); ++i) EXPECT_NEAR(got.mean[i], want.mean[i], 1e-12);
  for (size_t i = 0; i < want.covariance.size(); ++i)
    EXPECT_NEAR(got.covariance[i], want.covariance[i], 1e-12);
}

TEST(MomentsThere, NameTheSampleThatIsNotFinite) {
  MomentsThere moments(3);
  EXPECT_ANY_THROW(moments.gaussian());
  torch::Tensor x = rows(9);
  moments.add(x);
  x[4][1] = NAN, x[7][0] = HUGE_VAL;
  moments.add(x), moments.add(rows(2));
  try {
    moments.gaussian();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a feature of sample 13 is not finite");
  }
  EXPECT_ANY_THROW(moments.add(torch::zeros({2, 4})));
}

// Sets sorted by class are sampled evenly.
TEST(GenerativeMeter, KeepsSamplesAtEvenDistances) {
  Listed extractor;
  for (const int64_t keep : {1, 3, 10, 11, 20, 50}) {
    GenerativeMeter meter(extractor, {.samples = 20, .keep = keep});
    const torch::Tensor x = torch::arange(20, torch::kFloat32).unsqueeze(1).expand({20, 3}).contiguous();
    meter.add(extractor.extract(x));
    const std::span<const float> kept = meter.kept();
    const int64_t count = std::min<int64_t>(20, keep);
    ASSERT_EQ(std::ssize(kept), 3 * count) << keep;
    for (int64_t k = 0; k < count; ++k)
      EXPECT_EQ(kept[static_cast<size_t>(3 * k)], static_cast<float>(k * 20 / count)) << keep;
  }
}

TEST(GenerativeMeter, TakesNoMoreThanWereAnnounced) {
  Listed extractor;
  GenerativeMeter meter(extractor, {.samples = 5});
  meter.add(extractor.extract(rows(5)));
  EXPECT_ANY_THROW(meter.add(extractor.extract(rows(1))));
  EXPECT_EQ(meter.kept().size(), 0u);
  EXPECT_FALSE(meter.score());
  EXPECT_EQ(values(rows(5)).size(), 15u);
}

// A classifier's probabilities and the features before its head, in one pass.
TEST(BackboneExtractor, GivesFeaturesAndProbabilities) {
  Value settings;
  for (const auto& [key, value] : {std::pair{"dim", 16},
                                   {"heads", 2},
                                   {"depth", 2},
                                   {"patch_size", 4},
                                   {"image_size", 16},
                                   {"classes", 5}})
    settings.set(key, value);
  const std::shared_ptr<models::Classifier> model =
      models::build_classifier(models::resolve_model("vit", settings), 1);
  model->backbone->eval();
  data::Preprocess preprocess;
  preprocess.size = 16;
  const auto extractor = make_backbone_extractor(model->backbone, model, preprocess, "vit", "0123");
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({3, 3, 16, 16});
  const ImageFeatures features = extractor->extract(x);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(features.pooled, model->backbone->embed(x), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(features.probabilities,
                              torch::softmax(model->forward(x).to(torch::kFloat64), 1), 1e-5, 1e-7));
  EXPECT_EQ(extractor->width(), 16);
  EXPECT_EQ(extractor->classes(), 5);
  EXPECT_EQ(extractor->origin().extractor, "vit 0123");
  EXPECT_EQ(extractor->transform()->fields().at(0).shape, (std::vector<int64_t>{3, 16, 16}));
}

}  // namespace
}  // namespace tessera::tasks
