// Objectives that compare views with a momentum network: DINO and MoCo v3.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/text.h"
#include "tasks/pretrain/dino.h"
#include "tasks/pretrain/moco_v3.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

TaskSetup views_setup(const char* task, const std::string& settings, const std::string& model = "") {
  TaskSetup setup;
  setup.settings = find_task(task).resolve(parse_toml(settings, "task"));
  setup.model = models::resolve_model(
      "vit",
      parse_toml("dim = 16\ndepth = 2\nheads = 2\npatch_size = 8\nimage_size = 32\nclasses = 0\n" + model,
                 "model"));
  setup.seed = 1;
  setup.preprocess.size = 32;
  setup.sides = {32};
  data::SourceConfig config;
  config.path = "shapes:train=64,val=16,size=32";
  setup.train = data::open_source(config, data::Split::train);
  setup.validation = data::open_source(config, data::Split::validation);
  return setup;
}

constexpr const char* kDino =
    "out_dim = 12\nhead_hidden = 20\nhead_bottleneck = 8\nlocal_crops = 2\nlocal_size = 16\n";
constexpr const char* kMoco = "dim = 8\nhidden = 20\n";

Inputs views_batch(const Task& task) {
  const StreamSpec stream = task.streams().at(0);
  data::Loader loader(*stream.source, stream.transform(32),
                      {.batch_size = 8, .shuffle = false, .drop_last = false});
  data::Batch batch = *loader.next();
  batch.whole = batch.size;
  Inputs inputs;
  inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp64));
  return inputs;
}

std::unique_ptr<Task> in_double(const TaskSetup& setup, const char* task) {
  auto made = find_task(task).make(setup);
  move(made->parts(), torch::kCPU, torch::kFloat64);
  set_training(made->parts(), true);
  return made;
}

Tensor tensor_of(const Task& task, const std::string& name) {
  for (const auto& [own, tensor] : named_state(task.parts()))
    if (own == name) return tensor;
  fail("no tensor '", name, "'");
}

TEST(MomentumNetworks, FollowByTheirShare) {
  const auto trained = std::make_shared<nn::LinearImpl>(3, 2),
             follower = std::make_shared<nn::LinearImpl>(3, 2);
  MomentumNetwork network({{"part.", follower}}, {{"part.", trained}});
  network.buffers()->to(torch::kFloat64);
  trained->to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    trained->weight.fill_(4);
  }
  EXPECT_EQ(follower->weight.scalar_type(), torch::kFloat64) << "the buffers are the follower's own tensors";
  EXPECT_EQ(network.buffers()->named_buffers().keys(),
            (std::vector<std::string>{"part.weight", "part.bias"}));
  EXPECT_TRUE(network.buffers()->parameters().empty());
  network.follow(0.75);
  EXPECT_TRUE(follower->weight.eq(1).all().item<bool>());
  network.copy();
  EXPECT_TRUE(follower->weight.eq(4).all().item<bool>());
  EXPECT_FALSE(follower->weight.requires_grad());
  trained->eval();
  network.take_mode();
  EXPECT_FALSE(follower->is_training());
}

TEST(MomentumNetworks, MomentumRisesToOne) {
  EXPECT_DOUBLE_EQ(cosine_momentum(0.9, 0, 10), 0.9);
  EXPECT_DOUBLE_EQ(cosine_momentum(0.9, 5, 10), 0.95);
  EXPECT_DOUBLE_EQ(cosine_momentum(0.9, 10, 10), 1);
}

// LibTorch's batch norm, in training and after it.
TEST(WholeBatchNorms, AreBatchNormsOfOneProcess) {
  torch::manual_seed(2);
  WholeBatchNorm norm(5);
  norm.to(torch::kFloat64);
  const Tensor x = torch::randn({7, 5}, torch::kFloat64);
  Tensor mean = torch::zeros({5}, torch::kFloat64), variance = torch::ones({5}, torch::kFloat64);
  for (const bool training : {true, true, false}) {
    norm.train(training);
    const Tensor want = torch::batch_norm(x, {}, {}, mean, variance, training, 0.1, 1e-5, false);
    EXPECT_TRUE(torch::allclose(norm.forward(x, 7, Collective::alone()), want));
  }
  EXPECT_TRUE(torch::allclose(norm.named_buffers()["running_var"], variance));
}

