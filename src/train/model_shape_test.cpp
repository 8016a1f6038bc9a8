// Shapes for the planner against models counted by hand.
#include "train/model_shape.h"

#include <gtest/gtest.h>

#include "core/value.h"
#include "tasks/base/registry.h"
#include "train/memory.h"
#include "train/train_testing.h"

namespace tessera::train {
namespace {

std::unique_ptr<tasks::Task> task_of(const std::string& name, const std::string& model,
                                     const std::string& settings = "") {
  Value task;
  task.set("name", name);
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(tasks::resolve_task(task));
  setup.model = models::resolve_model(model, parse_toml(settings, "test"));
  setup.meta = true;
  return tasks::find_task(name).make(setup);
}

TEST(ModelShape, ViTByHand) {
  const auto task = task_of("classify", "vit_tiny_patch16_224");
  const plan::Shape shape = shape_of_task(*task, 224, {});
  ASSERT_EQ(shape.stacks.size(), 1u);
  const plan::Stack& stack = shape.stacks[0];
  EXPECT_EQ(stack.layers, 12);
  EXPECT_EQ(stack.tokens, 197);
  EXPECT_EQ(stack.width, 192);
  EXPECT_EQ(stack.heads, 3);
  EXPECT_EQ(stack.hidden, 768);
  EXPECT_FALSE(stack.gated);
  EXPECT_DOUBLE_EQ(stack.pairs, 2.0 * 197 * 197 * 192);
  EXPECT_NEAR(stack.products, 197.0 * 12 * 192 * 192, 1);
  EXPECT_DOUBLE_EQ(shape.all_parameters(), static_cast<double>(tasks::count_parameters(task->parts())));
  EXPECT_NEAR(shape.training_macs(), 3 * static_cast<double>(task->macs(224)), 10);
}

TEST(ModelShape, EveryFamilyIsCountedWhole) {
  for (const char* model : {"vil_tiny_patch16_224", "swin_tiny_patch4_window7_224", "twins_svt_small",
                            "visionllama_pyramid_small_224", "resnet50", "deit3_small_patch16_224"}) {
    SCOPED_TRACE(model);
    const auto task = task_of("classify", model);
    const plan::Shape shape = shape_of_task(*task, 224, {});
    EXPECT_DOUBLE_EQ(shape.all_parameters(), static_cast<double>(tasks::count_parameters(task->parts())));
    EXPECT_NEAR(shape.training_macs() / (3 * static_cast<double>(task->macs(224))), 1, 0.01);
    EXPECT_FALSE(shape.stacks.empty());
  }
}

TEST(ModelShape, FrozenLayersAreAStackOfTheirOwn) {
  const auto task = task_of("classify", "vit_tiny_patch16_224");
  const plan::Shape shape = shape_of_task(*task, 224, {"blocks.0.*", "blocks.1.*"});
  ASSERT_EQ(shape.stacks.size(), 2u);
  EXPECT_EQ(shape.stacks[0].layers, 2);
  EXPECT_EQ(shape.stacks[0].trained, 0);
  EXPECT_EQ(shape.stacks[1].layers, 10);
  EXPECT_EQ(shape.stacks[1].trained, shape.stacks[1].parameters);
}

TEST(ModelShape, ARecipeGivesItsArithmetic) {
  const CountedRun run = count_run(tiny_recipe("run", {"train.ema_decay=0.9", "optimiser.name=adamw"}));
  EXPECT_EQ(run.arithmetic.batch, run.recipe.train.batch_size);
  EXPECT_NEAR(run.arithmetic.optimiser_bytes, 8, 0.1);
  EXPECT_EQ(run.arithmetic.average_bytes, 4);
  EXPECT_GT(run.shape.training_macs(), 0);
  EXPECT_FALSE(run.language);
}

}  // namespace
}  // namespace tessera::train
