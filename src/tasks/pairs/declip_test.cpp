// DeCLIP's bank, texts and losses; nCLIP's terms by hand and over several processes.
#include "tasks/pairs/declip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/text.h"
#include "models/pairs/two_tower.h"
#include "tasks/base/inputs.h"
#include "tasks/base/ring_testing.h"
#include "tasks/pairs/nclip.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

Tensor unit_rows(int64_t rows, int64_t width = 6) {
  return models::normalised_rows(torch::randn({rows, width}, torch::kFloat64));
}

TEST(TextBank, ABatchThatReachesTheEndIsCut) {
  torch::manual_seed(1);
  TextBank bank(7, 6);
  bank.to(torch::kFloat64);
  bank.initialise(3);
  auto buffers = bank.named_buffers();
  const Tensor before = buffers["rows"].clone(), first = unit_rows(5), second = unit_rows(5);
  EXPECT_LT((before.norm(2, {1}) - 1).abs().max().item<double>(), 1e-6);
  bank.add(first);
  EXPECT_TRUE(torch::equal(buffers["rows"].slice(0, 0, 5), first));
  EXPECT_TRUE(torch::equal(buffers["rows"].slice(0, 5), before.slice(0, 5)));
  EXPECT_EQ(buffers["pointer"].item<double>(), 5);
  bank.add(second);
  EXPECT_TRUE(torch::equal(buffers["rows"].slice(0, 5), second.slice(0, 0, 2)));
  EXPECT_EQ(buffers["pointer"].item<double>(), 0);
  // Every row is its own nearest one.
  for (const int64_t chunk : {1, 3, 100})
    EXPECT_LT((bank.nearest(first, chunk) - first).abs().max().item<double>(), 1e-12);
}

// Rows that are equal in bfloat16.
TEST(TextBank, ComparesInFullPrecisionUnderAutocast) {
  torch::manual_seed(4);
  TextBank bank(200, 6);
  const Tensor rows = models::normalised_rows(torch::ones({200, 6}) + 0.01 * torch::randn({200, 6}));
  bank.add(rows);
  const AutocastScope autocast(torch::kCPU, Precision::bf16);
  EXPECT_LT((bank.nearest(rows, 64) - rows).abs().max().item<double>(), 1e-6);
}

// A checkpoint of the published code may hold rows of any length.
TEST(TextBank, LengthsOfRowsDoNotCount) {
  TextBank bank(2, 2);
  bank.to(torch::kFloat64);
  bank.add(torch::tensor({{0.1, 0.0}, {3.0, 3.0}}, torch::kFloat64));
  const Tensor found = bank.nearest(torch::tensor({{1.0, 0.1}}, torch::kFloat64), 1);
  EXPECT_TRUE(torch::equal(found, torch::tensor({{1.0, 0.0}}, torch::kFloat64))) << found;
}

TEST(ChangedText, HasTheWordsOfTheText) {
  const std::string caption = "a red star with stripes at the top left";
  std::vector<std::string> words = split(caption, ' ');
  std::sort(words.begin(), words.end());
  int64_t changes = 0, shorter = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    RandomStream random(1, "test", i);
    const std::string changed = changed_text(caption, 0.2, random);
    std::vector<std::string> kept = split(changed, ' ');
    std::sort(kept.begin(), kept.end());
    EXPECT_FALSE(kept.empty());
    EXPECT_TRUE(std::includes(words.begin(), words.end(), kept.begin(), kept.end())) << changed;
    changes += changed != caption, shorter += kept.size() < words.size();
  }
  EXPECT_GT(changes, 100);
  EXPECT_GT(shorter, 40);
  RandomStream random(1, "test");
  EXPECT_EQ(changed_text("star", 1, random), "star");
  for (uint64_t i = 0; i < 50; ++i) {
    RandomStream all(2, "test", i);
    EXPECT_FALSE(changed_text("two words", 1, all).empty());
  }
}

