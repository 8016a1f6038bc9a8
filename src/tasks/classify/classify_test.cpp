#include "tasks/classify/classify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "report/block.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kClasses = 3;

// Uniformly coloured images: red / 40 is the class; for multi-label, the bits of green are the classes.
class Colours final : public data::LabelledSource {
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

// Reads the class off the colour, or predicts `wrong` for all if it is set. The feature vector holds the
// scores, and the head is set to pass them through.
class Reader final : public models::Backbone {
 public:
  explicit Reader(bool multi, int64_t wrong = -1) : multi_(multi), wrong_(wrong) {}
  torch::Tensor embed(const torch::Tensor& images, const models::Context&) override {
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
    return torch::one_hot(shown, kClasses).to(images.dtype()) * 4;
  }
  std::vector<torch::Tensor> features(const torch::Tensor&, const std::vector<int64_t>&,
                                      const models::Context&) override {
    return {};
  }
  int64_t embed_width() const override { return kClasses; }
  int64_t block_count() const override { return 0; }
  int64_t macs(int64_t, int64_t) const override { return 0; }
  void first_values(const std::string&, const torch::Tensor&, const nn::Filler&) const override {}

 private:
  bool multi_;
  int64_t wrong_;
};

void pass_scores_on(models::Backbone& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : model.named_parameters())
    if (parameter.key() == "head.weight") parameter.value().copy_(torch::eye(kClasses));
}

data::Preprocess plain() {
  data::Preprocess preprocess;
  preprocess.size = 4;
  preprocess.crop = 1;
  preprocess.mean = {0, 0, 0};
  preprocess.std = {1, 1, 1};
  return preprocess;
}

struct Options {
  std::string settings = "";  // TOML of [task]
  bool multi = false;
  int64_t wrong = -1, samples = 10;
  std::shared_ptr<Task> teacher = {};
};

// Gives one task for every path.
class Opener final : public WeightsOpener {
 public:
  explicit Opener(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  std::string file_of(const std::string& path) const override { return path; }
  OpenedWeights open(const std::string& path, int64_t) const override {
    return {task_, "classify", plain(), {}, path, "0"};
  }

 private:
  std::shared_ptr<Task> task_;
};

std::unique_ptr<Task> make(const Options& options = {}) {
  Value section = parse_toml(options.settings, "test");
  TaskSetup setup;
  setup.settings = task_settings(resolve_task(section));
  setup.model = {"reader", "vit", {}};
  setup.model.settings.set("classes", kClasses);
  setup.make_backbone = [&](const models::ModelSpec&) {
    return std::make_shared<Reader>(options.multi, options.wrong);
  };
  setup.train = setup.validation = std::make_shared<Colours>(options.samples, options.multi);
  setup.preprocess = plain();
  setup.sides = {4};
  if (options.teacher) setup.opener = std::make_shared<Opener>(options.teacher);
  auto task = find_task("classify").make(setup);
  pass_scores_on(*task->backbones()[0].model);
  return task;
}

EvaluateOptions how(Task& task, Precision precision = Precision::fp32) {
  move(task.parts(), torch::kCPU, precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32);
  EvaluateOptions options = {.precision = precision};
  options.open = [](const StreamSpec& stream) {
    data::LoaderConfig config;
    config.batch_size = 4;
    config.shuffle = config.drop_last = false;
    return std::make_unique<data::Loader>(*stream.source, stream.transform(4), config);
  };
  return options;
}

Findings evaluate(Task& task, const EvaluateOptions& options) { return task.evaluators()[0]->run(options); }

torch::Tensor images_of(int64_t count) {
  torch::Tensor images = torch::zeros({count, 3, 4, 4});
  for (int64_t i = 0; i < count; ++i)
    images[i].select(0, 0).fill_(40.0 / 255 * static_cast<double>(i % kClasses));
  return images;
}

Inputs inputs_of(const torch::Tensor& labels, const torch::Tensor& targets = {}) {
  const int64_t count = labels.size(0);
  Inputs inputs;
  inputs.streams.push_back({"train", count, 0, count, {{"image", images_of(count)}, {"label", labels}}});
  if (targets.defined()) inputs.streams[0].fields.push_back({"targets", targets});
  return inputs;
}

double mean_loss(Task& task, const Inputs& inputs) {
  return task.loss(inputs, {}, Collective::alone()).sum.item<double>() / task.weight(inputs);
}

double cross_entropy_of(double right) { return -std::log(right); }

TEST(Classify, EvaluationCountsEverySampleOnce) {
  const auto good = make(), bad = make({.wrong = 1});  // 10 samples: the last batch is smaller
  EvaluateOptions options = how(*good);
  options.blocks = {"samples", "classes", "confusion", "pictures"};
  const Findings all = evaluate(*good, options);
  EXPECT_EQ(all.samples, 10);
  EXPECT_EQ(all.metric("top1"), 1);
  const report::TableBlock* samples = report::find_table(all.blocks, "samples");
  ASSERT_NE(samples, nullptr);
  ASSERT_EQ(samples->rows.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(samples->rows[i][0], "colour " + std::to_string(i));
    EXPECT_EQ(samples->rows[i][1], std::string(1, "abc"[i % kClasses]));
    EXPECT_EQ(samples->rows[i][4], "1");
  }
  const report::TableBlock* classes = report::find_table(all.blocks, "classes");
  ASSERT_NE(classes, nullptr);
  EXPECT_EQ(classes->rows[0], (std::vector<std::string>{"a", "4", "1.0", "1.0", "1.0"}));
  const double sum = std::exp(4) + 2;
  EXPECT_NEAR(all.metric("loss"), cross_entropy_of(std::exp(4) / sum), 1e-6);
  EXPECT_NEAR(evaluate(*bad, how(*bad)).metric("top1"), 0.3, 1e-12);
  EXPECT_FALSE(good->backbones()[0].model->is_training());
}

TEST(Classify, EvaluationInEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64, Precision::int8}) {
    const auto task = make({.samples = 9});
    EXPECT_EQ(evaluate(*task, how(*task, precision)).metric("top1"), 1);
  }
}

