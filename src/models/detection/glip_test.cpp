// GLIP: fusion, scores of classes, the assignment of cells to objects, and that a head learns two objects.
#include "models/detection/glip_head.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/base/pyramid_neck.h"
#include "nn/boxes.h"

namespace tessera::models::glip_test {
namespace {

using torch::Tensor;

TEST(GlipFusion, PaddingOfTheTextChangesNoCell) {
  torch::manual_seed(1);
  GlipFusion fusion(8, 6, 12, 3);
  fusion.initialise(1);
  fusion.to(torch::kFloat64);
  for (Tensor& parameter : fusion.parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.normal_();
  }
  const Tensor cells = torch::randn({2, 5, 8}, torch::kFloat64),
               tokens = torch::randn({2, 4, 6}, torch::kFloat64);
  Tensor mask = torch::ones({2, 4}, torch::kBool);
  mask.select(1, 3).fill_(false);
  Tensor other = tokens.clone();
  other.select(1, 3).fill_(3);
  EXPECT_TRUE(
      torch::allclose(fusion.forward(cells, tokens, mask).first, fusion.forward(cells, other, mask).first));
  EXPECT_FALSE(
      torch::allclose(fusion.forward(cells, tokens, {}).first, fusion.forward(cells, other, {}).first));
  EXPECT_TRUE(torch::allclose(fusion.forward(cells, tokens, mask).first,
                              fusion.forward(cells, tokens.slice(1, 0, 3), {}).first));
}

TEST(TokenFocalLoss, IsCrossEntropyWithoutFocusAndWeights) {
  torch::manual_seed(2);
  const Tensor scores = torch::randn({2, 3, 4}, torch::kFloat64),
               targets = torch::randint(0, 2, {2, 3, 4}).to(torch::kFloat64);
  const double expected =
      at::binary_cross_entropy_with_logits(scores, targets, {}, {}, at::Reduction::Sum).item<double>();
  EXPECT_NEAR(token_focal_loss(TokenLoss::binary, scores, targets, {}, -1, 0).item<double>(), expected, 1e-9);
  EXPECT_NEAR(2 * token_focal_loss(TokenLoss::binary_v2, scores, targets, {}, 0.5, 0).item<double>(),
              expected,
              1e-6);  // 1e-8 inside its logarithm
  Tensor mask = torch::ones({2, 4});
  mask.select(1, 1).fill_(0);
  const Tensor kept = torch::tensor({0, 2, 3});
  EXPECT_NEAR(token_focal_loss(TokenLoss::binary, scores, targets, mask, 0.25, 2).item<double>(),
              token_focal_loss(TokenLoss::binary, scores.index_select(2, kept), targets.index_select(2, kept),
                               {}, 0.25, 2)
                  .item<double>(),
              1e-9);
  EXPECT_THROW(token_focal_loss(TokenLoss::binary, scores, targets.slice(2, 0, 3), {}, 0.25, 2), Error);
}

TEST(ClassProbabilities, VoteOverTheTokensOfAName) {
  const Tensor scores = torch::tensor({0.5, 0.75, 0.25}, torch::kFloat64);
  const TokenSpans classes = {{0}, {1, 2}};
  EXPECT_TRUE(torch::allclose(class_probabilities(scores, classes, TokenVote::mean),
                              torch::tensor({0.5, 0.5}, torch::kFloat64)));
  EXPECT_TRUE(torch::allclose(class_probabilities(scores, classes, TokenVote::most),
                              torch::tensor({0.5, 0.75}, torch::kFloat64)));
}

TEST(AtssMatches, CellsOfAnObjectAreWithinIt) {
  std::vector<Tensor> levels;
  for (const int64_t stride : {8, 16}) {
    const AnchorOptions options{.sizes = {{4.0 * static_cast<double>(stride)}}, .ratios = {1}, .offset = 0.5};
    levels.push_back(options.anchors(0, {64 / stride, 64 / stride}, {stride, stride}, torch::kFloat64));
  }
  const Tensor truths =
      torch::tensor({4.0, 4.0, 36.0, 36.0, 40.0, 8.0, 60.0, 60.0}, torch::kFloat64).view({2, 4});
  const std::vector<int64_t> owner = atss_matches(levels, truths, 9);
  const Tensor anchors = torch::cat(levels);
  ASSERT_EQ(std::ssize(owner), anchors.size(0));
  std::vector<int64_t> count(2, 0);
  for (size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] < 0) continue;
    ++count[static_cast<size_t>(owner[i])];
    const Tensor anchor = anchors[static_cast<int64_t>(i)], box = truths[owner[i]];
    const Tensor centre = (anchor.slice(0, 0, 2) + anchor.slice(0, 2, 4)) / 2;
    EXPECT_TRUE((centre > box.slice(0, 0, 2)).all().item<bool>());
    EXPECT_TRUE((centre < box.slice(0, 2, 4)).all().item<bool>());
  }
  for (const int64_t cells : count) {
    EXPECT_GE(cells, 1);
    EXPECT_LE(cells, 18);
  }
  // The cell around an object's centre is its own.
  EXPECT_EQ(owner[2 * 8 + 2], 0);
  const std::vector<int64_t> none = atss_matches(levels, torch::zeros({0, 4}, torch::kFloat64), 9);
  EXPECT_EQ(std::count(none.begin(), none.end(), Matches::kBackground), anchors.size(0));
}

