// Masked modelling with mask tokens: SimMIM, MaskFeat and BEiT.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "models/base/patch_mask.h"
#include "tasks/pretrain/beit.h"
#include "tasks/pretrain/masked_patches.h"
#include "tasks/pretrain/maskfeat.h"
#include "tasks/pretrain/mvp.h"
#include "tasks/pretrain/simmim.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

Tensor random_images(int64_t batch, int64_t height, int64_t width, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::rand({batch, 3, height, width}, torch::kFloat64);
}

// --- histograms of gradients

TEST(Hog, HistogramsHaveLengthOneWhateverTheContrast) {
  const Tensor images = random_images(2, 16, 24, 1);
  const Tensor found = hog(images, {.bins = 9, .cell = 8});
  EXPECT_EQ(found.sizes(), (std::vector<int64_t>{2, 3, 9, 2, 3}));
  EXPECT_TRUE(
      torch::allclose(torch::linalg_vector_norm(found, 2, {2}), torch::ones({2, 3, 2, 3}, torch::kFloat64)));
  EXPECT_TRUE(torch::allclose(hog(7 * images - 2, {.bins = 9, .cell = 8}), found));
}

// A mirrored image has the mirrored cells with mirrored orientations: bin b of b pi / bins … becomes the bin of pi
// minus that. Columns at the border have no gradient across, and so the first bin either way: an inner cell is compared.
TEST(Hog, MirroredImagesHaveMirroredOrientations) {
  const Tensor images = random_images(1, 16, 24, 2);
  const Tensor found = hog(images, {.bins = 9, .cell = 8}),
               mirrored = hog(images.flip({3}), {.bins = 9, .cell = 8});
  EXPECT_TRUE(torch::allclose(mirrored.select(4, 1).flip({2}), found.select(4, 1)));
}

TEST(Hog, StripesHaveOneOrientationAndFlatImagesNone) {
  Tensor stripes = torch::zeros({1, 3, 8, 8}, torch::kFloat64);
  stripes.slice(3, 0, 4) = 1;  // a vertical edge
  const Tensor found = hog(stripes, {.bins = 9, .cell = 8})[0][0].flatten();
  EXPECT_EQ((found > 0).sum().item<int64_t>(), 1);
  EXPECT_EQ(hog(torch::full({1, 3, 8, 8}, 0.3), {.bins = 9, .cell = 8}).abs().max().item<double>(), 0);
  EXPECT_THROW(hog(stripes, {.bins = 9, .cell = 16}), Error);
}

// --- masks

TEST(Masks, RectanglesMaskExactlyTheShare) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, "test");
    const auto rows = random.integer(1, 14), columns = random.integer(1, 14);
    const int64_t count = random.integer(0, rows * columns);
    const std::vector<int64_t> mask = rectangle_mask(random, rows, columns, count, 4);
    EXPECT_EQ(std::accumulate(mask.begin(), mask.end(), int64_t{0}), count) << rows << "x" << columns;
    EXPECT_EQ(static_cast<int64_t>(mask.size()), rows * columns);
  }
}

TEST(Masks, UnitsAreWholeSquares) {
  const MaskUnits units{3, 2, 4};
  const std::vector<int64_t> mask = simmim_mask(units, {5, 0, 1, 2, 3, 4}, 2);
  const Tensor grid = torch::tensor(mask).view({3, 4, 2, 4});
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t column = 0; column < 2; ++column) {
      const int64_t sum = grid.select(2, column).select(0, row).sum().item<int64_t>();
      EXPECT_EQ(sum, (row == 0 && column == 0) || (row == 2 && column == 1) ? 16 : 0) << row << " " << column;
    }
  EXPECT_EQ(simmim_masked(36, 0.6), 22);
}

// --- models

struct MaskedFamily {
  const char *name, *settings;
};
constexpr MaskedFamily kFamilies[] = {
    {"vit", "dim = 16\ndepth = 2\nheads = 2\npatch_size = 4"},
    {"vit", "dim = 16\ndepth = 2\nheads = 2\npatch_size = 4\nshared_table = true\npositions = 'none'"},
    {"visionllama", "dim = 16\ndepth = 2\nheads = 2\npatch_size = 4"},
    {"eva02", "dim = 16\ndepth = 2\nheads = 2\npatch_size = 4"},
    {"aim", "dim = 16\ndepth = 2\nheads = 2\npatch_size = 4\nprobe_layers = 1"},
    {"vil", "dim = 16\ndepth = 1\npatch_size = 4"},
    {"vim", "dim = 16\ndepth = 2\npatch_size = 4"},
    {"vrwkv", "dim = 16\ndepth = 2\npatch_size = 4"},
    {"swin", "dims = [8, 16]\ndepths = [2, 1]\nheads = [2, 2]\nwindow_size = 4"},
    {"vil_pyramid", "dims = [8, 16]\ndepths = [2, 1]\nheads = [2, 2]"},
};

