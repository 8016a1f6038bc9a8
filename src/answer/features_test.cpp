// Features by graphs, by a table that records them and runs them again (models/base/graphs_testing.h).
#include "answer/features.h"

#include "models/base/graphs_testing.h"
#include "train/train_testing.h"

namespace tessera::answer {
namespace {

class FeaturesTest : public TemporaryFolder {};

TEST_F(FeaturesTest, GraphsGiveTheSameVectors) {
  train::run_training(train::tiny_recipe(path("run"), {"train.epochs=1"}));
  const train::ReadyTask model(path("run"), {}, "cpu", "fp32");
  const torch::InferenceMode inference;
  const models::RecordedGraphs recorded;
  models::GraphedPass graphs;
  for (int call = 0; call < 4; ++call)
    for (const int64_t layer : {-1, 1}) {  // a block's tokens have no graph
      const FeatureOptions options{.layer = layer};
      const torch::Tensor images = torch::randn({2, 3, 32, 32});
      EXPECT_TRUE(Extractor(options, model, &graphs)(images).equal(Extractor(options, model)(images)))
          << "layer " << layer << ", call " << call;
    }
  EXPECT_EQ(models::RecordedGraphs::counts().captures, 1);
  EXPECT_EQ(models::RecordedGraphs::counts().replays, 2);
}

}  // namespace
}  // namespace tessera::answer