// The definition, one object and candidate at a time (Zhang et al. 2020, algorithm 1).
std::vector<int64_t> defined_matches(const std::vector<Tensor>& levels, const Tensor& truths,
                                     int64_t nearest) {
  const Tensor all = torch::cat(levels);
  const auto number = [](const Tensor& boxes, int64_t row, int64_t side) {
    return boxes[row][side].item<double>();
  };
  std::vector<int64_t> owner(static_cast<size_t>(all.size(0)), Matches::kBackground);
  std::vector<double> best(owner.size(), -1);
  const Tensor overlaps = nn::pairwise_iou(all, truths);
  for (int64_t truth = 0; truth < truths.size(0); ++truth) {
    std::vector<int64_t> candidates;
    int64_t first = 0;
    for (const Tensor& level : levels) {
      std::vector<std::pair<double, int64_t>> distances;
      for (int64_t i = 0; i < level.size(0); ++i) {
        const double x = number(level, i, 0) + number(level, i, 2) - number(truths, truth, 0) -
                         number(truths, truth, 2),
                     y = number(level, i, 1) + number(level, i, 3) - number(truths, truth, 1) -
                         number(truths, truth, 3);
        distances.emplace_back(std::hypot(x, y), first + i);
      }
      std::sort(distances.begin(), distances.end());
      for (int64_t i = 0; i < std::min(nearest, level.size(0)); ++i)
        candidates.push_back(distances[static_cast<size_t>(i)].second);
      first += level.size(0);
    }
    const Tensor own = overlaps.select(1, truth).index_select(0, torch::tensor(candidates));
    const double limit = own.mean().item<double>() + own.std().item<double>();
    for (const int64_t i : candidates) {
      const double x = (number(all, i, 0) + number(all, i, 2)) / 2,
                   y = (number(all, i, 1) + number(all, i, 3)) / 2,
                   overlap = overlaps[i][truth].item<double>();
      const double inside = std::min({x - number(truths, truth, 0), y - number(truths, truth, 1),
                                      number(truths, truth, 2) - x, number(truths, truth, 3) - y});
      if (overlap < limit || inside <= 0.01 || overlap <= best[static_cast<size_t>(i)]) continue;
      best[static_cast<size_t>(i)] = overlap, owner[static_cast<size_t>(i)] = truth;
    }
  }
  return owner;
}

// Random objects, also overlapping ones; irregular anchors, so that no distance or overlap has an equal.
TEST(AtssMatches, AreThoseOfTheDefinition) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    torch::manual_seed(seed);
    const auto boxes = [](int64_t count, double least, double most) {
      const Tensor centre = torch::rand({count, 2}, torch::kFloat64) * 64,
                   side = least + torch::rand({count, 2}, torch::kFloat64) * (most - least);
      return torch::cat({centre - side / 2, centre + side / 2}, 1);
    };
    const std::vector<Tensor> levels = {boxes(64, 14, 18), boxes(16, 30, 34), boxes(4, 60, 68)};
    const Tensor truths = boxes(6, 10, 50);
    const std::vector<int64_t> owner = atss_matches(levels, truths, 9);
    EXPECT_EQ(owner, defined_matches(levels, truths, 9)) << seed;
    EXPECT_LT(std::count(owner.begin(), owner.end(), Matches::kBackground), std::ssize(owner)) << seed;
  }
}

// --- the head

