#include "tasks/pairs/pair_loss.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <mutex>
#include <string>

#include "core/error.h"
#include "models/pairs/two_tower.h"
#include "ops/torch.h"
#include "tasks/base/losses.h"
#include "tasks/base/ring_testing.h"
#include "tasks/base/zero_shot.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

struct Case {
  Tensor images, texts, scale = torch::full({}, 9.0, torch::kFloat64),
                        bias = torch::full({}, -3.0, torch::kFloat64);

  explicit Case(int64_t batch) {
    torch::manual_seed(5);
    images = models::normalised_rows(torch::randn({batch, 6}, torch::kFloat64));
    texts = models::normalised_rows(torch::randn({batch, 6}, torch::kFloat64));
    for (Tensor* leaf : {&images, &texts, &scale, &bias}) leaf->requires_grad_();
  }
  std::vector<Tensor> gradients(const Tensor& loss) const {
    return torch::autograd::grad({loss}, {images, texts, scale}, {}, /*retain_graph=*/true, false,
                                 /*allow_unused=*/true);
  }
};

Tensor places(int64_t count) { return torch::arange(count, torch::kInt64); }

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double bound = 1e-12) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].defined() && b[i].defined()) << i;
    EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), bound) << i;
  }
}

TEST(PairLoss, AnyChunkGivesTheFormula) {
  const Case c(7);
  const Tensor want = cross_entropy(c.scale * c.images.mm(c.texts.t()), places(7), {.sum = true});
  const std::vector<Tensor> gradients = c.gradients(want);
  for (const int64_t chunk : {1, 2, 7, 100}) {
    const PairLoss got = softmax_pairs(c.images, c.texts, c.scale, places(7), {.chunk = chunk});
    EXPECT_NEAR(got.sum.item<double>(), want.item<double>(), 1e-12);
    expect_same(c.gradients(got.sum), gradients);
  }
}

TEST(PairLoss, SigmoidsOfAllPairs) {
  const Case c(5);
  const Tensor signs = 2 * torch::eye(5, torch::kFloat64) - 1;
  const Tensor want = -torch::log_sigmoid(signs * (c.scale * c.images.mm(c.texts.t()) + c.bias)).sum();
  const std::vector<Tensor> gradients = c.gradients(want);
  for (const int64_t chunk : {1, 3, 50})
    expect_same(
        c.gradients(sigmoid_pairs(c.images, c.texts, c.scale, c.bias, places(5), {.chunk = chunk}).sum),
        gradients);
}

// Each of several processes has some rows of the queries, and all keys.
TEST(PairLoss, SharesOfProcessesAddUp) {
  const Case c(8);
  const std::vector<Tensor> whole = c.gradients(softmax_pairs(c.images, c.texts, c.scale, places(8)).sum);
  for (const int64_t processes : {2, 3, 4}) {
    Tensor sum = torch::zeros({}, torch::kFloat64);
    for (int64_t p = 0; p < processes; ++p) {
      const int64_t first = 8 * p / processes, last = 8 * (p + 1) / processes;
      sum = sum +
            softmax_pairs(c.images.slice(0, first, last), c.texts, c.scale, places(8).slice(0, first, last))
                .sum;
    }
    expect_same(c.gradients(sum), whole);
  }
}

Tensor padded(const Tensor& tokens, const std::vector<int64_t>& lengths) {
  const Tensor places = torch::arange(tokens.size(1)).unsqueeze(0);
  const Tensor seen = places < torch::tensor(lengths).unsqueeze(1);
  return models::normalised_rows(tokens) * seen.unsqueeze(2).to(tokens.scalar_type());
}

// Loss and gradients over all processes of a ring; each has only its own rows of images and texts.
struct Shares {
  double loss = 0, right = 0;
  std::vector<Tensor> images, texts;  // gradients by rank
  Tensor scale = torch::zeros({}, torch::kFloat64), bias = torch::zeros({}, torch::kFloat64);
  std::vector<Tensor> gradients() const { return {torch::cat(images), torch::cat(texts), scale, bias}; }
};