TEST(Classify, EvaluationStopsWhenAsked) {
  const auto task = make();
  EvaluateOptions options = how(*task);
  options.progress = [](int64_t done) { return done < 8; };
  try {
    evaluate(*task, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::interrupted);
  }
}

TEST(Classify, SeveralClassesAnImage) {
  const auto task = make({.multi = true, .samples = 16});
  EvaluateOptions options = how(*task);
  const Findings findings = evaluate(*task, options);
  EXPECT_EQ(findings.metric("map"), 1);
  EXPECT_EQ(findings.metric("exact_match"), 1);
  EXPECT_EQ(findings.samples, 16);
  EXPECT_EQ(task->main_metric().name, "map");
  EXPECT_EQ(task->main_metric().unit, Unit::share);
  for (const char* asked : {"classes", "confusion"}) {  // --per-class, the report
    options.blocks = {asked};
    const std::vector<report::Block> blocks = evaluate(*task, options).blocks;
    const report::TableBlock* table = report::find_table(blocks, "classes");
    ASSERT_NE(table, nullptr) << asked;
    EXPECT_EQ(blocks.size(), 1u);
    ASSERT_EQ(table->rows.size(), static_cast<size_t>(kClasses));
    for (const auto& row : table->rows) {
      EXPECT_GT(parse_int(row.at(1)).value_or(0), 0) << row[0];
      EXPECT_EQ(row.at(2), "1.0000") << row[0];  // every label is right
      EXPECT_GT(parse_double(row.at(3)).value_or(0), 0.5) << row[0];
      EXPECT_EQ(row.at(4), "1.0000") << row[0];
    }
  }
}

TEST(Classify, TheLossOfLabelsAndOfEqualTargetsAgree) {
  const torch::Tensor labels = torch::tensor({0, 2, 2}, torch::kInt64);  // the model predicts 0, 1, 2
  const torch::Tensor targets = torch::one_hot(labels, kClasses).to(torch::kFloat32);
  for (const char* loss : {"cross_entropy", "bce"})
    for (const char* smoothing : {"0.0", "0.1"}) {
      const auto task = make({.settings = text("loss = \"", loss, "\"\nlabel_smoothing = ", smoothing)});
      const Inputs hard = inputs_of(labels), soft = inputs_of(labels, targets);
      EXPECT_NEAR(mean_loss(*task, hard), mean_loss(*task, soft), 1e-6) << loss << smoothing;
      const Loss computed = task->loss(hard, {}, Collective::alone());
      ASSERT_EQ(computed.terms.size(), 1u);
      EXPECT_EQ(task->step_metrics()[0].name, "accuracy");
      EXPECT_NEAR(computed.terms[0].sum.item<double>() / computed.terms[0].weight, 2.0 / 3, 1e-6);
      EXPECT_FALSE(computed.terms[0].sum.requires_grad());
      EXPECT_TRUE(computed.sum.requires_grad());
    }
}

TEST(Classify, ClassWeightsWeigh) {
  const auto even = make(), weighed = make({.settings = "class_weights = [5, 1, 1]"});
  const torch::Tensor labels = torch::tensor({0, 0}, torch::kInt64);  // right, wrong
  // The mean is divided by the sum of the weights.
  EXPECT_NEAR(mean_loss(*even, inputs_of(labels)), mean_loss(*weighed, inputs_of(labels)), 1e-6);
  const Inputs mixed = inputs_of(torch::tensor({0, 2}, torch::kInt64));  // right, wrong
  const double right = cross_entropy_of(std::exp(4) / (std::exp(4) + 2)), wrong = right + 4;
  EXPECT_NEAR(mean_loss(*weighed, mixed), (5 * right + wrong) / 6, 1e-5);
  EXPECT_EQ(weighed->weight(mixed), 6);
  EXPECT_FALSE(weighed->weight_counts_samples());
  EXPECT_TRUE(even->weight_counts_samples());
}

