// Frozen weights in bfloat16: the same training, in half of their memory.
#include "open/load.h"
#include "train/process_share.h"
#include "train/train_testing.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

class FrozenInBfloat16 : public TemporaryFolder {
 protected:
  Recipe tiny(const std::string& run, std::vector<std::string> settings = {}) const {
    for (const char* setting : {"train.freeze=['blocks.0.*']", "train.precision='bf16'", "train.steps=6",
                                "train.epochs=0", "train.checkpoint_steps=3"})
      settings.insert(settings.begin(), setting);
    return tiny_recipe(path(run), settings);
  }
  std::map<std::string, torch::Tensor> weights_of(const std::string& run) const {
    const NamedTensors tensors = read_tensors(WeightFile(path(run + "/model.safetensors")));
    return {tensors.begin(), tensors.end()};
  }
};

// Products in bfloat16 round float weights to the same numbers.
TEST_F(FrozenInBfloat16, TheOthersLearnTheSame) {
  run_training(tiny("same"));
  run_training(tiny("rounded", {"train.frozen='bf16'"}));
  const auto same = weights_of("same"), rounded = weights_of("rounded");
  ASSERT_EQ(same.size(), rounded.size());
  int64_t halved = 0;
  for (const auto& [name, tensor] : same) {
    const torch::Tensor& other = rounded.at(name);
    halved += other.scalar_type() == torch::kBFloat16;
    EXPECT_TRUE(torch::equal(other, tensor.to(other.scalar_type()))) << name;
    EXPECT_TRUE(other.scalar_type() == torch::kFloat32 || name.starts_with("blocks.0.")) << name;
  }
  EXPECT_EQ(halved, 4);  // qkv, proj, fc1, fc2
}

TEST_F(FrozenInBfloat16, ARunContinuesBitForBit) {
  run_training(tiny("whole", {"train.frozen='bf16'"}));
  struct Stop {};
  struct StopAfter4 : Observer {
    void progressed(const StepProgress& at) override {
      if (at.step == 4) throw Stop();
    }
  } stop;
  const Recipe recipe = tiny("parts", {"train.frozen='bf16'"});
  EXPECT_THROW(run_training(recipe, {.observers = {&stop}}), Stop);
  run_training(recipe, {.resume = Resume::required});
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(FrozenInBfloat16, ItsMemoryIsCounted) {
  const PlannedRun same = plan_training(tiny("same"), 2),
                   rounded = plan_training(tiny("r", {"train.frozen='bf16'"}), 2);
  const uint64_t saved = 2 * 12 * 16 * 16;  // a block has 12 dim^2 values in its products
  EXPECT_EQ(same.share->weights - rounded.share->weights, saved);
  EXPECT_EQ(same.plan.state_bytes - rounded.plan.state_bytes, 2 * saved);  // the average too
}

TEST_F(FrozenInBfloat16, OtherPrecisionsAndNothingFrozenAreRefused) {
  EXPECT_EQ(error_of([&] {
              make_setup(tiny("x", {"train.frozen='bf16'", "train.precision='fp32'"}));
            }),
            "train.frozen = 'bf16' needs train.precision = 'bf16', it is 'fp32'");
  EXPECT_NE(error_of([&] {
              make_setup(tiny("x", {"train.frozen='bf16'", "train.freeze=[]"}));
            }).find("no linear layer is frozen"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
