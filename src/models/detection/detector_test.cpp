// Properties of detectors; their numbers are goldens of the published codes (tests/parity).
#include "models/detection/detector.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace tessera::models::detector_test {
namespace {

DetectorOptions small(DetectorCode code, bool cascade = false) {
  DetectorOptions o = published(code, 3, cascade);
  o.pooled_levels = 2;
  o.levels.side = 32;
  o.rpn.anchors.sizes = {{8}, {16}, {32}};
  o.rpn.batch = 16;
  o.rpn.before_nms_train = o.rpn.before_nms_test = o.rpn.after_nms_train = o.rpn.after_nms_test = 20;
  o.box.width = 12, o.box.batch = 12, o.box.pool = 3, o.box.most = 8;
  o.mask.convs = 1, o.mask.width = 6, o.mask.pool = 4;
  return o;
}

std::shared_ptr<Detector> detector(DetectorCode code, bool cascade = false) {
  auto built = std::make_shared<Detector>(
      small(code, cascade), std::make_shared<Fpn>(FpnOptions{.in = {5, 7}, .strides = {4, 8}, .width = 6}));
  built->initialise(3);
  return built;
}

std::vector<torch::Tensor> maps(int64_t batch, bool with_gradient = false) {
  torch::manual_seed(4);
  std::vector<torch::Tensor> all{torch::randn({batch, 5, 16, 16}), torch::randn({batch, 7, 8, 8})};
  for (torch::Tensor& map : all) map.requires_grad_(with_gradient);
  return all;
}

constexpr Extent kPadded{64, 64}, kImage{64, 56};

DetectionTarget target(int64_t objects) {
  DetectionTarget t{torch::zeros({objects, 4}), torch::zeros({objects}, torch::kInt64),
                    torch::zeros({objects, kImage.height, kImage.width}, torch::kUInt8)};
  for (int64_t i = 0; i < objects; ++i) {
    t.boxes[i].copy_(torch::tensor({4.0 + 10 * i, 6.0, 20.0 + 10 * i, 30.0}));
    t.labels[i] = i % 3;
    t.masks[i].slice(0, 6, 30).slice(1, 4 + 10 * i, 20 + 10 * i).fill_(1);
  }
  return t;
}

TEST(Detector, EveryParameterLearnsAndImagesMayBeEmpty) {
  for (const DetectorCode code : {DetectorCode::torchvision, DetectorCode::detectron2, DetectorCode::mmdet})
    for (const bool cascade : {false, true})
      for (const int64_t objects : {2, 0}) {
        if (cascade && code == DetectorCode::torchvision) continue;
        const auto model = detector(code, cascade);
        model->train();
        const auto in = maps(2, true);
        const auto losses = model->losses(model->pyramid(in), kPadded, {kImage, kPadded},
                                          {target(objects), target(0)}, choose_at_random(1, 2, 0));
        torch::Tensor total;
        for (const auto& [name, value] : losses) {
          EXPECT_TRUE(value.isfinite().item<bool>()) << name;
          total = total.defined() ? total + value : value;
        }
        total.backward();
        for (const auto& entry : model->named_parameters())
          EXPECT_TRUE(entry.value().grad().defined() || entry.key().starts_with("neck.")) << entry.key();
        EXPECT_GT(in[0].grad().abs().max().item<double>(), 0);
      }
}

TEST(Detector, FindsTheSameAloneAndInABatch) {
  const torch::NoGradGuard no_grad;
  const auto model = detector(DetectorCode::detectron2);
  model->eval();
  model->set_limits(0.0, 8);
  const auto both = maps(2);
  const auto together = model->detect(model->pyramid(both), kPadded, {kImage, kPadded});
  ASSERT_EQ(together.size(), 2u);
  const auto alone =
      model->detect(model->pyramid({both[0].slice(0, 1, 2), both[1].slice(0, 1, 2)}), kPadded, {kPadded});
  EXPECT_GT(alone[0].boxes.size(0), 0);
  EXPECT_TRUE(torch::allclose(alone[0].boxes, together[1].boxes, 1e-4, 1e-4));
  EXPECT_TRUE(torch::equal(alone[0].labels, together[1].labels));
  EXPECT_LE(together[0].boxes.select(1, 2).max().item<double>(), kImage.width);
}

// The losses sample from the anchors that match_anchors returns.
// Anchors of a grid tie often: both ways have to choose the same.
TEST(MatchBoxes, ThereAreThoseOfTheHost) {
  torch::manual_seed(4);
  for (const auto type : {torch::kFloat32, torch::kFloat64})
    for (const int64_t truth_count : {0, 1, 9}) {
      const AnchorOptions options{.sizes = {{16}, {32}}, .ratios = {0.5, 1, 2}};
      const torch::Tensor anchors =
          torch::cat({options.anchors(0, {8, 9}, {8, 8}, type), options.anchors(1, {4, 5}, {16, 16}, type)});
      const torch::Tensor low = (torch::rand({truth_count, 2}) * 7).floor() * 8;
      torch::Tensor truths = torch::cat({low, low + (torch::rand({truth_count, 2}) * 4).ceil() * 8}, 1);
      if (truth_count > 1) truths[1] = truths[0];          // two that are equal
      if (truth_count > 2) truths[2] = torch::zeros({4});  // and an empty one
      for (const auto weak : {WeakMatches::none, WeakMatches::keep_own, WeakMatches::given}) {
        const MatchOptions how{.low = 0.3, .high = 0.5, .weak = weak, .weakest = 0.2};
        const Matches want = match_boxes(anchors, truths, how), got = match_boxes_there(anchors, truths, how);
        EXPECT_EQ(got.truth, want.truth) << truth_count << " truths, weak " << static_cast<int>(weak);
        EXPECT_EQ(got.best, want.best);
      }
    }
}

TEST(Detector, MatchedAnchorsAreThoseThatAreTrained) {
  for (const DetectorCode code : {DetectorCode::torchvision, DetectorCode::detectron2, DetectorCode::mmdet}) {
    DetectorOptions options = small(code);
    options.rpn.batch = 4096, options.rpn.positives = 1;
    const auto model = std::make_shared<Detector>(
        options, std::make_shared<Fpn>(FpnOptions{.in = {5, 7}, .strides = {4, 8}, .width = 6}));
    model->initialise(3);
    model->train();
    DetectorTrace trace;
    const DetectionTarget truths = target(3);
    model->losses(model->pyramid(maps(1)), kPadded, {kImage}, {truths}, choose_first(), &trace);
    const AnchorMatches matched = model->match_anchors(kPadded, kImage, truths.boxes);
    EXPECT_EQ(std::ssize(trace.positive_anchors[0]), matched.anchors.size(0));
    EXPECT_EQ(matched.all, 3 * (16 * 16 + 8 * 8 + 4 * 4));
    ASSERT_EQ(std::ssize(matched.truth), matched.anchors.size(0));
    std::vector<bool> found(3);
    for (const int64_t truth : matched.truth) found.at(static_cast<size_t>(truth)) = true;
    EXPECT_EQ(found, std::vector<bool>(3, true));
    EXPECT_EQ(model->match_anchors(kPadded, kImage, torch::zeros({0, 4})).anchors.size(0), 0);
  }
}

TEST(Detector, DrawsDependOnTheImageAlone) {
  std::vector<int64_t> candidates;
  for (int64_t i = 0; i < 50; ++i) candidates.push_back(2 * i);
  const Chooser whole = choose_at_random(7, 3, 0), later = choose_at_random(7, 3, 4);
  EXPECT_EQ(whole(candidates, 10, 5, "x"), later(candidates, 10, 1, "x"));
  EXPECT_NE(whole(candidates, 10, 5, "x"), whole(candidates, 10, 4, "x"));
  EXPECT_EQ(whole(candidates, 50, 5, "x"), candidates);
}

TEST(BoxCoder, NoBoxesHaveClassesToo) {
  const torch::Tensor none = BoxCoder().decode(torch::zeros({0, 8}), torch::zeros({0, 4}));
  EXPECT_EQ(by_class(none).sizes().vec(), (std::vector<int64_t>{0, 2, 4}));
}

TEST(Detector, RefusesMapsThatDoNotHalve) {
  EXPECT_THROW(Fpn(FpnOptions{.in = {4, 4}, .strides = {4, 16}}), Error);
  DetectorOptions options = small(DetectorCode::detectron2);
  options.rpn.anchors.sizes = {{8}, {16}};
  EXPECT_THROW(Detector(options, std::make_shared<Fpn>(FpnOptions{.in = {5, 7}, .strides = {4, 8}})), Error);
}

}  // namespace
}  // namespace tessera::models::detector_test