TEST(MaskTokens, MasksTheShareOfTokensBetweenTheEnds) {
  const TokenMask rule{.ratio = 0.3, .start = 100, .end = 101, .pad = 0, .mask = 102, .vocabulary = 100};
  int64_t chosen = 0, masked = 0, stayed = 0, texts = 400, tokens = 10;
  for (int64_t i = 0; i < texts; ++i) {
    std::vector<int32_t> given = {100}, targets(16);
    for (int32_t k = 0; k < tokens; ++k) given.push_back(k + 1);
    given.push_back(101);
    given.resize(16, 0);
    std::vector<int32_t> ids = given;
    RandomStream random(5, "test", static_cast<uint64_t>(i));
    mask_tokens(rule, random, ids, targets);
    for (size_t k = 0; k < ids.size(); ++k) {
      EXPECT_TRUE(targets[k] == kNotMasked ? ids[k] == given[k] : targets[k] == given[k]);
      if (k == 0 || k > 10) {
        EXPECT_EQ(targets[k], kNotMasked);
      }
      chosen += targets[k] != kNotMasked, masked += ids[k] == 102;
      stayed += targets[k] != kNotMasked && ids[k] == given[k];
    }
  }
  const auto count = static_cast<double>(texts * tokens);
  EXPECT_NEAR(static_cast<double>(chosen) / count, 0.3, 0.03);  // 4 standard deviations of a binomial share
  EXPECT_NEAR(static_cast<double>(masked) / static_cast<double>(chosen), 0.8, 0.05);
  EXPECT_NEAR(static_cast<double>(stayed) / static_cast<double>(chosen), 0.1, 0.04);
}

TEST(Declip, EqualViewsAndFormsGiveTheLossOfOne) {
  torch::manual_seed(2);
  const Tensor images = unit_rows(5), texts = unit_rows(5), scale = torch::full({}, 7.0, torch::kFloat64);
  const DeclipRows rows{.images = {images, images}, .texts = {texts, texts}, .neighbours = {texts, texts}};
  const Tensor own = torch::arange(5, torch::kInt64);
  const double by_image = softmax_pairs(images, texts, scale, own).sum.item<double>(),
               by_text = softmax_pairs(texts, images, scale, own).sum.item<double>();
  EXPECT_NEAR(declip_pairs(rows, scale, {}).sum.item<double>(), (by_image + by_text) / 2, 1e-12);
  EXPECT_NEAR(declip_nearest(rows, scale, {}).item<double>(), by_image, 1e-12);
  EXPECT_NEAR(simsiam_sum(images, images, images, images).item<double>(), -5, 1e-12);
}

TEST(Nclip, CertainAndEvenlySpreadSamplesHaveTheLeastLoss) {
  // Each sample decides for another output: no entropy of samples, the largest of their mean.
  const Tensor scores = torch::eye(4, torch::kFloat64) * 200;
  const NclipTerms terms = nclip_terms(scores, scores, 1, 4, Collective::alone());
  EXPECT_NEAR(terms.cross_entropy.item<double>(), 0, 1e-9);
  EXPECT_NEAR(terms.mean_entropy.item<double>(), 0, 1e-9);
  EXPECT_NEAR(terms.entropy_of_mean.item<double>(), std::log(4.0), 1e-9);
  const NclipTerms even = nclip_terms(scores * 0, scores * 0, 1, 4, Collective::alone());
  EXPECT_NEAR(even.cross_entropy.item<double>() / 4, std::log(4.0), 1e-9);
  EXPECT_NEAR(even.mean_entropy.item<double>() / 4, std::log(4.0), 1e-9);
  EXPECT_NEAR(even.sum({.sharp = 0.5, .spread = 1}, 4).item<double>(), 4 * 0.5 * std::log(4.0), 1e-9);
}

TEST(Nclip, SharesOfProcessesAddUpToTheWhole) {
  torch::manual_seed(3);
  const Tensor images = torch::randn({7, 5}, torch::kFloat64), texts = torch::randn({7, 5}, torch::kFloat64);
  const NclipConfig config{.sharp = 0.5, .spread = 1};
  const double want = nclip_terms(images, texts, 0.5, 7, Collective::alone()).sum(config, 7).item<double>();
  for (const int64_t size : {2, 3}) {
    std::vector<double> sums(static_cast<size_t>(size));
    RingOfThreads::run(size, [&](Collective& others) {
      const int64_t first = 7 * others.rank() / size, last = 7 * (others.rank() + 1) / size;
      sums[static_cast<size_t>(others.rank())] =
          nclip_terms(images.slice(0, first, last), texts.slice(0, first, last), 0.5, 7, others)
              .sum(config, last - first)
              .item<double>();
    });
    EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), want, 1e-12) << size;
  }
}

}  // namespace
}  // namespace tessera::tasks
