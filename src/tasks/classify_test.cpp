#include "tasks/classify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kClasses = 3;

// A picture of one colour; its red says the class (times 40), several classes are the bits of its green.
class Colours final : public data::Source {
 public:
  Colours(int64_t size, bool multi) : size_(size), multi_(multi) {}
  int64_t size() const override { return size_; }
  data::RawSample read(int64_t index) const override {
    Image image(4, 4);
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      image.pixels[i] = static_cast<uint8_t>(40 * (index % kClasses));
      image.pixels[i + 1] = static_cast<uint8_t>(index % 8);
    }
    return {"colour " + std::to_string(index), image};
  }
  int64_t label(int64_t index) const override { return multi_ ? -1 : index % kClasses; }
  std::vector<int64_t> labels(int64_t index) const override {
    if (!multi_) return {label(index)};
    std::vector<int64_t> out;
    for (int64_t c = 0; c < kClasses; ++c)
      if (index % 8 >> c & 1) out.push_back(c);
    return out;
  }
  bool multi_label() const override { return multi_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  uint64_t fingerprint() const override { return 1; }
  std::string describe() const override { return "colours"; }

 private:
  int64_t size_;
  bool multi_;
  std::vector<std::string> names_ = {"a", "b", "c"};
};

// Reads the class off the colour, but takes every class for `wrong` where that is set.
class Reader final : public models::Backbone {
 public:
  explicit Reader(bool multi, int64_t wrong = -1) : multi_(multi), wrong_(wrong) {}
  torch::Tensor forward(const torch::Tensor& images, const models::Context&) override {
    const torch::Tensor pixels =
        images.index({torch::indexing::Slice(), torch::indexing::Slice(), 0, 0}) * 255;
    if (multi_) {
      const torch::Tensor bits = pixels.select(1, 1).round().to(torch::kInt64);
      return torch::stack({bits.bitwise_and(1), bits.bitwise_and(2), bits.bitwise_and(4)}, 1)
                     .gt(0)
                     .to(images.dtype()) *
                 8 -
             4;
    }
    const torch::Tensor label = (pixels.select(1, 0) / 40).round().to(torch::kInt64);
    const torch::Tensor shown = wrong_ < 0 ? label : torch::full_like(label, wrong_);
    return torch::one_hot(shown, kClasses).to(images.dtype()) * 4 + bias;
  }
  std::vector<torch::Tensor> features(const torch::Tensor&, const std::vector<int64_t>&,
                                      const models::Context&) override {
    return {};
  }
  torch::Tensor embed(const torch::Tensor& images, const models::Context&) override { return images; }
  int64_t embed_width() const override { return 3; }
  int64_t block_count() const override { return 0; }
  int64_t macs(int64_t, int64_t) const override { return 0; }
  void reset_head(int64_t) override {}
  void initialise(uint64_t) override {}
  torch::Tensor bias = register_parameter("bias", torch::zeros({kClasses}));

 private:
  bool multi_;
  int64_t wrong_;
};

data::Preprocess plain() {
  data::Preprocess preprocess;
  preprocess.size = 4;
  preprocess.crop = 1;
  preprocess.mean = {0, 0, 0};
  preprocess.std = {1, 1, 1};
  return preprocess;
}

Evaluation evaluate(Task& task, models::Backbone& model, const data::Source& source,
                    EvaluateOptions options = {}) {
  data::LoaderConfig config;
  config.batch_size = 4;
  config.shuffle = config.drop_last = false;
  data::Loader loader(source, data::make_eval_transform(plain()), config);
  return task.evaluate(model, loader, options);
}

Batch batch_of(const torch::Tensor& labels, const torch::Tensor& targets = {}) {
  Batch batch;
  batch.images = torch::zeros({labels.size(0), 3, 4, 4});
  for (int64_t i = 0; i < labels.size(0); ++i)
    batch.images[i].select(0, 0).fill_(40.0 / 255 * static_cast<double>(i % kClasses));
  batch.labels = labels;
  batch.targets = targets;
  return batch;
}

double cross_entropy_of(double right) { return -std::log(right); }

TEST(Classify, EvaluationCountsEverySampleOnce) {
  const Colours source(10, false);  // the last batch is smaller
  Reader good(false), bad(false, 1);
  const auto task = make_classify({}, kClasses, false);
  const Evaluation all = evaluate(*task, good, source);
  EXPECT_EQ(all.samples, 10);
  EXPECT_EQ(all.metric("top1"), 1);
  ASSERT_EQ(all.rows.size(), 10u);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(all.rows[static_cast<size_t>(i)].index, i);
    EXPECT_EQ(all.rows[static_cast<size_t>(i)].verdict.label, i % kClasses);
  }
  const double sum = std::exp(4) + 2;
  EXPECT_NEAR(all.metric("loss"), cross_entropy_of(std::exp(4) / sum), 1e-6);
  EXPECT_NEAR(evaluate(*task, bad, source).metric("top1"), 0.3, 1e-12);
  EXPECT_FALSE(good.is_training());
}