Shares in_a_ring(int64_t size, bool sigmoid, const Tensor& images, const Tensor& texts, const Tensor& groups,
                 EqualPairs equal, int64_t chunk) {
  Shares all;
  all.images.resize(static_cast<size_t>(size)), all.texts.resize(static_cast<size_t>(size));
  std::mutex mutex;
  RingOfThreads::run(size, [&](Collective& others) {
    const int64_t batch = images.size(0), rank = others.rank(), first = batch * rank / size,
                  last = batch * (rank + 1) / size;
    const Tensor u = images.slice(0, first, last).clone().requires_grad_(),
                 v = texts.slice(0, first, last).clone().requires_grad_(),
                 scale = torch::full({}, 9.0, torch::kFloat64).requires_grad_(),
                 bias = torch::full({}, -3.0, torch::kFloat64).requires_grad_();
    const Tensor own_groups = groups.slice(0, first, last);
    const PairOptions options{.equal = equal,
                              .query_groups = own_groups,
                              .key_groups = own_groups,
                              .chunk = chunk,
                              .others = &others};
    const Tensor own = places(last - first);
    const PairLoss by_image =
        sigmoid ? sigmoid_pairs(u, v, scale, bias, own, options) : softmax_pairs(u, v, scale, own, options);
    Tensor loss = by_image.sum;
    if (!sigmoid) loss = loss + 2 * softmax_pairs(v, u, scale, own, options).sum;
    const auto gradients = torch::autograd::grad({loss}, {u, v, scale, bias}, {}, {}, false,
                                                 /*allow_unused=*/true);
    const std::lock_guard lock(mutex);
    all.loss += loss.item<double>(), all.right += by_image.right.item<double>();
    all.images[static_cast<size_t>(rank)] = gradients[0], all.texts[static_cast<size_t>(rank)] = gradients[1];
    all.scale = all.scale + gradients[2];
    if (sigmoid) all.bias = all.bias + gradients[3];
  });
  return all;
}

TEST(PairLoss, ARingOfProcessesGivesTheLossOfOne) {
  const Case c(11);
  const Tensor images = c.images.detach(), texts = c.texts.detach();
  const Tensor groups = torch::arange(11, torch::kFloat64).remainder(4);
  for (const bool sigmoid : {false, true})
    for (const EqualPairs equal : {EqualPairs::negatives, EqualPairs::ignored, EqualPairs::positives}) {
      SCOPED_TRACE(testing::Message() << "sigmoid " << sigmoid << ", equal " << static_cast<int>(equal));
      const Shares whole = in_a_ring(1, sigmoid, images, texts, groups, equal, 100);
      if (equal == EqualPairs::negatives && !sigmoid) {
        const Tensor formula = cross_entropy(9 * images.mm(texts.t()), places(11), {.sum = true}) +
                               2 * cross_entropy(9 * texts.mm(images.t()), places(11), {.sum = true});
        EXPECT_NEAR(whole.loss, formula.item<double>(), 1e-12);
      }
      for (const int64_t size : {1, 2, 3, 4})
        for (const int64_t chunk : {1, 2, 100}) {
          const Shares got = in_a_ring(size, sigmoid, images, texts, groups, equal, chunk);
          EXPECT_NEAR(got.loss, whole.loss, 1e-12);
          EXPECT_EQ(got.right, whole.right);
          expect_same(got.gradients(), whole.gradients());
        }
    }
}

