// iGPT: the model on colours, its objectives and palettes.
#include <gtest/gtest.h>

#include <fstream>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/io_testing.h"
#include "io/weights/array_file.h"
#include "models/backbones/igpt.h"
#include "models/base/capability.h"
#include "tasks/pretrain/igpt.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

TaskSetup igpt_setup(const std::string& settings, const std::string& model, const char* family = "igpt") {
  TaskSetup setup;
  setup.settings = find_task("igpt").resolve(parse_toml(settings, "task"));
  setup.model = models::resolve_model(
      family, parse_toml("dim = 16\ndepth = 2\nheads = 2\nimage_size = 32\nclasses = 0\n" + model, "model"));
  setup.seed = 1;
  setup.preprocess.size = 32;
  setup.preprocess.mean = setup.preprocess.std = {0.5, 0.5, 0.5};
  setup.sides = {32};
  setup.batch_size = 8;
  data::SourceConfig config;
  config.path = "shapes:train=64,val=16,size=32";
  setup.train = data::open_source(config, data::Split::train);
  setup.validation = data::open_source(config, data::Split::validation);
  return setup;
}

std::shared_ptr<models::Backbone> small_igpt(const std::string& settings) {
  const auto model = models::build_backbone(
      models::resolve_model("igpt", parse_toml("dim = 16\ndepth = 2\nheads = 2\nimage_size = 4\ncolours = 9\n"
                                               "classes = 0\n" +
                                                   settings,
                                               "model")),
      3);
  model->to(torch::kFloat64);
  model->eval();
  return model;
}

// A token after another gives what the whole sequence gives; later pixels do not count.
TEST(Igpt, StepsAsItReadsWholeImages) {
  const torch::NoGradGuard no_grad;
  for (const std::string scale : {"", "inverse_layer_scale = true"}) {
    const auto model = small_igpt(scale);
    auto& reader = dynamic_cast<models::ReadsColours&>(*model);
    auto& causal = dynamic_cast<models::CausalStep&>(*model);
    torch::manual_seed(1);
    const Tensor ids = torch::randint(0, 10, {2, 16}, torch::kInt64);
    auto& encoder = dynamic_cast<models::TokenEncoder&>(*model);
    const Tensor whole = encoder.encode(reader.sequence(ids, 4, 4)).tokens;
    models::Cache cache = causal.start(2);
    for (int64_t t = 0; t < 16; ++t)
      EXPECT_TRUE(torch::allclose(causal.step(reader.embed_ids(ids.select(1, t)), cache).squeeze(1),
                                  whole.select(1, t)));
    Tensor other = ids.clone();
    other.slice(1, 9).fill_(0);
    const Tensor changed = encoder.encode(reader.sequence(other, 4, 4)).tokens;
    EXPECT_TRUE(torch::allclose(changed.slice(1, 0, 9), whole.slice(1, 0, 9)));
    EXPECT_FALSE(torch::allclose(changed.slice(1, 9), whole.slice(1, 9)));
  }
}

TEST(Igpt, ReadsTheNearestColourOfEachCell) {
  const auto model = small_igpt("patch_size = 2");
  const auto& reader = dynamic_cast<models::ReadsColours&>(*model);
  Tensor image = torch::zeros({1, 3, 4, 4}, torch::kFloat64);
  for (int64_t cell = 0; cell < 4; ++cell)
    image.slice(2, cell / 2 * 2, cell / 2 * 2 + 2).slice(3, cell % 2 * 2, cell % 2 * 2 + 2) =
        reader.palette()[2 * cell].view({1, 3, 1, 1}) + 0.01;
  EXPECT_TRUE(torch::equal(reader.colours_of(image), torch::tensor({{0, 2, 4, 6}}, torch::kInt64)));
}

TEST(Igpt, ShiftsByTheStartToken) {
  EXPECT_TRUE(torch::equal(igpt_shifted(torch::tensor({{3, 1, 2}}), 9), torch::tensor({{9, 3, 1}})));
}

// Both objectives give a gradient to all that they read; pieces of a batch add up to the whole.
TEST(IgptTask, LearnsByBothObjectives) {
  for (const std::string objective : {"gen", "bert"}) {
    const std::string causal = objective == "gen" ? "true" : "false";
    const auto task = find_task("igpt").make(
        igpt_setup("objective = '" + objective + "'", "patch_size = 4\ncolours = 8\ncausal = " + causal));
    set_training(task->parts(), true);
    const StreamSpec stream = task->streams().at(0);
    data::Loader loader(*stream.source, stream.transform(32), {.batch_size = 8, .shuffle = false});
    data::Batch batch = *loader.next();
    batch.whole = batch.size;
    task->prepare({&batch, 1}, {.seed = 3, .step = 1});
    Inputs inputs;
    inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp32));
    const Loss loss = task->loss(inputs, {}, Collective::alone());
    // Eight colours drawn evenly cost log 8 = 2.08 nats.
    EXPECT_NEAR(loss.sum.item<double>() / task->weight(inputs), 2.08, 0.3) << objective;
    double pieces = 0, weights = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const torch::NoGradGuard no_grad;
      pieces += task->loss(inputs.piece(i, 4), {}, Collective::alone()).sum.item<double>();
      weights += task->weight(inputs.piece(i, 4));
    }
    EXPECT_NEAR(pieces, loss.sum.item<double>(), 1e-3 * pieces);
    EXPECT_EQ(weights, task->weight(inputs));
    loss.sum.backward();
    for (const auto& [name, parameter] : named_parameters(task->parts()))
      EXPECT_TRUE(parameter.grad().defined()) << objective << " " << name;
  }
}