TEST(Classify, EvaluationInEveryPrecision) {
  const Colours source(9, false);
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64, Precision::int8}) {
    Reader model(false);
    const auto task = make_classify({}, kClasses, false);
    EXPECT_EQ(evaluate(*task, model, source, {.precision = precision, .device = torch::kCPU, .progress = {}})
                  .metric("top1"),
              1);
  }
}

TEST(Classify, EvaluationStopsWhenAsked) {
  const Colours source(10, false);
  Reader model(false);
  const auto task = make_classify({}, kClasses, false);
  EvaluateOptions options;
  options.progress = [](int64_t done) { return done < 8; };
  try {
    evaluate(*task, model, source, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::interrupted);
  }
}

TEST(Classify, SeveralClassesAPicture) {
  const Colours source(16, true);
  Reader model(true);
  const auto task = make_classify({}, kClasses, true);
  const Evaluation evaluation = evaluate(*task, model, source);
  EXPECT_EQ(evaluation.metric("map"), 1);
  EXPECT_EQ(evaluation.metric("exact_match"), 1);
  EXPECT_EQ(evaluation.rows.size(), 16u);
  EXPECT_EQ(task->main_metric(), "map");
}

TEST(Classify, TheLossOfLabelsAndOfEqualTargetsAgree) {
  Reader model(false);
  const torch::Tensor labels = torch::tensor({0, 2, 2}, torch::kInt64);  // the model says 0, 1, 2
  const torch::Tensor targets = torch::one_hot(labels, kClasses).to(torch::kFloat32);
  for (const char* loss : {"cross_entropy", "bce"})
    for (const double smoothing : {0.0, 0.1}) {
      ClassifyConfig config;
      config.loss = loss;
      config.label_smoothing = smoothing;
      const auto task = make_classify(config, kClasses, false);
      const StepOutput hard = task->step(model, batch_of(labels), {});
      const StepOutput soft = task->step(model, batch_of(labels, targets), {});
      EXPECT_NEAR(hard.loss.item<double>(), soft.loss.item<double>(), 1e-6) << loss << smoothing;
      ASSERT_EQ(hard.metrics.size(), 1u);
      EXPECT_EQ(hard.metrics[0].first, "accuracy");
      EXPECT_NEAR(hard.metrics[0].second.item<double>(), 2.0 / 3, 1e-6);
      EXPECT_FALSE(hard.metrics[0].second.requires_grad());
      EXPECT_TRUE(hard.loss.requires_grad());
    }
}

TEST(Classify, ClassWeightsWeigh) {
  Reader model(false);
  const torch::Tensor labels = torch::tensor({0, 0}, torch::kInt64);  // right, wrong
  ClassifyConfig config;
  config.class_weights = {5, 1, 1};
  const double even =
      make_classify({}, kClasses, false)->step(model, batch_of(labels), {}).loss.item<double>();
  const double same =
      make_classify(config, kClasses, false)->step(model, batch_of(labels), {}).loss.item<double>();
  EXPECT_NEAR(even, same, 1e-6);  // the mean is divided by the weights' sum
  const torch::Tensor mixed = torch::tensor({0, 2}, torch::kInt64);  // right, wrong
  const double right = cross_entropy_of(std::exp(4) / (std::exp(4) + 2)), wrong = right + 4;
  EXPECT_NEAR(make_classify(config, kClasses, false)->step(model, batch_of(mixed), {}).loss.item<double>(),
              (5 * right + wrong) / 6, 1e-5);
}

// DeiT III: of a mixed target both classes count in full.
TEST(Classify, TargetsAboveTheThresholdCountInFull) {
  Reader model(false);
  Batch batch = batch_of(torch::tensor({0, 1}, torch::kInt64));
  batch.targets = torch::tensor({{0.7, 0.3, 0.0}, {0.0, 1.0, 0.0}}, torch::kFloat32);
  ClassifyConfig config;
  config.loss = "bce";
  const auto loss = [&] {
    return make_classify(config, kClasses, false)->step(model, batch, {}).loss.item<double>();
  };
  const double mixed = loss();
  config.target_threshold = 0.0;
  const double counted = loss();
  batch.targets = torch::tensor({{1.0, 1.0, 0.0}, {0.0, 1.0, 0.0}}, torch::kFloat32);
  EXPECT_NE(mixed, counted);
  EXPECT_EQ(counted, loss());
}

