#include "tasks/dense/segment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/value.h"
#include "data/transforms/mask_labels.h"
#include "models/base/graphs_testing.h"
#include "tasks/base/layer_features.h"
#include "tasks/dense/pixel_scores.h"

namespace tessera::tasks {
namespace {

torch::Tensor random_labels(at::IntArrayRef shape, int64_t classes) {
  torch::Tensor labels = torch::randint(0, classes, shape, torch::kInt64);
  return labels.masked_fill(torch::rand(shape) < 0.2, data::kIgnoredPixel);
}

TEST(PixelScores, LossIsItsFormula) {
  torch::manual_seed(1);
  const torch::Tensor scores = torch::randn({2, 3, 4, 5}, torch::kFloat64),
                      labels = random_labels({2, 4, 5}, 3),
                      weights = torch::tensor({0.5, 1.0, 2.0}, torch::kFloat64);
  const torch::Tensor losses = pixel_cross_entropy(scores, labels, data::kIgnoredPixel, weights);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t x = 0; x < 5; ++x) {
        const int64_t label = labels[b][y][x].item<int64_t>();
        double sum = 0;
        for (int64_t c = 0; c < 3; ++c) sum += std::exp(scores[b][c][y][x].item<double>());
        const double want =
            label == data::kIgnoredPixel
                ? 0
                : weights[label].item<double>() * (std::log(sum) - scores[b][label][y][x].item<double>());
        EXPECT_NEAR(losses[b][y][x].item<double>(), want, 1e-12);
      }
}

TEST(PixelScores, HardPixelsAreTheHardestOfEachImage) {
  const torch::Tensor losses =
      torch::tensor({0.1, 0.2, 3.0, 0.05, 0.01, 0.02, 0.03, 0.04}, torch::kFloat64).reshape({2, 2, 2});
  const torch::Tensor labels = torch::zeros({2, 2, 2}, torch::kInt64);
  // -log 0.5 = 0.69: the first image has one hard pixel, the second none; the minimum of two is kept in both.
  const torch::Tensor kept = keep_hard_pixels(losses, labels, data::kIgnoredPixel, 0.5, 2);
  EXPECT_EQ(kept.count_nonzero().item<int64_t>(), 4);
  EXPECT_DOUBLE_EQ(kept[0].sum().item<double>(), 3.2);
  EXPECT_DOUBLE_EQ(kept[1].sum().item<double>(), 0.07);
}

TEST(PixelScores, OneWindowIsTheWhole) {
  torch::manual_seed(2);
  const torch::Tensor image = torch::randn({1, 3, 9, 12}, torch::kFloat64),
                      weight = torch::randn({4, 3, 3, 3}, torch::kFloat64);
  const auto score = [&](const torch::Tensor& x) { return torch::conv2d(x, weight, {}, 1, 1); };
  EXPECT_TRUE(torch::allclose(sliding_scores(image, {12, 5}, 2, score), score(image)));
  // Windows of single pixels see zeros as neighbours, at every position, so any batch gives the same result.
  for (const int64_t at_once : {1, 2, 100})
    EXPECT_TRUE(
        torch::equal(sliding_scores(image, {5, 3}, at_once, score), sliding_scores(image, {5, 3}, 1, score)));
}

// Fading windows equal the whole if the model's receptive field fits the part with weight 0, and cells are
// aligned in windows and image.
TEST(PixelScores, FadingWindowsAreTheWholeOfALocalModel) {
  torch::manual_seed(3);
  const torch::Tensor image = torch::randn({1, 3, 41, 34}, torch::kFloat64),
                      first = torch::randn({4, 3, 3, 3}, torch::kFloat64),
                      second = torch::randn({5, 4, 3, 3}, torch::kFloat64);
  const auto score = [&](const torch::Tensor& x) {
    return score_padded(x, 2, [&](const torch::Tensor& padded) {
      return torch::conv2d(torch::relu(torch::conv2d(padded, first, {}, 2, 1)), second, {}, 1, 1);
    });
  };
  const torch::Tensor whole = score(image);
  const auto apart = [&](const WindowPlan& plan) {
    return (sliding_scores(image, plan, 3, score) - whole).abs().max().item<double>();
  };
  EXPECT_LT(apart({.crop = 40, .stride = 12, .fading = true, .unit = 2}), 1e-12);
  EXPECT_LT(apart({.crop = 36, .stride = 13, .fading = true, .unit = 2}), 1e-12);  // rounded down to 12
  EXPECT_GT(apart({.crop = 36, .stride = 13, .fading = true, .unit = 1}), 1e-3);
  EXPECT_GT(apart({.crop = 36, .stride = 12, .fading = false}), 1e-3);
}

// The last window is shifted back to fit, so it overlaps by more.
TEST(PixelScores, WeightsOfWindowsAddUpToOneOrMore) {
  const WindowPlan plan{.crop = 12, .stride = 7, .fading = true};
  for (const auto& [height, width] : {std::pair(40, 33), {12, 13}, {5, 7}, {1, 1}}) {
    const torch::Tensor sum = torch::zeros({1, 1, height, width}, torch::kFloat64), scores = sum.clone();
    for (const eval::Window& w : plan.windows(height, width)) {
      const auto part = [&](const torch::Tensor& of) {
        return of.narrow(2, w.top, w.bottom - w.top).narrow(3, w.left, w.right - w.left);
      };
      plan.add(part(scores), plan.weights(w, height, width, torch::kFloat64), part(scores), part(sum));
    }
    EXPECT_GT(sum.min().item<double>(), 1 - 1e-12) << height << " x " << width;
    EXPECT_TRUE(width < 19 || sum.slice(3, 0, 14).slice(2, 0, 14).max().item<double>() < 1 + 1e-12);
  }
}

TEST(PixelScores, MirroredViewsAreMirroredBack) {
  torch::manual_seed(3);
  const torch::Tensor scores = torch::randn({1, 3, 4, 6}, torch::kFloat64);
  const torch::Tensor fused = fuse_views({{scores}, {scores.flip({3}), true}}, 4, 6, Fusion::probabilities);
  EXPECT_TRUE(torch::allclose(fused, scores.softmax(1)));
}

// Scores that depend on each pixel alone, so windows cannot change them.
PixelModel pixel_model(const data::Normalisation& normalisation) {
  return {.score =
              [](const torch::Tensor& x) {
                return torch::cat({x, -x}, 1);
              },
          .normalisation = &normalisation,
          .options = torch::kFloat32,
          .classes = 6};
}

TEST(SegmentInference, BandsAreTheWhole) {
  const data::Normalisation normalisation({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
  RandomStream random(4, "pixels");
  for (const auto& [width, height] : {std::pair(7, 50), {50, 7}, {33, 41}, {1, 1}}) {
    Image picture(width, height);
    for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(random.below(256));
    SegmentInference how{.slide = false, .scale = {}};
    bool finite = true;
    const Image whole = segment_image(pixel_model(normalisation), picture, how, finite);
    how.slide = true, how.crop = 12, how.stride = 5;
    for (const bool fading : {true, false})
      for (const int64_t at_once : {1, 4}) {
        how.fading = fading, how.at_once = at_once;
        EXPECT_EQ(segment_image(pixel_model(normalisation), picture, how, finite).pixels, whole.pixels);
      }
    how.flip = true;  // via views
    EXPECT_EQ(segment_image(pixel_model(normalisation), picture, how, finite).pixels, whole.pixels);
    EXPECT_TRUE(finite);
  }
}

// Windows of whole cells; the last ones are larger or replace earlier ones.
TEST(SegmentInference, AlignedBandsAreTheWhole) {
  const data::Normalisation normalisation({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
  RandomStream random(5, "pixels");
  PixelModel model = pixel_model(normalisation);
  model.unit = 8;
  for (int side = 1; side <= 60; ++side) {
    Image picture(side, 61 - side);
    for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(random.below(256));
    SegmentInference how{.slide = false, .scale = {}};
    bool finite = true;
    const Image whole = segment_image(model, picture, how, finite);
    how.slide = how.fading = true, how.crop = 12, how.stride = 9;
    EXPECT_EQ(segment_image(model, picture, how, finite).pixels, whole.pixels) << side;
  }
}

// Scores on a small grid, resized to the image in bands of rows that memory allows.
TEST(SegmentInference, BandsOfResizedScoresAreTheWhole) {
  const data::Normalisation normalisation({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
  RandomStream random(6, "pixels");
  for (const auto& [width, height] : {std::pair(61, 150), {150, 61}, {5, 40}}) {
    Image picture(width, height);
    for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(random.below(256));
    for (const bool flip : {false, true}) {
      SegmentInference how{.slide = false, .scale = {20, 20}, .flip = flip};
      bool finite = true;
      const Image whole = segment_image(pixel_model(normalisation), picture, how, finite);
      for (const int64_t rows : {1, 7, 60}) {
        how.most_scores = 6 * width * rows;
        const Image bands = segment_image(pixel_model(normalisation), picture, how, finite);
        int64_t others = 0;  // ties, up to rounding
        for (size_t i = 0; i < whole.pixels.size(); ++i) others += bands.pixels[i] != whole.pixels[i];
        EXPECT_LE(others, std::ssize(whole.pixels) / 500) << rows << " rows";
      }
      EXPECT_TRUE(finite);
    }
  }
}

TEST(SegmentInference, PaddingIsCutOffAgain) {
  const torch::Tensor images = torch::ones({1, 3, 5, 7});
  const torch::Tensor scores = score_padded(images, 4, [](const torch::Tensor& x) {
    EXPECT_EQ(x.size(2), 8);
    EXPECT_EQ(x.size(3), 8);
    return x;
  });
  EXPECT_TRUE(torch::equal(scores, images));
}

TaskSetup setup_of(const std::string& model, const std::string& settings, const std::string& task,
                   int64_t size) {
  TaskSetup setup;
  setup.settings = task_settings(resolve_task(parse_toml("name = \"segment\"\n" + task, "test")));
  Value model_settings = parse_toml(settings, "test");
  segment_kind().fit_model(model_settings, setup.settings, nullptr);
  setup.model = models::resolve_model(model, model_settings);
  setup.preprocess.size = size;
  return setup;
}

// Parameters of the papers' tables: VisionLLaMA's Table 4a, Liu et al.'s Table 3, iLLaMA's Table 10, with both heads.
TEST(Segment, HasTheParametersOfThePapers) {
  struct Row {
    const char *model, *settings, *task;
    double millions, slack;
  };
  const std::string swin = "form = \"original\"\nstage_norms = true\nimage_size = 512";
  for (const Row& row :
       std::vector<Row>{{"swin_tiny_patch4_window7_224", swin.c_str(), "", 59.9, 0.002},
                        {"swin_small_patch4_window7_224", swin.c_str(), "", 81.3, 0.002},
                        {"swin_base_patch4_window7_224", swin.c_str(), "", 121, 0.01},
                        {"visionllama_pyramid_base_seg_224", "image_size = 512", "", 88.5, 0.02},
                        {"illama_tiny_patch16_224", "image_size = 512",
                         "channels = 192\nauxiliary_channels = 192", 10.86, 0.02},
                        {"illama_base_patch16_224", "image_size = 512", "channels = 768", 163.22, 0.02}}) {
    TaskSetup setup = setup_of(row.model, row.settings, row.task, 512);
    setup.meta = true;
    const auto task = segment_kind().make(setup);
    EXPECT_NEAR(static_cast<double>(count_parameters(task->parts())) / 1e6, row.millions,
                row.slack * row.millions)
        << row.model;
  }
}

constexpr const char* kTinySwin =
    "image_size = 32\npatch_size = 2\ndims = [8, 16, 16, 16]\ndepths = [1, 1, 1, 1]\nheads = [1, 2, 2, 2]\n"
    "window_size = 4";

// A batch of random crops with their masks, as from the loader, after prepare().
Inputs random_inputs(const Task& task, int64_t batch, int64_t side, int64_t classes) {
  data::Batch made;
  made.size = made.whole = batch;
  torch::manual_seed(5);
  const torch::Tensor images = torch::randn({batch, 3, side, side}),
                      masks = random_labels({batch, side, side}, classes).to(torch::kUInt8);
  const auto image = made.add({"image", DType::f32, {3, side, side}}).values<float>();
  const auto mask = made.add({"mask", DType::u8, {side, side}}).values<uint8_t>();
  std::copy_n(images.const_data_ptr<float>(), image.size(), image.begin());
  std::copy_n(masks.const_data_ptr<uint8_t>(), mask.size(), mask.begin());
  std::vector<data::Batch> batches = {made};
  task.prepare(batches, {});
  Inputs inputs;
  inputs.streams.push_back(to_device(batches[0], "train", torch::kCPU, Precision::fp32));
  return inputs;
}

TEST(Segment, WeightsAreTheDivisorsOfTheirNames) {
  for (const auto& [settings, want] :
       std::vector<std::pair<std::string, std::function<double(const torch::Tensor&)>>>{
           {"divisor = \"all\"", [](const torch::Tensor& mask) { return static_cast<double>(mask.numel()); }},
           {"divisor = \"labelled\"",
            [](const torch::Tensor& mask) { return (mask != 255).sum().item<double>(); }},
           {"class_weights = [1.0, 2.0, 3.0]", [](const torch::Tensor& mask) {
              return (mask == 0).sum().item<double>() + 2 * (mask == 1).sum().item<double>() +
                     3 * (mask == 2).sum().item<double>();
            }}}) {
    const auto task = segment_kind().make(
        setup_of("swin", kTinySwin, "classes = 3\nchannels = 8\nauxiliary_channels = 8\n" + settings, 32));
    const Inputs inputs = random_inputs(*task, 2, 32, 3);
    EXPECT_DOUBLE_EQ(task->weight(inputs), want(inputs.at("mask"))) << settings;
  }
}

TEST(Segment, EveryParameterThatIsReadLearns) {
  for (const char* extra : {"head = \"uper\"", "head = \"fcn\"", "head = \"linear\"", "hard_pixels = 10"}) {
    const auto task = segment_kind().make(setup_of(
        "vit", "image_size = 32\npatch_size = 8\ndim = 16\ndepth = 4\nheads = 2",
        std::string("classes = 3\nchannels = 8\nauxiliary_channels = 8\ndropout = 0.0\n") + extra, 32));
    const Inputs inputs = random_inputs(*task, 2, 32, 3);
    set_training(task->parts(), true);
    const Loss loss = task->loss(inputs, {}, Collective::alone());
    EXPECT_TRUE(loss.sum.isfinite().item<bool>());
    loss.sum.backward();
    for (const auto& [name, parameter] : named_parameters(task->parts())) {
      const bool read = name.starts_with("decode_head.") || name.starts_with("auxiliary_head.") ||
                        name.starts_with("blocks.0");
      EXPECT_TRUE(!read || parameter.grad().defined()) << extra << ": " << name;
    }
  }
}

TEST(Segment, GraphsOfWindowsGiveTheSameMasks) {
  for (const char* model : {"vit", "swin"}) {
    const std::string settings = std::string(model) == "swin"
                                     ? kTinySwin
                                     : "image_size = 32\npatch_size = 8\ndim = 16\ndepth = 4\nheads = 2";
    const auto task = segment_kind().make(
        setup_of(model, settings, "classes = 3\nchannels = 8\nauxiliary_channels = 8", 32));
    set_training(task->parts(), false);
    const torch::NoGradGuard no_grad;
    auto& segmenter = dynamic_cast<Segmenter&>(*task);
    SegmentInference how = segmenter.inference();
    how.slide = true, how.crop = 32, how.stride = 16, how.scale = {};
    Image picture(80, 48, 3);
    for (size_t i = 0; i < picture.pixels.size(); ++i) picture.pixels[i] = static_cast<uint8_t>(i * i % 251);
    const Image mask = segmenter.segment(picture, how);
    const models::RecordedGraphs graphs;
    for (int call = 0; call < 4; ++call)
      EXPECT_EQ(segmenter.segment(picture, how).pixels, mask.pixels) << model << ", call " << call;
    EXPECT_EQ(models::RecordedGraphs::counts().captures, 1) << model;
    EXPECT_EQ(models::RecordedGraphs::counts().replays, 6) << model << ": two batches of windows a picture";
  }
}

TEST(Segment, WrongSettingsAreUsageErrors) {
  const auto message = [](const std::string& task, const char* model = "swin") -> std::string {
    try {
      segment_kind().make(
          setup_of(model, std::string(model) == "swin" ? kTinySwin : "", "classes = 3\n" + task, 32));
    } catch (const Error& error) {
      return error.kind == ErrorKind::usage ? error.what() : "";
    }
    return "";
  };
  EXPECT_NE(message("blocks = [0, 9]").find("4 stages"), std::string::npos);
  EXPECT_NE(message("auxiliary_index = 4").find("task.auxiliary_index"), std::string::npos);
  EXPECT_NE(message("class_weights = [1.0]").find("3 classes"), std::string::npos);
  EXPECT_NE(message("factors = [4, 2]", "vit").find("task.factors"), std::string::npos);
  EXPECT_NE(message("scale = [512]").find("task.scale"), std::string::npos);
  EXPECT_NE(message("ratio = [2.0, 0.5]").find("task.ratio"), std::string::npos);
  EXPECT_NE(message("test_crop = 32\ntest_stride = 40").find("windows"), std::string::npos);
}

// VanillaNet's stages begin where a block pools.
TEST(BackboneMaps, WidthsAndStridesAreThoseOfTheModel) {
  using models::table;
  const torch::NoGradGuard no_grad;
  const auto numbers = [](std::initializer_list<int64_t> list) {
    return Value::Array(list.begin(), list.end());
  };
  const std::pair<const char*, Value> pyramids[] = {
      {"vanillanet", table({{"dims", numbers({8, 12, 16})}, {"strides", numbers({2, 1})}})},
      {"vanillanet", table({{"dims", numbers({8, 12, 16, 20, 24})}, {"strides", numbers({1, 2, 1, 4})}})},
      {"convnext", table({{"dims", numbers({8, 12, 16})}, {"depths", numbers({1, 2, 1})}})},
      {"resnet", table({{"dims", numbers({8, 12, 16})}, {"depths", numbers({1, 1, 1})}})}};
  for (const auto& [name, settings] : pyramids) {
    Value all = settings;
    all.set("image_size", 64);
    const models::ModelSpec spec = models::resolve_model(name, all);
    const auto backbone = models::build_backbone(spec, 1);
    backbone->eval();
    const BackboneMaps maps = maps_of(spec, {}, backbone->block_count());
    const auto features = backbone->features(torch::randn({1, 3, 64, 64}), maps.blocks, {});
    ASSERT_EQ(features.size(), maps.widths.size()) << name;
    for (size_t i = 0; i < features.size(); ++i) {
      const int64_t side = 64 / maps.strides[i];
      EXPECT_EQ(features[i].sizes(), (std::vector<int64_t>{1, maps.widths[i], side, side}))
          << name << " " << i;
    }
    EXPECT_TRUE(maps.unit == 1 || maps.unit == maps.strides.back());
  }
}

// Without task.blocks: every fourth of the blocks, and the first ones of a shallow backbone more than once.
TEST(BackboneMaps, ShallowBackbonesGiveFourMaps) {
  const auto blocks = [](int64_t depth) {
    const models::ModelSpec spec = models::resolve_model(
        "vit", models::table({{"dim", 16}, {"heads", 2}, {"depth", depth}, {"image_size", 32}}));
    return maps_of(spec, {}, depth).blocks;
  };
  EXPECT_EQ(blocks(2), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(blocks(3), (std::vector<int64_t>{0, 0, 1, 2}));
  EXPECT_EQ(blocks(12), (std::vector<int64_t>{2, 5, 8, 11}));
}

}  // namespace
}  // namespace tessera::tasks