// --- palettes

TEST(Palettes, KMeansFindsSeparateColours) {
  torch::manual_seed(2);
  const Tensor centres = torch::tensor({{-0.9F, -0.9F, -0.9F}, {0.8F, 0.F, 0.F}, {0.F, 0.F, 0.9F}});
  const Tensor pixels = centres.repeat({200, 1}) + 0.01 * torch::randn({600, 3});
  const Tensor found = kmeans_palette(pixels, 12, 5), again = kmeans_palette(pixels, 12, 5);
  EXPECT_TRUE(torch::equal(found, again));
  const Tensor distance = torch::cdist(pixels, found).amin(1);
  EXPECT_LT(distance.max().item<double>(), 0.2);
  EXPECT_NE(usage_error_of([&] {
              kmeans_palette(torch::zeros({50, 3}), 2, 1);
            }).find("have 1 colours among 50"),
            std::string::npos);
}

// The fixed point of Lloyd's algorithm: each centre is the mean of the pixels nearest to it.
TEST(Palettes, CentresAreMeansOfTheirPixels) {
  for (const uint64_t seed : {1, 2, 3}) {
    torch::manual_seed(seed);
    const Tensor pixels = torch::rand({60, 3}) * 2 - 1, found = kmeans_palette(pixels, 4, seed);
    const Tensor nearest = torch::cdist(pixels, found).argmin(1);
    for (int64_t k = 0; k < 4; ++k) {
      const Tensor own = pixels.index({nearest == k});
      ASSERT_GT(own.size(0), 1) << seed;
      EXPECT_TRUE(torch::allclose(own.mean(0), found[k], 0, 1e-5)) << seed << " " << k;
    }
  }
}

class PaletteFiles : public TemporaryFolder {
 protected:
  std::string saved(const Tensor& palette) const {
    ArrayFile file(path("palette.npy"), {{"", DType::f32, palette.sizes().vec()}});
    file.write({static_cast<const std::byte*>(palette.const_data_ptr()), palette.nbytes()});
    file.commit();
    return path("palette.npy");
  }
};

TEST_F(PaletteFiles, AreRead) {
  const Tensor palette = models::even_palette(20);
  EXPECT_TRUE(torch::equal(read_palette(saved(palette), 20), palette));
  EXPECT_NE(usage_error_of([&] {
              read_palette(saved(palette), 21);
            }).find("has the shape [20, 3], must be [21, 3]"),
            std::string::npos);
  EXPECT_NE(usage_error_of([&] { read_palette(saved(palette * 128), 20); }).find("must be from -1 to 1"),
            std::string::npos);
  std::ofstream(path("broken.npy")) << "no array";
  EXPECT_THROW(read_palette(path("broken.npy"), 20), Error);
}

// Pretrained weights have been trained with a palette: none is made of the training images.
TEST_F(PaletteFiles, OfPretrainedWeightsAreNotReplaced) {
  const auto palette_of = [](const TaskSetup& setup) {
    const auto task = find_task("igpt").make(setup);
    const auto model = task->backbones().at(0).model;
    return std::pair(dynamic_cast<models::ReadsColours&>(*model).palette().clone(),
                     dynamic_cast<models::NeutralParameters&>(*model).neutral_names());
  };
  TaskSetup setup = igpt_setup("", "patch_size = 4\ncolours = 8");
  const auto [drawn, may_miss_drawn] = palette_of(setup);
  EXPECT_FALSE(torch::equal(drawn, models::even_palette(8)));
  setup.make_backbone = [](const models::ModelSpec& spec) {
    return models::build_backbone(spec, 0, models::Init::skip);
  };
  const auto [kept, may_miss_kept] = palette_of(setup);
  EXPECT_TRUE(torch::equal(kept, models::even_palette(8)));
  EXPECT_TRUE(may_miss_kept.empty());
  const Tensor given = models::even_palette(8) / 2;
  setup.settings.set("palette", saved(given));
  const auto [read, may_miss_read] = palette_of(setup);
  EXPECT_TRUE(torch::equal(read, given));
  EXPECT_EQ(may_miss_read, std::vector<std::string>{"palette"});
}

TEST(IgptTask, RefusesByName) {
  const auto error_of_task = [](const TaskSetup& setup) {
    return usage_error_of([&] { find_task("igpt").make(setup); });
  };
  EXPECT_NE(error_of_task(igpt_setup("", "patch_size = 4", "vit")).find("reads the colours of pixels"),
            std::string::npos);
  EXPECT_NE(error_of_task(igpt_setup("objective = 'bert'", "")).find("goes with model.causal = false"),
            std::string::npos);
  TaskSetup setup = igpt_setup("", "colours = 8");
  setup.preprocess.mean = {0.4, 0.5, 0.5};
  EXPECT_NE(error_of_task(setup).find("preprocess.mean"), std::string::npos);
  EXPECT_NE(error_of_task(igpt_setup("", "colours = 60000")).find("model.colours = 60000 must be at most"),
            std::string::npos);
  EXPECT_THROW(models::resolve_model("igpt", parse_toml("positions = 5", "model")), Error);
}

}  // namespace
}  // namespace tessera::tasks