// Loss and weight of a batch are the sums over its pieces.
TEST(Classify, PiecesAddUp) {
  const torch::Tensor labels = torch::tensor({0, 2, 2, 1, 0}, torch::kInt64);
  const torch::Tensor targets = torch::rand({5, kClasses}).softmax(1);
  for (const char* settings : {"", "class_weights = [5, 1, 2]", "loss = \"bce\"", "label_smoothing = 0.2"})
    for (const bool soft : {false, true}) {
      const auto task = make({.settings = settings});
      const Inputs whole = inputs_of(labels, soft ? targets : torch::Tensor());
      double sum = 0, weight = 0;
      for (int64_t i = 0; i < 2; ++i) {
        const Inputs piece = whole.piece(i, 2);
        sum += task->loss(piece, {}, Collective::alone()).sum.item<double>();
        weight += task->weight(piece);
      }
      EXPECT_NEAR(weight, task->weight(whole), 1e-12) << settings;
      EXPECT_NEAR(sum / weight, mean_loss(*task, whole), 1e-5) << settings << soft;
    }
}

// DeiT III: both classes of a mixed target count in full.
TEST(Classify, TargetsAboveTheThresholdCountInFull) {
  const torch::Tensor labels = torch::tensor({0, 1}, torch::kInt64);
  const torch::Tensor mixed = torch::tensor({{0.7, 0.3, 0.0}, {0.0, 1.0, 0.0}}, torch::kFloat32),
                      full = torch::tensor({{1.0, 1.0, 0.0}, {0.0, 1.0, 0.0}}, torch::kFloat32);
  const auto as_they_are = make({.settings = "loss = \"bce\""}),
             counted = make({.settings = "loss = \"bce\"\ntarget_threshold = 0"});
  EXPECT_NE(mean_loss(*as_they_are, inputs_of(labels, mixed)), mean_loss(*counted, inputs_of(labels, mixed)));
  EXPECT_EQ(mean_loss(*counted, inputs_of(labels, mixed)), mean_loss(*counted, inputs_of(labels, full)));
}

TEST(Classify, WrongRequestsAreUsageErrors) {
  EXPECT_THROW(make({.settings = "loss = \"cross_entropi\""}), Error);
  EXPECT_THROW(make({.settings = "loss = \"cross_entropy\"", .multi = true}), Error);
  EXPECT_THROW(make({.settings = "class_weights = [1, 2]"}), Error);
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

// (1 - alpha) of the labels' loss, alpha of the teacher's; unlabelled images add to the latter only.
TEST(Classify, ATeacherSharesTheLoss) {
  const auto reads = [](int64_t wrong) {
    auto model = std::make_shared<models::Classifier>(std::make_shared<Reader>(false, wrong),
                                                      models::ClassHeadOptions{.classes = kClasses}, 0);
    pass_scores_on(*model->backbone);
    return model;
  };
  const std::shared_ptr<Task> teaching = make({.wrong = 2});
  const auto teacher = teaching->classifier(), student = reads(-1);
  const Inputs batch = inputs_of(torch::tensor({0, 1, 2, 0}, torch::kInt64));
  const double plain_loss = mean_loss(*make(), batch);
  for (const Distillation kind : {Distillation::hard, Distillation::soft}) {
    const auto task =
        make({.settings = text("[distil]\nteacher = \"t\"\nalpha = 0.25\nkind = \"", name_of(kind), "\""),
              .teacher = teaching});
    EXPECT_EQ(task->fingerprints(), (std::vector<std::pair<std::string, std::string>>{{"teacher", "0"}}));
    const auto with = [&](const torch::Tensor& unlabelled) {
      Inputs shown = batch;
      if (unlabelled.defined()) {
        const int64_t count = unlabelled.size(0);
        shown.streams.push_back({"unlabelled", count, 0, count, {{"image", unlabelled}}});
      }
      return mean_loss(*task, shown);
    };
    const auto taught = [&](const torch::Tensor& images) {
      return distillation(student->forward(images), teacher->forward(images), kind, 1).item<double>();
    };
    const torch::Tensor more = images_of(2), first = batch.at("image");
    EXPECT_NEAR(with({}), 0.75 * plain_loss + 0.25 * taught(first), 1e-6);
    EXPECT_NEAR(with(more), 0.75 * plain_loss + 0.25 * taught(torch::cat({first, more})), 1e-6);
  }
}

}  // namespace
}  // namespace tessera::tasks