class Heads : public testing::Test {
 protected:
  Heads() {
    torch::manual_seed(6);
    const SimplePyramidOptions pyramid{.in = 8, .stride = 8, .width = 16, .scales = {1, 0.5}};
    head_ = std::make_shared<GlipHead>(GlipOptions{.width = 16,
                                                   .text_width = 12,
                                                   .inner = 16,
                                                   .heads = 2,
                                                   .text_heads = 2,
                                                   .layers = 1,
                                                   .anchor_side = 4},
                                       std::make_shared<SimplePyramid>(pyramid));
    head_->initialise(3);
    maps_ = {torch::randn({2, 8, 8, 8})};
    tokens_ = torch::randn({2, 6, 12});
    mask_ = torch::ones({2, 6}, torch::kBool);
    mask_.select(1, 5).fill_(false);
    truths_ = {{torch::tensor({{6.F, 6.F, 34.F, 34.F}, {36.F, 20.F, 60.F, 50.F}}), torch::tensor({0, 1})},
               {torch::tensor({{20.F, 30.F, 50.F, 60.F}}), torch::tensor({1})}};
  }
  GlipHead::Losses losses() {
    return head_->losses(head_->forward(maps_, tokens_, mask_), truths_, classes_, mask_);
  }
  static Tensor total(const GlipHead::Losses& part) {
    return part.tokens / part.positives + part.boxes / part.weight + part.centredness / part.positives;
  }

  std::shared_ptr<GlipHead> head_;
  std::vector<Tensor> maps_;
  Tensor tokens_, mask_;
  std::vector<GlipTruth> truths_;
  const TokenSpans classes_ = {{1}, {2, 3}};
};

TEST_F(Heads, LearnToFindTheirObjects) {
  torch::optim::Adam optimiser(head_->parameters(), torch::optim::AdamOptions(3e-3));
  const double before = total(losses()).item<double>();
  for (int step = 0; step < 150; ++step) {
    optimiser.zero_grad();
    total(losses()).backward();
    optimiser.step();
  }
  EXPECT_LT(total(losses()).item<double>(), before / 4);
  const torch::NoGradGuard no_grad;
  const GlipHead::Output output = head_->forward(maps_, tokens_, mask_);
  for (int64_t image = 0; image < 2; ++image) {
    const GlipTruth& truth = truths_[static_cast<size_t>(image)];
    const GlipHead::Found found = head_->detect(output, image, classes_, {64, 64}, 0.3, 0.6, 10);
    ASSERT_GE(found.boxes.size(0), truth.boxes.size(0)) << image;
    const Tensor overlaps = nn::pairwise_iou(truth.boxes.to(torch::kFloat64), found.boxes);
    for (int64_t i = 0; i < truth.boxes.size(0); ++i) {
      const auto best = overlaps[i].argmax().item<int64_t>();
      EXPECT_GT(overlaps[i][best].item<double>(), 0.6) << image << " " << i;
      EXPECT_EQ(found.labels[best].item<int64_t>(), truth.labels[i].item<int64_t>()) << image << " " << i;
    }
  }
}

// Images add up: the loss of a batch is the sum of those of its images.
TEST_F(Heads, LossesAreSumsOverImages) {
  const torch::NoGradGuard no_grad;
  const GlipHead::Losses whole = losses();
  GlipHead::Losses sum{torch::zeros({}), torch::zeros({}), torch::zeros({})};
  for (int64_t image = 0; image < 2; ++image) {
    const Tensor mask = mask_.slice(0, image, image + 1);
    const GlipHead::Output output =
        head_->forward({maps_[0].slice(0, image, image + 1)}, tokens_.slice(0, image, image + 1), mask);
    const GlipHead::Losses one = head_->losses(output, {truths_[static_cast<size_t>(image)]}, classes_, mask);
    sum.tokens += one.tokens, sum.boxes += one.boxes, sum.centredness += one.centredness;
    sum.positives += one.positives, sum.weight += one.weight;
  }
  EXPECT_EQ(whole.positives, sum.positives);
  EXPECT_NEAR(whole.weight, sum.weight, 1e-9);
  for (const auto& [all, parts] : {std::pair(whole.tokens, sum.tokens), std::pair(whole.boxes, sum.boxes),
                                   std::pair(whole.centredness, sum.centredness)})
    EXPECT_NEAR(all.item<double>(), parts.item<double>(), 1e-4 * std::abs(all.item<double>()));
}

}  // namespace
}  // namespace tessera::models::glip_test