TEST(PairLoss, ARingTakesTokensAndProcessesWithoutRows) {
  torch::manual_seed(8);
  const Tensor images = models::normalised_rows(torch::randn({6, 4, 7}, torch::kFloat64)),
               texts = padded(torch::randn({6, 5, 7}, torch::kFloat64), {3, 5, 1, 2, 5, 4});
  const auto same = [](const Tensor& u, const Tensor& v, int64_t size, bool sigmoid) {
    const Tensor groups = places(u.size(0));
    const Shares whole = in_a_ring(1, sigmoid, u, v, groups, EqualPairs::negatives, 100),
                 got = in_a_ring(size, sigmoid, u, v, groups, EqualPairs::negatives, 2);
    EXPECT_NEAR(got.loss, whole.loss, 1e-12);
    expect_same(got.gradients(), whole.gradients());
  };
  for (const bool sigmoid : {false, true}) {
    for (const int64_t size : {2, 3, 4}) same(images, texts, size, sigmoid);
    same(images.select(1, 0).slice(0, 0, 3), texts.select(1, 0).slice(0, 0, 3), 4, sigmoid);
  }
}

// A frozen tower's vectors travel without gradients.
TEST(PairLoss, KeysThatLearnNothingGoRoundAlone) {
  const Case c(7);
  const Tensor images = c.images.detach(), texts = c.texts.detach();
  const auto by_text = [&](int64_t size) {
    std::vector<Tensor> gradients(static_cast<size_t>(size));
    RingOfThreads::run(size, [&](Collective& others) {
      const int64_t first = 7 * others.rank() / size, last = 7 * (others.rank() + 1) / size;
      const Tensor v = texts.slice(0, first, last).clone().requires_grad_();
      const PairOptions options{.chunk = 2, .others = &others};
      softmax_pairs(v, images.slice(0, first, last), c.scale.detach(), places(last - first), options)
          .sum.backward();
      gradients[static_cast<size_t>(others.rank())] = v.grad();
    });
    return torch::cat(gradients);
  };
  for (const int64_t size : {2, 3}) expect_same({by_text(size)}, {by_text(1)});
}

// Among equal keys the first of the batch wins, on any process.
TEST(PairLoss, OfEqualKeysTheFirstIsFoundInAnyRing) {
  const Tensor images = torch::eye(4, torch::kFloat64).index_select(0, torch::tensor({0, 1, 0, 2, 0, 1}));
  for (const int64_t size : {1, 2, 3, 4, 6})
    EXPECT_EQ(in_a_ring(size, false, images, images, places(6), EqualPairs::negatives, 2).right, 3) << size;
}

TEST(PairLoss, EqualCaptionsAreIgnoredOrBelongTogether) {
  const Case c(4);
  const Tensor groups = torch::tensor({3.0, 1.0, 3.0, 2.0}, torch::kFloat64);
  const auto with = [&](EqualPairs equal) {
    return PairOptions{.equal = equal, .query_groups = groups, .key_groups = groups, .chunk = 3};
  };
  const Tensor logits = c.scale * c.images.mm(c.texts.t());
  const Tensor equal = groups.unsqueeze(1).eq(groups.unsqueeze(0));
  const Tensor others = equal.logical_and(torch::eye(4, torch::kBool).logical_not());
  const Tensor ignored = cross_entropy(logits.masked_fill(others, -INFINITY), places(4), {.sum = true});
  expect_same(
      c.gradients(softmax_pairs(c.images, c.texts, c.scale, places(4), with(EqualPairs::ignored)).sum),
      c.gradients(ignored));
  const Tensor share = equal.to(torch::kFloat64) / equal.sum(1, true);
  const Tensor together = -(share * logits.log_softmax(1)).sum();
  expect_same(
      c.gradients(softmax_pairs(c.images, c.texts, c.scale, places(4), with(EqualPairs::positives)).sum),
      c.gradients(together));
  const Tensor pairs = torch::where(equal, logits + c.bias, -(logits + c.bias));
  expect_same(
      c.gradients(
          sigmoid_pairs(c.images, c.texts, c.scale, c.bias, places(4), with(EqualPairs::positives)).sum),
      c.gradients(-torch::log_sigmoid(pairs).sum()));
  expect_same(
      c.gradients(
          sigmoid_pairs(c.images, c.texts, c.scale, c.bias, places(4), with(EqualPairs::ignored)).sum),
      c.gradients(-torch::log_sigmoid(pairs.masked_fill(others, INFINITY)).sum()));
}