TEST(Dino, TemperaturesReachTheirLastValueInTheWarmup) {
  DinoConfig config;
  config.warmup_teacher_temp = 0.04, config.teacher_temp = 0.07, config.warmup_teacher_temp_epochs = 4;
  EXPECT_DOUBLE_EQ(dino_temperature(config, 0), 0.04);
  EXPECT_DOUBLE_EQ(dino_temperature(config, 1), 0.05);
  EXPECT_DOUBLE_EQ(dino_temperature(config, 3), 0.07);
  EXPECT_DOUBLE_EQ(dino_temperature(config, 99), 0.07);
  config.warmup_teacher_temp_epochs = 1;
  EXPECT_DOUBLE_EQ(dino_temperature(config, 0), 0.04);
}

// Of two views, each is predicted from the other alone.
TEST(Dino, NoViewPredictsItself) {
  torch::manual_seed(3);
  const Tensor student = torch::randn({4, 6}), teacher = torch::randn({4, 6}), centre = torch::zeros({1, 6});
  const Tensor losses = dino_losses(student, teacher, centre, 0.1, 0.04);
  const Tensor p = (teacher / 0.04).softmax(1), log_q = (student / 0.1).log_softmax(1);
  const Tensor want =
      -((p.slice(0, 0, 2) * log_q.slice(0, 2)).sum(1) + (p.slice(0, 2) * log_q.slice(0, 0, 2)).sum(1)) / 2;
  EXPECT_TRUE(torch::allclose(losses, want));
}

TEST(Dino, FreezesItsLastLayerForAnEpochAndMovesTeacherAndCentre) {
  const auto task = in_double(views_setup("dino", kDino), "dino");
  const Inputs inputs = views_batch(*task);
  const Tensor last = tensor_of(*task, "head.last_layer.weight_v");
  for (const int64_t step : {0, 5}) {
    const models::TrainingStep at{step, 20, 5};
    task->before_step(at);
    for (const auto& [name, parameter] : named_parameters(task->parts())) parameter.mutable_grad().reset();
    task->loss(inputs, {}, Collective::alone()).sum.backward();
    EXPECT_EQ(last.grad().defined(), step == 5);
    for (const auto& [name, parameter] : named_parameters(task->parts()))
      EXPECT_TRUE(parameter.grad().defined() || name.starts_with("head.last_layer.")) << name;
    EXPECT_FALSE(tensor_of(*task, "head.last_layer.weight_g").requires_grad());
    const Tensor centre = tensor_of(*task, "dino_loss.center").clone(),
                 teacher = tensor_of(*task, "teacher.norm.bias").clone();
    {
      const torch::NoGradGuard no_grad;
      tensor_of(*task, "norm.bias").add_(1);
    }
    task->after_step(at);
    EXPECT_FALSE(torch::equal(tensor_of(*task, "dino_loss.center"), centre));
    EXPECT_FALSE(torch::equal(tensor_of(*task, "teacher.norm.bias"), teacher));
  }
}

TEST(Dino, PiecesAddUp) {
  const auto whole = in_double(views_setup("dino", kDino), "dino"),
             pieces = in_double(views_setup("dino", kDino), "dino");
  const Inputs inputs = views_batch(*whole);
  const models::TrainingStep at{1, 20, 5};
  whole->before_step(at), pieces->before_step(at);
  const torch::NoGradGuard no_grad;
  const double all = whole->loss(inputs, {}, Collective::alone()).sum.item<double>();
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i)
    sum += pieces->loss(inputs.piece(i, 3), {}, Collective::alone()).sum.item<double>();
  EXPECT_NEAR(sum, all, 1e-9);
  whole->after_step(at), pieces->after_step(at);
  EXPECT_TRUE(torch::allclose(tensor_of(*pieces, "dino_loss.center"), tensor_of(*whole, "dino_loss.center")));
}

