#include "analysis/activations.h"

#include <gtest/gtest.h>

#include "models/base/model.h"

namespace tessera::analysis {
namespace {

ActivationBytes measured(int64_t depth, int64_t side) {
  Value settings;
  settings.set("image_size", side), settings.set("patch_size", 8), settings.set("dim", 32);
  settings.set("depth", depth), settings.set("heads", 2), settings.set("classes", 5);
  const auto model = models::build_classifier(models::resolve_model("vit", settings), 1);
  return activation_bytes(*model, 3, side);
}

TEST(ActivationBytes, BlocksOfOneKindKeepTheSame) {
  const ActivationBytes found = measured(4, 32);
  ASSERT_GE(found.places.size(), 5u);
  int64_t sum = 0;
  for (const KeptBytes& place : found.places) sum += place.bytes;
  EXPECT_EQ(sum, found.training);
  EXPECT_EQ(found.places[1].place, "blocks.1");
  EXPECT_EQ(found.places[1].bytes, found.places[2].bytes);
  // At least the inputs of its norms and MLP, 17 tokens of 32 channels each.
  EXPECT_GE(found.places[1].bytes, 2 * 17 * 32 * 4);
  EXPECT_LT(found.inference, found.training);
}

TEST(ActivationBytes, GrowWithDepthAndSide) {
  const ActivationBytes shallow = measured(2, 32), deep = measured(4, 32), large = measured(2, 64);
  EXPECT_EQ(deep.training - shallow.training, 2 * shallow.places[1].bytes);
  EXPECT_GT(large.training, 3 * shallow.training);  // four times the patches
}

}  // namespace
}  // namespace tessera::analysis