models::ModelSpec spec_of(const MaskedFamily& family) {
  return models::resolve_model(family.name,
                               parse_toml(text(family.settings, "\nimage_size = 32\nclasses = 0"), "model"));
}

// Pixels under the mask do not count, the others do.
TEST(MaskTokens, HideTheirPatchesInEveryFamily) {
  const torch::NoGradGuard no_grad;
  for (const MaskedFamily& family : kFamilies) {
    const auto model = models::build_backbone(spec_of(family), 1);
    model->to(torch::kFloat64);
    model->eval();
    auto& masker = dynamic_cast<models::MasksPatches&>(*model);
    torch::manual_seed(5);
    models::PatchMask mask{torch::rand({2, 8, 8}) < 0.4,
                           torch::randn({masker.mask_width()}, torch::kFloat64)};
    const Tensor images = random_images(2, 32, 32, 3), other = random_images(2, 32, 32, 4);
    const Tensor pixels = mask.masked.repeat_interleave(4, 1).repeat_interleave(4, 2).unsqueeze(1);
    const Tensor map = masker.masked_map(images, mask, true);
    EXPECT_EQ(map.size(1), masker.map_width()) << family.name;
    EXPECT_EQ(map.size(2) * masker.map_stride(), 32) << family.name;
    EXPECT_TRUE(torch::equal(masker.masked_map(torch::where(pixels, other, images), mask, true), map))
        << family.name;
    EXPECT_FALSE(torch::allclose(masker.masked_map(torch::where(pixels, images, other), mask, true), map));
    mask.token = -mask.token;
    EXPECT_FALSE(torch::allclose(masker.masked_map(images, mask, true), map)) << family.name;
  }
}

// --- tasks

TaskSetup setup_of(const char* task, const std::string& settings, const MaskedFamily& family) {
  TaskSetup setup;
  setup.settings = find_task(task).resolve(parse_toml(settings, "task"));
  setup.model = spec_of(family);
  setup.seed = 1;
  setup.preprocess.size = 32;
  setup.sides = {32};
  data::SourceConfig config;
  config.path = "shapes:train=64,val=16,size=32";
  setup.train = data::open_source(config, data::Split::train);
  setup.validation = data::open_source(config, data::Split::validation);
  return setup;
}

Inputs masked_batch(const Task& task, int64_t step) {
  const StreamSpec stream = task.streams().at(0);
  data::Preprocess preprocess;
  preprocess.size = 32;
  data::Loader loader(*stream.source, data::make_eval_transform(preprocess),
                      {.batch_size = 8, .shuffle = false, .drop_last = false});
  data::Batch batch = *loader.next();
  batch.whole = batch.size;
  task.prepare({&batch, 1}, {.seed = 3, .step = step});
  Inputs inputs;
  inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp32));
  return inputs;
}

struct Objective {
  const char *task, *settings;
  int64_t family;  // in kFamilies
};
constexpr Objective kObjectives[] = {
    {"simmim", "mask_patch = 8", 0},
    {"simmim", "mask_patch = 16", 8},
    {"maskfeat", "cell = 2\nmask_least = 2", 0},
    {"maskfeat", "target = 'pixels'\nmask_least = 2", 3},
};

// Every trained tensor that the objective reads gets a gradient; masks are new in every step, and pieces of a batch
// add up to the whole.
TEST(MaskedTasks, LearnFromMasksOfEachStep) {
  for (const Objective& one : kObjectives) {
    const auto task = find_task(one.task).make(setup_of(one.task, one.settings, kFamilies[one.family]));
    set_training(task->parts(), true);
    const Inputs inputs = masked_batch(*task, 1), again = masked_batch(*task, 1),
                 later = masked_batch(*task, 2);
    EXPECT_TRUE(torch::equal(inputs.at("mask"), again.at("mask"))) << one.task;
    EXPECT_FALSE(torch::equal(inputs.at("mask"), later.at("mask"))) << one.task;
    const Loss loss = task->loss(inputs, {}, Collective::alone());
    EXPECT_GT(loss.sum.item<double>(), 0) << one.task;
    double pieces = 0, weights = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const torch::NoGradGuard no_grad;
      const Inputs piece = inputs.piece(i, 4);
      pieces += task->loss(piece, {}, Collective::alone()).sum.item<double>();
      weights += task->weight(piece);
    }
    EXPECT_NEAR(pieces, loss.sum.item<double>(), 1e-4 * pieces) << one.task;
    EXPECT_EQ(weights, task->weight(inputs)) << one.task;
    loss.sum.backward();
    for (const auto& [name, parameter] : named_parameters(task->parts())) {
      const bool unread = name == "fc_norm.weight" || name == "fc_norm.bias" || name.starts_with("norm.");
      EXPECT_TRUE(unread || parameter.grad().defined()) << one.task << " " << name;
    }
  }
}