// FILIP's similarities by the formula, with padding of different lengths (Yao et al. 2022, eq. 3 to 5).
Tensor token_similarities(const Tensor& queries, const Tensor& keys, const std::vector<int64_t>& query_tokens,
                          const std::vector<int64_t>& key_tokens) {
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < queries.size(0); ++i) {
    std::vector<Tensor> row;
    for (int64_t j = 0; j < keys.size(0); ++j) {
      const Tensor q = queries[i].slice(0, 0, query_tokens[static_cast<size_t>(i)]),
                   k = keys[j].slice(0, 0, key_tokens[static_cast<size_t>(j)]);
      row.push_back(std::get<0>(q.mm(k.t()).max(1)).mean());
    }
    rows.push_back(torch::stack(row));
  }
  return torch::stack(rows);
}

TEST(PairLoss, TokensAreComparedAsTheFormulaSays) {
  torch::manual_seed(6);
  const std::vector<int64_t> image_tokens(6, 4), text_tokens = {3, 5, 1, 2, 5, 4};
  const Tensor images = torch::randn({6, 4, 7}, torch::kFloat64).requires_grad_(),
               texts = torch::randn({6, 5, 7}, torch::kFloat64).requires_grad_(),
               scale = torch::full({}, 5.0, torch::kFloat64).requires_grad_(),
               bias = torch::full({}, -2.0, torch::kFloat64).requires_grad_();
  const Tensor u = padded(images, image_tokens), v = padded(texts, text_tokens);
  const auto gradients = [&](const Tensor& loss) {
    return torch::autograd::grad({loss}, {images, texts, scale}, {}, /*retain_graph=*/true);
  };
  const Tensor by_image = token_similarities(u, v, image_tokens, text_tokens),
               by_text = token_similarities(v, u, text_tokens, image_tokens);
  const Tensor want = cross_entropy(scale * by_image, places(6), {.sum = true}) +
                      2 * cross_entropy(scale * by_text, places(6), {.sum = true});
  const Tensor signs = 2 * torch::eye(6, torch::kFloat64) - 1;
  const Tensor want_sigmoid = -torch::log_sigmoid(signs * (scale * by_image + bias)).sum();
  for (const int64_t chunk : {1, 4, 100}) {
    const Tensor got = softmax_pairs(u, v, scale, places(6), {.chunk = chunk}).sum +
                       2 * softmax_pairs(v, u, scale, places(6), {.chunk = chunk}).sum;
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-12);
    expect_same(gradients(got), gradients(want));
    const Tensor sigmoid = sigmoid_pairs(u, v, scale, bias, places(6), {.chunk = chunk}).sum;
    EXPECT_NEAR(sigmoid.item<double>(), want_sigmoid.item<double>(), 1e-12);
    expect_same(gradients(sigmoid), gradients(want_sigmoid));
  }
  // Rows of a part of the batch against all, as on one process.
  const Tensor halves = softmax_pairs(u.slice(0, 0, 3), v, scale, places(6).slice(0, 0, 3)).sum +
                        softmax_pairs(u.slice(0, 3), v, scale, places(6).slice(0, 3)).sum;
  expect_same(gradients(halves), gradients(cross_entropy(scale * by_image, places(6), {.sum = true})));
}