TEST(MocoV3, KeysOfOtherImagesCount) {
  torch::manual_seed(4);
  const Tensor q = torch::randn({3, 5}), k = torch::randn({6, 5});
  const Tensor losses = moco_losses(q, k, 2, 0.5);
  const auto cosine = [&](int64_t row, int64_t key) {
    return torch::cosine_similarity(q[row], k[key], 0).item<double>();
  };
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (int64_t key = 0; key < 6; ++key) sum += std::exp(cosine(row, key) / 0.5);
    EXPECT_NEAR(losses[row].item<double>(), std::log(sum) - cosine(row, row + 2) / 0.5, 1e-5);
  }
}

TEST(MocoV3, MovesItsMomentumEncoderBeforeTheKeys) {
  const auto task =
      in_double(views_setup("moco_v3", text(kMoco, "momentum = 0.5\nmomentum_cos = false")), "moco_v3");
  const Inputs inputs = views_batch(*task);
  const Tensor base = tensor_of(*task, "norm.bias"),
               momentum = tensor_of(*task, "momentum_encoder.norm.bias");
  {
    const torch::NoGradGuard no_grad;
    base.fill_(1);
  }
  task->before_step({1, 10, 5});
  EXPECT_TRUE(momentum.eq(0.5).all().item<bool>());
  task->loss(inputs, {}, Collective::alone()).sum.backward();
  EXPECT_FALSE(tensor_of(*task, "patch_embed.proj.weight").grad().defined());
  EXPECT_TRUE(tensor_of(*task, "predictor.0.weight").grad().defined());
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    EXPECT_FALSE(name.starts_with("momentum_encoder.")) << name;
}

// A set without end, which counts how often it is read.
class CountingSource final : public data::Source {
 public:
  CountingSource(std::shared_ptr<const data::Source> images, int64_t size)
      : images_(std::move(images)), size_(size) {}
  int64_t size() const override { return size_; }
  data::RawSample read(int64_t index) const override {
    ++reads;
    return images_->read(index % images_->size());
  }
  uint64_t fingerprint() const override { return 0; }
  std::string describe() const override { return "counted"; }
  mutable std::atomic<int64_t> reads = 0;

 private:
  std::shared_ptr<const data::Source> images_;
  int64_t size_;
};

TEST(MocoV3, DecodesOnlyTheImagesThatItCompares) {
  TaskSetup setup = views_setup("moco_v3", kMoco);
  const auto counting = std::make_shared<CountingSource>(setup.validation, 1100);
  setup.validation = counting;
  const auto task = find_task("moco_v3").make(setup);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  EvaluateOptions options;
  options.open = [](const StreamSpec& stream) {
    return std::make_unique<data::Loader>(
        *stream.source, stream.transform(32),
        data::LoaderConfig{.batch_size = 100, .shuffle = false, .drop_last = false});
  };
  counting->reads = 0;
  const Findings findings = task->evaluators().at(0)->run(options);
  EXPECT_EQ(findings.samples, 1024);
  EXPECT_EQ(counting->reads, 1024);
  EXPECT_TRUE(std::isfinite(findings.metric("loss")));
}

TEST(Views, ComeFromTheSeedAlone) {
  for (const auto& [name, settings] : {std::pair{"dino", kDino}, std::pair{"moco_v3", kMoco}}) {
    const auto task = in_double(views_setup(name, settings), name);
    const Inputs inputs = views_batch(*task), again = views_batch(*task);
    for (const FieldTensor& field : inputs.main().fields)
      EXPECT_TRUE(torch::equal(field.values, again.at(field.name))) << name << " " << field.name;
    EXPECT_FALSE(torch::equal(inputs.at("image_0"), inputs.at("image_1"))) << name;
  }
}

TEST(Views, RefuseByName) {
  const auto error_of_task = [](const char* task, const std::string& settings) {
    return usage_error_of([&] { find_task(task).make(views_setup(task, settings)); });
  };
  EXPECT_NE(error_of_task("dino", "local_size = 12").find("task dino: the model takes no views of 12 pixels"),
            std::string::npos);
  EXPECT_NE(error_of_task("dino", "local_size = 4").find("views of 4 pixels"), std::string::npos);
  EXPECT_NE(usage_error_of([] {
              TaskSetup setup = views_setup("moco_v3", kMoco);
              setup.preprocess.mean = {0.5}, setup.preprocess.std = {0.5};
              find_task("moco_v3").make(setup);
            }).find("preprocess.mean has 1 numbers, must have 3"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::tasks
