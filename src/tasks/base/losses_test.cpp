#include "tasks/base/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include "ops/torch.h"

#include "core/error.h"

namespace tessera::tasks {
namespace {

torch::Tensor some_logits() {
  torch::manual_seed(3);
  return 2 * torch::randn({6, 5}, torch::kFloat64);
}
torch::Tensor some_labels() { return torch::tensor({0, 4, 2, 2, 1, 3}, torch::kInt64); }
torch::Tensor one_hot() { return torch::one_hot(some_labels(), 5).to(torch::kFloat64); }

void expect_equal(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_NEAR(a.item<double>(), b.item<double>(), 1e-12 * std::abs(b.item<double>()));
}

TEST(Losses, IndexAndOneHotTargetsAgree) {
  expect_equal(soft_cross_entropy(some_logits(), one_hot()), cross_entropy(some_logits(), some_labels()));
  expect_equal(sigmoid_cross_entropy(some_logits(), one_hot()),
               sigmoid_cross_entropy(some_logits(), some_labels()));
}

TEST(Losses, SmoothedLabelsAreASoftTarget) {
  const torch::Tensor smooth = one_hot() * 0.9 + 0.1 / 5;
  expect_equal(cross_entropy(some_logits(), some_labels(), {.label_smoothing = 0.1}),
               soft_cross_entropy(some_logits(), smooth));
  SigmoidOptions options;
  options.label_smoothing = 0.1;
  expect_equal(sigmoid_cross_entropy(some_logits(), some_labels(), options),
               sigmoid_cross_entropy(some_logits(), smooth));
}

TEST(Losses, UniformLogitsCostTheLogarithmOfTheClasses) {
  const torch::Tensor flat = torch::zeros({6, 5}, torch::kFloat64);
  EXPECT_NEAR(cross_entropy(flat, some_labels()).item<double>(), std::log(5.0), 1e-12);
  EXPECT_NEAR(sigmoid_cross_entropy(flat, some_labels()).item<double>(), std::log(2.0), 1e-12);
}

TEST(Losses, IgnoredLabelsDoNotCount) {
  torch::Tensor labels = some_labels();
  labels[1] = -100;
  labels[5] = -100;
  const torch::Tensor kept = torch::tensor({0, 2, 3, 4});
  expect_equal(cross_entropy(some_logits(), labels),
               cross_entropy(some_logits().index_select(0, kept), labels.index_select(0, kept)));
}

TEST(Losses, EqualClassWeightsChangeNothing) {
  const torch::Tensor weights = torch::full({5}, 3.0, torch::kFloat64);
  CrossEntropyOptions options;
  options.class_weights = weights;
  expect_equal(cross_entropy(some_logits(), some_labels(), options),
               cross_entropy(some_logits(), some_labels()));
  expect_equal(soft_cross_entropy(some_logits(), one_hot(), weights),
               3 * soft_cross_entropy(some_logits(), one_hot()));
}

TEST(Losses, SummingClassesMultipliesByTheirNumber) {
  SigmoidOptions options;
  options.sum_classes = true;
  expect_equal(sigmoid_cross_entropy(some_logits(), one_hot(), options),
               5 * sigmoid_cross_entropy(some_logits(), one_hot()));
}

TEST(Losses, AStudentLikeItsTeacherHasNothingToLearn) {
  for (const auto kind : {Distillation::soft, Distillation::batchmean}) {
    torch::Tensor student = some_logits().requires_grad_();
    const torch::Tensor loss = distillation(student, some_logits() + 7, kind, 3);
    EXPECT_NEAR(loss.item<double>(), 0, 1e-12);
    loss.backward();
    EXPECT_LT(student.grad().abs().max().item<double>(), 1e-12);
  }
  expect_equal(distillation(some_logits(), 10 * one_hot(), Distillation::hard),
               cross_entropy(some_logits(), some_labels()));
  expect_equal(distillation(some_logits(), one_hot(), Distillation::batchmean, 2),
               5 * distillation(some_logits(), one_hot(), Distillation::soft, 2));
}

TEST(Losses, HalfPrecisionLogitsAreRaised) {
  const torch::Tensor half = some_logits().to(torch::kBFloat16), same = half.to(torch::kFloat32);
  const torch::Tensor loss = cross_entropy(half, some_labels());
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_EQ(loss.item<float>(), cross_entropy(same, some_labels()).item<float>());
  EXPECT_EQ(sigmoid_cross_entropy(half, some_labels()).item<float>(),
            sigmoid_cross_entropy(same, some_labels()).item<float>());
}

TEST(Losses, WrongShapesAreNamed) {
  try {
    soft_cross_entropy(some_logits(), torch::zeros({6, 4}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "loss: targets have shape [6, 4], must be [6, 5]");
  }
  EXPECT_THROW(cross_entropy(some_logits(), torch::zeros({6})), Error);
  EXPECT_THROW(cross_entropy(torch::zeros({5}), some_labels()), Error);
}

// Only angles and relative lengths of tokens count, so rotations and factors of a head change nothing.
TEST(Losses, SimilaritiesIgnoreRotationsAndScales) {
  torch::manual_seed(5);
  const torch::Tensor tokens = torch::randn({2, 3, 5, 4}, torch::kFloat64);
  const torch::Tensor rotation = std::get<0>(torch::linalg_qr(torch::randn({4, 4}, torch::kFloat64)));
  EXPECT_LT(similarity_distillation({tokens}, {tokens.matmul(rotation) * 7}).item<double>(), 1e-12);
  const torch::Tensor wider = torch::constant_pad_nd(tokens, {0, 2});
  EXPECT_LT(similarity_distillation({tokens}, {wider}).item<double>(), 1e-12);
}

TEST(Losses, SimilaritiesSumDistancesOverLayersAndHeads) {
  // Two tokens: patterns of orthogonal, and of equal vectors. ||I / sqrt(2) - 1 / 2|| = sqrt(2 - sqrt(2)).
  const torch::Tensor orthogonal = torch::eye(2, torch::kFloat64).view({1, 1, 2, 2}),
                      equal = torch::tensor({1.0, 0.0, 1.0, 0.0}, torch::kFloat64).view({1, 1, 2, 2});
  const double distance = std::sqrt(2 - std::sqrt(2.0));
  EXPECT_NEAR(similarity_distillation({orthogonal}, {equal}).item<double>(), distance, 1e-12);
  const torch::Tensor heads = orthogonal.expand({3, 2, 2, 2}), shown = equal.expand({3, 2, 2, 2});
  EXPECT_NEAR(similarity_distillation({heads, heads}, {shown, heads}).item<double>(), 2 * distance, 1e-12);
  EXPECT_THROW(similarity_distillation({heads}, {equal}), Error);
  EXPECT_THROW(similarity_distillation({heads}, {heads, heads}), Error);
}

}  // namespace
}  // namespace tessera::tasks