TEST(Classify, WrongRequestsAreUsageErrors) {
  ClassifyConfig config;
  config.loss = "cross_entropi";
  EXPECT_THROW(make_classify(config, kClasses, false), Error);
  config.loss = "cross_entropy";
  EXPECT_THROW(make_classify(config, kClasses, true), Error);
  config.class_weights = {1, 2};
  EXPECT_THROW(make_classify(config, kClasses, false), Error);
  EXPECT_THROW(parse_precision("fp8"), Error);
}

TEST(Autocast, IsOnWithinItsScopeOnly) {
  const torch::Tensor a = torch::ones({4, 4}), b = torch::ones({4, 4});
  {
    const AutocastScope scope(torch::kCPU, Precision::bf16);
    EXPECT_EQ(a.matmul(b).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(a.matmul(b).scalar_type(), torch::kFloat32);
  const AutocastScope scope(torch::kCPU, Precision::fp32);
  EXPECT_EQ(a.matmul(b).scalar_type(), torch::kFloat32);
}

TEST(ToDevice, CopiesIntoMemoryOfItsOwn) {
  data::Batch batch;
  batch.size = 2, batch.height = batch.width = 1;
  batch.images = {1, 2, 3, 4, 5, 6};
  batch.labels = {1, 0};
  batch.targets = {0.25f, 0.75f, 1, 0};
  const Batch moved = to_device(batch, torch::kCPU, Precision::fp64);
  batch.images.assign(6, 0);
  EXPECT_EQ(moved.images.scalar_type(), torch::kFloat64);
  EXPECT_EQ(moved.images[1][2].item<double>(), 6);
  EXPECT_EQ(moved.targets[0][1].item<double>(), 0.75);
  EXPECT_EQ(moved.labels[0].item<int64_t>(), 1);
}

// (1 - alpha) of the labels' loss, alpha of the teacher's; unlabelled pictures count in the second only.
TEST(Classify, ATeacherSharesTheLoss) {
  auto teacher = std::make_shared<Teacher>();
  teacher->model = std::make_shared<Reader>(false, 2);
  teacher->alpha = 0.25;
  Reader student(false);
  const Batch batch = batch_of(torch::tensor({0, 1, 2, 0}, torch::kInt64));
  const double plain_loss = make_classify({}, kClasses, false)->step(student, batch, {}).loss.item<double>();
  for (const Distillation kind : {Distillation::hard, Distillation::soft}) {
    teacher->kind = kind;
    ClassifyConfig config;
    config.teacher = teacher;
    const auto task = make_classify(config, kClasses, false);
    const auto with = [&](const torch::Tensor& unlabelled) {
      Batch shown = batch;
      shown.unlabelled = unlabelled;
      if (unlabelled.defined()) shown.labelled_share = 4.0 / static_cast<double>(4 + unlabelled.size(0));
      return task->step(student, shown, {}).loss.item<double>();
    };
    const auto taught = [&](const torch::Tensor& images) {
      return distillation(student.forward(images, {}), teacher->model->forward(images), kind, 1)
          .item<double>();
    };
    const torch::Tensor more = batch_of(torch::tensor({2, 2}, torch::kInt64)).images;
    EXPECT_NEAR(with({}), 0.75 * plain_loss + 0.25 * taught(batch.images), 1e-6);
    EXPECT_NEAR(with(more), 0.75 * plain_loss + 0.25 * taught(torch::cat({batch.images, more})), 1e-6);
  }
}

TEST(Batch, PiecesAreItsSamplesInOrder) {
  Batch batch = batch_of(torch::arange(7));
  batch.unlabelled = torch::rand({3, 3, 4, 4});
  std::vector<torch::Tensor> labels, unlabelled;
  for (int64_t i = 0; i < 3; ++i) {
    const Batch piece = batch.piece(i, 3);
    EXPECT_EQ(piece.images.size(0), piece.labels.size(0));
    EXPECT_FALSE(piece.targets.defined());
    labels.push_back(piece.labels), unlabelled.push_back(piece.unlabelled);
  }
  EXPECT_TRUE(torch::equal(torch::cat(labels), batch.labels));
  EXPECT_TRUE(torch::equal(torch::cat(unlabelled), batch.unlabelled));
}

}  // namespace
}  // namespace tessera::tasks
