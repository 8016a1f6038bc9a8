// The plan of a run predicts its resources.
#include "runs/checkpoint.h"
#include "train/process_share.h"
#include "train/setup.h"
#include "train/train_testing.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

class PlanTest : public TemporaryFolder {};

TEST_F(PlanTest, ThePlanIsKnownBeforehand) {
  const PlannedRun planned = plan_training(tiny_recipe(path("run")));
  const Recipe& recipe = planned.recipe;
  const RunPlan& plan = planned.plan;
  EXPECT_EQ(recipe.model.settings.find("classes")->as_int(), 10);
  EXPECT_FALSE(file_exists(path("run")));
  const RunSummary summary = run_training(tiny_recipe(path("run")));
  EXPECT_EQ(plan.steps, summary.plan.steps);
  EXPECT_EQ(plan.parameters, summary.plan.parameters);
  EXPECT_GT(plan.training_macs, 2 * static_cast<double>(plan.macs));  // three times, except for dropped paths
  EXPECT_LT(plan.training_macs, 3 * static_cast<double>(plan.macs));
  EXPECT_DOUBLE_EQ(plan.total_macs, plan.training_macs * static_cast<double>(plan.images));
  const CheckpointStore store(path("run/checkpoints"));
  EXPECT_LE(store.bytes(), plan.disk_bytes);
  EXPECT_GE(plan.checkpoint_bytes, store.bytes() / store.steps().size());
}

TEST_F(PlanTest, ThePlanCountsWhatTheOptimiserKeeps) {
  const auto kept = [&](std::vector<std::string> settings) {
    settings.emplace_back("train.ema_decay=0");
    const RunPlan plan = plan_training(tiny_recipe(path("run"), settings)).plan;
    return (static_cast<double>(plan.checkpoint_bytes) - (1 << 18)) / static_cast<double>(plan.parameters) /
               4 -
           1;
  };
  EXPECT_DOUBLE_EQ(kept({"optimiser.name=adamw"}), 2);
  EXPECT_DOUBLE_EQ(kept({"optimiser.name=adamw", "optimiser.amsgrad=true"}), 3);
  EXPECT_DOUBLE_EQ(kept({"optimiser.name=sgd", "optimiser.momentum=0"}), 0);
  const double muon = kept({"optimiser.name=muon"});  // one value for a matrix, two for others
  EXPECT_GT(muon, 1);
  EXPECT_LT(muon, 2);
}

TEST_F(PlanTest, FrozenWeightsStandInMemoryAndOnceBesideTheCheckpoints) {
  const auto plan_of = [&](std::vector<std::string> settings) {
    settings.emplace_back("train.ema_decay=0.9");
    return plan_training(tiny_recipe(path("run"), settings)).plan;
  };
  const RunPlan all = plan_of({}), some = plan_of({"train.freeze=['patch_embed.*', 'blocks.0.*']"});
  const auto frozen = static_cast<uint64_t>(4 * (some.parameters - some.trainable_parameters));
  EXPECT_EQ(all.shared_bytes, 0u);
  EXPECT_EQ(some.shared_bytes, frozen);
  EXPECT_EQ(all.state_bytes, all.checkpoint_bytes);
  EXPECT_EQ(some.state_bytes, some.checkpoint_bytes + 2 * frozen);  // weights and average
  EXPECT_EQ(all.state_bytes, some.state_bytes + 2 * frozen);        // the optimiser's
}

TEST_F(PlanTest, WithoutDataOrWeightsThePlanSaysWhatIsMissing) {
  const std::string weights = path("none.safetensors");
  const auto planned = plan_training(
      tiny_recipe(path("run"), {"data.path=nowhere", "model.classes=7", "model.pretrained=" + weights}));
  EXPECT_EQ(planned.missing_data, "data path 'nowhere' does not exist");
  EXPECT_NE(planned.missing_weights.find("'" + weights + "' does not exist"), std::string::npos);
  EXPECT_EQ(planned.recipe.model.settings.find("classes")->as_int(), 7);
  EXPECT_EQ(planned.plan.samples, 0);
  EXPECT_EQ(planned.plan.total_macs, 0);
  EXPECT_GT(planned.plan.training_macs, 0);
  EXPECT_GT(planned.plan.parameters, 0);
  EXPECT_GT(planned.plan.memory_bytes, planned.plan.checkpoint_bytes);
  const std::string refused =
      error_of([&] { make_setup(tiny_recipe(path("run"), {"model.pretrained=" + weights})); });
  EXPECT_NE(refused.find("give weights with --pretrained FILE"), std::string::npos) << refused;
}

// Two moments a trained number: what a process does not hold it sends and receives.
TEST_F(PlanTest, TheShareOfAProcessFollowsFromTheLayout) {
  const auto share_of = [&](std::vector<std::string> settings, int64_t processes) {
    settings.emplace_back("train.ema_decay=0.9");
    return *plan_training(tiny_recipe(path("run"), settings), processes).share;
  };
  EXPECT_EQ(plan_training(tiny_recipe(path("run"))).share, nullptr);
  const ProcessShare whole = share_of({}, 4), moments = share_of({"parallel.zero=1"}, 4),
                     both = share_of({"parallel.zero=2", "parallel.replicate=2", "train.accumulate=2"}, 4);
  EXPECT_EQ(whole.optimiser, 2 * whole.gradients);
  EXPECT_EQ(whole.reduced, whole.gradients);
  EXPECT_EQ(whole.scattered + whole.gathered, 0u);
  EXPECT_GE(4 * moments.optimiser, whole.optimiser);
  EXPECT_LE(moments.optimiser, whole.optimiser / 2);
  EXPECT_EQ(moments.weights, whole.weights);
  EXPECT_EQ(moments.gradients, whole.gradients);
  EXPECT_EQ(moments.scattered, whole.gradients - moments.optimiser / 2);
  EXPECT_EQ(moments.gathered, moments.scattered);
  EXPECT_EQ(both.shard, 2);
  EXPECT_EQ(both.gradients, both.optimiser / 2);
  EXPECT_EQ(both.scattered, 2 * (whole.gradients - both.gradients));
  EXPECT_EQ(both.reduced, 2 * both.gradients);
  const ProcessShare all = share_of({"parallel.zero=3"}, 4);
  EXPECT_LT(all.weights, whole.weights / 2);
  EXPECT_GT(all.whole, 0u);
  EXPECT_LE(all.weights + all.whole, whole.weights);
  EXPECT_GT(all.gathered, moments.gathered);
  EXPECT_LE(all.gathered, 2 * moments.gathered);
  const ProcessShare stage = share_of({"parallel.pipeline=2", "model.depth=2"}, 2),
                     one = share_of({"model.depth=2"}, 2);
  EXPECT_EQ(stage.pipeline, 2);
  EXPECT_LT(stage.weights, one.weights);
  EXPECT_GT(2 * stage.weights, one.weights);
  EXPECT_EQ(stage.gradients, stage.weights);
  EXPECT_LT(stage.scattered, one.gradients / 2);
  EXPECT_EQ(stage.reduced, 0u);
  EXPECT_NE(error_of([&] { share_of({"parallel.replicate=3"}, 4); }).find("start 3 processes"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