// More keys than fit into one block of products.
TEST(PairLoss, BlocksOfKeysGiveTheSameSimilarities) {
  torch::manual_seed(7);
  const Tensor queries = models::normalised_rows(torch::randn({40, 30, 4}, torch::kFloat64)),
               keys = models::normalised_rows(torch::randn({300, 20, 4}, torch::kFloat64));
  const Tensor want =
      std::get<0>(torch::einsum("iad,jbd->ijab", {queries.slice(0, 0, 3), keys.slice(0, 200)}).max(3))
          .mean(2);
  const Tensor got = late_similarities(queries, keys);
  EXPECT_LT((got.slice(0, 0, 3).slice(1, 200) - want).abs().max().item<double>(), 1e-14);
}

// Bytes of resident memory: the peak since the last reset, or the current value.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return -1;
}

TEST(PairLoss, LogitsOfALargeBatchTakeLittleMemory) {
  const int64_t batch = 8192;
  const Tensor images = models::normalised_rows(torch::randn({batch, 32})).requires_grad_(),
               texts = models::normalised_rows(torch::randn({batch, 32})).requires_grad_(),
               scale = torch::full({}, 10.0f).requires_grad_(),
               bias = torch::full({}, -5.0f).requires_grad_();
  const auto both = [&](int64_t rows) {
    const Tensor u = images.slice(0, 0, rows), v = texts.slice(0, 0, rows);
    (softmax_pairs(u, v, scale, places(rows)).sum + sigmoid_pairs(u, v, scale, bias, places(rows)).sum)
        .backward();
  };
  both(256);                             // threads and their workspaces
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // freed memory leaves the process and is not counted
  if (!(std::ofstream("/proc/self/clear_refs") << 5).flush())
    GTEST_SKIP() << "no peak of memory is kept here";
  const int64_t before = status_bytes("VmRSS:");
  both(batch);
  EXPECT_LT(status_bytes("VmHWM:") - before, 64 << 20);  // all logits are 256 MB
}

TEST(PairLoss, CountsQueriesWhoseBestKeyIsTheirOwn) {
  const Tensor rows = torch::eye(6, torch::kFloat64);
  const Tensor scale = torch::full({}, 2.0, torch::kFloat64);
  EXPECT_EQ(softmax_pairs(rows, rows, scale, places(6), {.chunk = 4}).right.item<double>(), 6);
  EXPECT_EQ(softmax_pairs(rows, rows.roll(1, 0), scale, places(6), {.chunk = 4}).right.item<double>(), 0);
}

TEST(ZeroShot, ClassesAreMeansOfTheirPrompts) {
  std::vector<std::string> asked;
  const auto embed = [&](const std::vector<std::string>& texts) {
    asked.insert(asked.end(), texts.begin(), texts.end());
    Tensor rows = torch::zeros({static_cast<int64_t>(texts.size()), 2}, torch::kFloat64);
    for (size_t i = 0; i < texts.size(); ++i)
      rows[static_cast<int64_t>(i)][texts[i].find("cat") == std::string::npos] = 2;
    return rows;
  };
  const Tensor classes = zero_shot_classes({"cat", "dog"}, {"a {}", "{} and {}"}, embed, 3);
  EXPECT_EQ(asked, (std::vector<std::string>{"a cat", "cat and cat", "a dog", "dog and dog"}));
  EXPECT_TRUE(torch::allclose(classes, torch::eye(2, torch::kFloat64)));
  EXPECT_EQ(imagenet_templates().size(), 80u);
}

TEST(ZeroShot, WhatMakesNoSenseIsRefused) {
  const auto embed = [](const std::vector<std::string>& texts) {
    return torch::ones({std::ssize(texts), 2});
  };
  EXPECT_THROW(zero_shot_classes({"cat", "cat"}, {"{}"}, embed), Error);
  EXPECT_THROW(zero_shot_classes({"cat", " "}, {"{}"}, embed), Error);
  EXPECT_THROW(zero_shot_classes({"cat"}, {"a photo"}, embed), Error);
  EXPECT_THROW(zero_shot_classes({}, {"{}"}, embed), Error);
}

}  // namespace
}  // namespace tessera::tasks