TEST(MaskedTasks, RefuseByName) {
  const auto error_of_task = [](const char* task, const std::string& settings, const MaskedFamily& family) {
    return usage_error_of([&] { find_task(task).make(setup_of(task, settings, family)); });
  };
  EXPECT_NE(error_of_task("simmim", "mask_patch = 6", kFamilies[0]).find("task.mask_patch = 6"),
            std::string::npos);
  EXPECT_NE(error_of_task("maskfeat", "cell = 3", kFamilies[0]).find("task.cell = 3"), std::string::npos);
  EXPECT_NE(error_of_task("maskfeat", "cell = 2", kFamilies[8]).find("cells of 8 pixels"), std::string::npos);
  EXPECT_NE(error_of_task("beit", "", kFamilies[0]).find("task.tokeniser"), std::string::npos);
  EXPECT_NE(error_of_task("simmim", "", {"convnext", "dims = [8, 16]\ndepths = [1, 1]"}).find("mask token"),
            std::string::npos);
}

// --- MAE with fused levels

TEST(LevelFusion, IsTheLastLevelIfItHasTheWholeWeight) {
  const auto settings = "decoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n";
  const auto plain = find_task("mae").make(setup_of("mae", settings, kFamilies[0])),
             fused = find_task("mae").make(setup_of("mae", text(settings, "fuse = [0]"), kFamilies[0]));
  for (const auto& task : {plain.get(), fused.get()}) move(task->parts(), torch::kCPU, torch::kFloat64);
  const Inputs inputs = masked_batch(*plain, 1);
  Inputs wide = inputs;
  for (FieldTensor& field : wide.streams[0].fields)
    if (field.name == "image") field.values = field.values.to(torch::kFloat64);
  const auto tensor = [&](const std::string& name) {
    for (const auto& [own, parameter] : named_parameters(fused->parts()))
      if (own == name) return parameter;
    return Tensor();
  };
  const auto loss_of = [&](Task& task) { return task.loss(wide, {}, Collective::alone()).sum; };
  const double before = loss_of(*plain).item<double>();
  EXPECT_GT(std::abs(loss_of(*fused).item<double>() - before), 1e-6);
  loss_of(*fused).backward();
  for (const char* name : {"proj_layers.0.weight", "proj_layers.0.bias", "proj_weights"})
    EXPECT_GT(tensor(name).grad().abs().max().item<double>(), 0) << name;
  const torch::NoGradGuard no_grad;
  tensor("proj_weights").copy_(torch::tensor({-1e9, 0.0}));
  EXPECT_NEAR(loss_of(*fused).item<double>(), before, 1e-9 * before);
  EXPECT_NE(usage_error_of([&] {
              find_task("mae").make(setup_of("mae", text(settings, "fuse = [1]"), kFamilies[0]));
            }).find("task.fuse holds 1"),
            std::string::npos);
}

// Blocks that are recomputed (train.checkpoint_activations) give the same gradients.
TEST(LevelFusion, BlocksMayBeRecomputed) {
  const auto task = find_task("mae").make(
      setup_of("mae", "decoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\nfuse = [0]", kFamilies[0]));
  move(task->parts(), torch::kCPU, torch::kFloat64);
  set_training(task->parts(), true);
  Inputs inputs = masked_batch(*task, 1);
  for (FieldTensor& field : inputs.streams[0].fields)
    if (field.name == "image") field.values = field.values.to(torch::kFloat64);
  const auto gradients = [&](bool recomputed) {
    task->backbones()[0].model->set_checkpointing(recomputed);
    task->loss(inputs, {}, Collective::alone()).sum.backward();
    std::vector<Tensor> found;
    for (const auto& [name, parameter] : named_parameters(task->parts())) {
      const Tensor& gradient = parameter.grad();
      found.push_back(gradient.defined() ? gradient.clone() : torch::zeros_like(parameter));
      parameter.mutable_grad().reset();
    }
    return found;
  };
  const std::vector<Tensor> kept = gradients(false), again = gradients(true);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::allclose(kept[i], again[i], 1e-9, 1e-12)) << i;
}

// --- MVP

TEST(Mvp, OnlyMaskedPatchesAndTheirAnglesCount) {
  torch::manual_seed(4);
  const Tensor targets = torch::randn({2, 5, 3}, torch::kFloat64);
  Tensor mask = torch::zeros({2, 5}, torch::kInt64);
  mask[0][1] = 1, mask[1][0] = 1, mask[1][4] = 1;
  Tensor predicted = 3 * torch::stack({targets[0][1], targets[1][0], targets[1][4]});
  EXPECT_LT(mvp_losses(predicted, targets, mask).abs().max().item<double>(), 1e-12);
  predicted[1] = -targets[1][0];
  const Tensor losses = mvp_losses(predicted, targets, mask);
  EXPECT_NEAR(losses[0].item<double>(), 0, 1e-12);
  EXPECT_NEAR(losses[1].item<double>(), 2, 1e-12);
}

}  // namespace
}  // namespace tessera::tasks
