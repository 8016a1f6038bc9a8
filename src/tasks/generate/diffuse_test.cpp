#include "tasks/generate/diffuse.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "core/error.h"
#include "data/loading/loader.h"
#include "models/base/graphs_testing.h"
#include "tasks/generate/generator_fid.h"
#include "tasks/generate/image_generator.h"

namespace tessera::tasks {
namespace {

using torch::Tensor;

constexpr int64_t kSide = 16;

std::unique_ptr<Task> make_task(Value::Table task_settings, Value::Table model_settings = {}) {
  data::SourceConfig source;
  source.path = "shapes:train=64,val=20";
  TaskSetup setup;
  setup.settings = find_task("diffuse").resolve(Value(std::move(task_settings)));
  setup.train = data::open_source(source, data::Split::train);
  setup.validation = data::open_source(source, data::Split::validation);
  Value model(Value::Table{
      {"image_size", kSide}, {"patch_size", 4}, {"dim", 32}, {"depth", 2}, {"heads", 4}, {"llama", true}});
  merge(model, Value(std::move(model_settings)));
  Value complete = models::resolve_model("dit", model).settings;
  find_task("diffuse").fit_model(complete, setup.settings, setup.train.get());
  setup.model = models::resolve_model("dit", complete);
  setup.seed = 1;
  setup.preprocess.size = kSide;
  setup.preprocess.mean = setup.preprocess.std = {0.5, 0.5, 0.5};
  setup.sides = {kSide};
  return find_task("diffuse").make(setup);
}

data::Batch batch_of(const Task& task, int64_t size) {
  const StreamSpec stream = task.streams().at(0);
  data::Loader loader(*stream.source, stream.transform(kSide), {.batch_size = size, .shuffle = false});
  return *loader.next();
}

Inputs prepared(const Task& task, data::Batch batch, int64_t step) {
  task.prepare({&batch, 1}, {.seed = 3, .step = step});
  Inputs inputs;
  inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp32));
  return inputs;
}

// Makes every parameter nonzero: a new network outputs zero.
void enliven(const Task& task) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  for (const auto& [name, parameter] : named_parameters(task.parts()))
    if (name != "pos_embed") Tensor(parameter).add_(torch::randn_like(parameter), 0.05);
}

GenerateRequest request_of(const Generator& generator, std::vector<uint64_t> seeds,
                           const std::string& sampler, int64_t steps) {
  GenerateRequest request;
  request.labels = torch::arange(static_cast<int64_t>(seeds.size())) % generator.network->label_count();
  request.seeds = std::move(seeds);
  request.height = request.width = kSide;
  request.guidance.scale = 2;
  request.sampler = {.sampler = sampler, .clip = sampler == "ddim" ? 1.0 : 0.0};
  if (sampler != "dopri5") request.sampler.steps = steps;  // that one chooses its own
  return request;
}

TEST(Diffuse, LossOfPiecesIsThatOfTheWhole) {
  for (const char* process : {"diffusion", "linear", "gvp", "vp"}) {
    const auto task = make_task({{"process", process}});
    enliven(*task);
    const Inputs inputs = prepared(*task, batch_of(*task, 6), 5);
    const double whole = task->loss(inputs, {}, Collective::alone()).sum.item<double>();
    double pieces = 0;
    for (int64_t i = 0; i < 3; ++i)
      pieces += task->loss(inputs.piece(i, 3), {}, Collective::alone()).sum.item<double>();
    EXPECT_NEAR(whole, pieces, 1e-4 * std::abs(whole)) << process;
    EXPECT_GT(whole, 0);
  }
}

// Draws depend on the samples' global indices, not on the process.
TEST(Diffuse, DrawsAreThoseOfThePlacesInTheStep) {
  const auto task = make_task({{"label_dropout", 0.5}});
  const Inputs whole = prepared(*task, batch_of(*task, 6), 5);
  data::Batch later = batch_of(*task, 6);
  later.first = 2;
  const Inputs shifted = prepared(*task, later, 5), other = prepared(*task, batch_of(*task, 6), 6);
  EXPECT_TRUE(torch::equal(whole.at("noise").slice(0, 2), shifted.at("noise").slice(0, 0, 4)));
  EXPECT_TRUE(torch::equal(whole.at("time").slice(0, 2), shifted.at("time").slice(0, 0, 4)));
  EXPECT_FALSE(torch::equal(whole.at("time"), other.at("time")));
  const Tensor dropped = whole.at("condition") != whole.at("label");
  EXPECT_TRUE(dropped.any().item<bool>() && !dropped.all().item<bool>());
}

TEST(Diffuse, ASeedIsTheSameImageWhateverTheBatch) {
  for (const auto& [process, sampler, steps] : {std::tuple{"diffusion", "ddpm", 6},
                                                {"diffusion", "dpmpp_2m", 5},
                                                {"diffusion", "euler_ancestral", 5},
                                                {"linear", "dopri5", 4},
                                                {"linear", "sde", 6}}) {
    const auto task = make_task({{"process", process}});
    enliven(*task);
    set_training(task->parts(), false);
    const torch::NoGradGuard no_grad;
    const Generator& generator = *generator_of(*task);
    const auto draw = [&](std::vector<uint64_t> seeds, const Tensor& labels) {
      GenerateRequest request = request_of(generator, std::move(seeds), sampler, steps);
      request.labels = labels;
      return generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
    };
    const Tensor together = draw({7, 8, 9}, torch::tensor({0, 1, 2}, torch::kInt64)),
                 alone = draw({9}, torch::tensor({2}, torch::kInt64));
    // One of 255 levels is 2 / 255.
    EXPECT_LT((together.slice(0, 2) - alone).abs().max().item<double>(), 2.0 / 255) << sampler;
    EXPECT_FALSE(torch::allclose(together[0], together[1]));
    EXPECT_TRUE(torch::equal(together, draw({7, 8, 9}, torch::tensor({0, 1, 2}, torch::kInt64))));
  }
}

// The published SiT divides by zero for sbdm with a velocity network; here sampling starts after the pole.
TEST(Diffuse, EveryFormOfTheStochasticEquationIsThereForVelocities) {
  for (const char* process : {"linear", "gvp", "vp"}) {
    const auto task = make_task({{"process", process}});
    enliven(*task);
    set_training(task->parts(), false);
    const torch::NoGradGuard no_grad;
    const Generator& generator = *generator_of(*task);
    for (const std::string& form : names_of<diffusion::DiffusionForm>())
      for (const std::string& last : names_of<diffusion::LastStep>()) {
        GenerateRequest request = request_of(generator, {1}, "sde", 4);
        request.sampler.diffusion = parse_enum<diffusion::DiffusionForm>(form, "form");
        request.sampler.last_step = parse_enum<diffusion::LastStep>(last, "last step");
        EXPECT_TRUE(generate_images(*generator.network, *generator.process, request, torch::kCPU)
                        .images.isfinite()
                        .all()
                        .item<bool>())
            << process << " " << form << " " << last;
      }
  }
}

TEST(Diffuse, Float32StaysNearFloat64) {
  for (const auto& [process, sampler] : {std::tuple{"diffusion", "ddim"}, {"linear", "heun"}}) {
    const auto task = make_task({{"process", process}});
    enliven(*task);
    set_training(task->parts(), false);
    const torch::NoGradGuard no_grad;
    const Generator& generator = *generator_of(*task);
    const GenerateRequest request = request_of(generator, {1, 2}, sampler, 8);
    const Tensor narrow =
        generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
    // The same noise in float64, with a float64 network.
    move(task->parts(), torch::kCPU, torch::kFloat64);
    const auto network =
        guided_network(*generator.network, *generator.process, request.labels, request.guidance);
    const auto walk_sampler = generator.process->sampler(request.sampler);
    const Tensor wide = walk_sampler->run(
        network, seeded_noise(request.seeds, {3, kSide, kSide}, "first noise", 0).to(torch::kFloat64), {});
    EXPECT_LT((narrow - wide).abs().max().item<double>(), 1e-4) << process;
  }
}

TEST(Diffuse, KeepsWhatAMaskLeaves) {
  const auto task = make_task({});
  enliven(*task);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  const Generator& generator = *generator_of(*task);
  GenerateRequest request = request_of(generator, {1}, "ddim", 5);
  request.known = torch::full({1, 3, kSide, kSide}, 0.25);
  request.mask = torch::zeros({1, 1, kSide, kSide});
  request.mask.slice(2, 0, 8).fill_(1);
  const Tensor image = generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
  EXPECT_TRUE(torch::allclose(image.slice(2, 8), request.known.slice(2, 8)));
  EXPECT_FALSE(torch::allclose(image.slice(2, 0, 8), request.known.slice(2, 0, 8)));
  request.mask = torch::zeros({1, 1, 4, 4});
  EXPECT_THROW(generate_images(*generator.network, *generator.process, request, torch::kCPU), Error);
}

// Each call of the network after the second repeats a graph, if there are graphs; reuse of blocks has none.
TEST(Diffuse, StepsOfASamplerAsAGraph) {
  const auto task = make_task({});
  enliven(*task);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  const Generator& generator = *generator_of(*task);
  const auto draw = [&](double scale, int64_t every) {
    GenerateRequest request = request_of(generator, {4, 5}, "ddim", 9);
    request.guidance.scale = scale;
    request.reuse = {.every = every, .first = 0, .last = 1};
    return generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
  };
  for (const double scale : {1.0, 3.0}) {
    const Tensor want = draw(scale, 1);
    const models::RecordedGraphs graphs;
    EXPECT_TRUE(draw(scale, 1).equal(want));
    EXPECT_EQ(models::RecordedGraphs::counts().captures, 1);
    EXPECT_EQ(models::RecordedGraphs::counts().replays, 7);
    draw(scale, 2);
    EXPECT_EQ(models::RecordedGraphs::counts().captures, 1);
  }
}

// Reusing block outputs for the same input gives the same result; skipped blocks are counted.
TEST(Diffuse, ReusedBlocksAddWhatTheyAddedLast) {
  const auto task = make_task({}, {{"depth", 4}});
  enliven(*task);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  const Generator& generator = *generator_of(*task);
  torch::manual_seed(6);
  const Tensor x = torch::randn({2, 3, kSide, kSide}), time = torch::tensor({500.0, 20.0}, torch::kFloat64),
               labels = torch::tensor({0, 1}, torch::kInt64);
  const Tensor plain = generator.network->denoise(x, time, labels);
  models::BlockReuse reuse{.every = 3, .first = 1, .last = 3};
  EXPECT_TRUE(torch::equal(plain, generator.network->denoise(x, time, labels, {}, &reuse)));
  EXPECT_TRUE(torch::allclose(plain, generator.network->denoise(x, time, labels, {}, &reuse), 1e-4, 1e-5));
  EXPECT_EQ(reuse.spared, 2);
  // At another time the reused outputs are wrong, so the result differs; then the span is computed again.
  const Tensor other = generator.network->denoise(x, time - 19, labels);
  EXPECT_FALSE(
      torch::allclose(other, generator.network->denoise(x, time - 19, labels, {}, &reuse), 1e-4, 1e-5));
  EXPECT_TRUE(torch::equal(other, generator.network->denoise(x, time - 19, labels, {}, &reuse)));
  // A batch of another size reuses nothing.
  const Tensor alone = generator.network->denoise(x.slice(0, 1), time.slice(0, 1), labels.slice(0, 1));
  EXPECT_TRUE(torch::equal(
      alone, generator.network->denoise(x.slice(0, 1), time.slice(0, 1), labels.slice(0, 1), {}, &reuse)));
  EXPECT_EQ(reuse.asked, 5 * 4);
  EXPECT_EQ(reuse.spared, 4);
}

TEST(Diffuse, ReuseSparesBlocksWhateverTheBatch) {
  const auto task = make_task({}, {{"depth", 4}});
  enliven(*task);
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  const Generator& generator = *generator_of(*task);
  const auto draw = [&](std::vector<uint64_t> seeds, int64_t every) {
    GenerateRequest request = request_of(generator, std::move(seeds), "ddim", 7);
    request.labels.fill_(3);
    request.reuse = {.every = every, .first = 1, .last = 3};
    return generate_images(*generator.network, *generator.process, request, torch::kCPU);
  };
  const Generated two = draw({4, 5}, 3), one = draw({5}, 3), all = draw({5}, 1);
  EXPECT_EQ(one.blocks, 7 * 4);
  EXPECT_EQ(one.spared_blocks, 4 * 2);  // in steps 1 to 7 the first, fourth and seventh run in full
  EXPECT_LT((two.images[1] - one.images[0]).abs().max().item<double>(), 2.0 / 255);
  EXPECT_FALSE(torch::allclose(one.images, all.images));
  EXPECT_EQ(all.spared_blocks, 0);
  GenerateRequest request = request_of(generator, {1}, "heun", 4);
  request.reuse = {.every = 2, .first = 1, .last = 3};
  EXPECT_THROW(generate_images(*generator.network, *generator.process, request, torch::kCPU), Error);
}

// From a class to itself an image is preserved, better with more steps; to another class it changes.
TEST(Diffuse, ClassToClassWalksBackToTheNoiseOfAnImage) {
  for (const auto& [process, sampler] :
       {std::tuple{"diffusion", "ddim"}, {"linear", "heun"}, {"linear", "euler"}, {"gvp", "dopri5"}}) {
    // An untrained network predicts v well enough; its predicted noise would not match any image.
    Value::Table settings = {{"process", process}};
    if (process == std::string("diffusion")) settings.emplace_back("predict", "v");
    const auto task = make_task(settings);
    enliven(*task);
    set_training(task->parts(), false);
    const torch::NoGradGuard no_grad;
    const Generator& generator = *generator_of(*task);
    const auto difference = [&](int64_t from, int64_t to, int64_t steps) {
      GenerateRequest request = request_of(generator, {1}, sampler, steps);
      request.guidance.scale = 1;
      request.sampler.clip = 0;
      torch::manual_seed(8);
      request.start = torch::rand({1, 3, kSide, kSide}) * 2 - 1;
      request.start_labels = torch::full({1}, from, torch::kInt64);
      request.labels = torch::full({1}, to, torch::kInt64);
      const Tensor image =
          generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
      return (image - request.start).abs().mean().item<double>();
    };
    const double few = difference(2, 2, 4), many = difference(2, 2, 40), other = difference(2, 5, 40);
    EXPECT_LT(many, 0.05) << process << " " << sampler;
    EXPECT_LE(many, few + 1e-5) << process << " " << sampler;
    EXPECT_GT(other, many) << process << " " << sampler;
  }
  const auto task = make_task({});
  const Generator& generator = *generator_of(*task);
  GenerateRequest request = request_of(generator, {1}, "ddpm", 4);
  request.start = torch::zeros({1, 3, kSide, kSide});
  request.start_labels = request.labels;
  EXPECT_THROW(generate_images(*generator.network, *generator.process, request, torch::kCPU), Error);
}

// A short walk from an image stays closer to it than a long one.
TEST(Diffuse, StrengthSaysHowMuchOfAnImageIsLeft) {
  const auto task = make_task({{"process", "linear"}});
  set_training(task->parts(), false);
  const torch::NoGradGuard no_grad;
  const Generator& generator = *generator_of(*task);  // untrained: the velocity is 0
  GenerateRequest request = request_of(generator, {1}, "euler", 10);
  request.start = torch::full({1, 3, kSide, kSide}, 0.5);
  double before = 0;
  for (const double strength : {0.1, 0.5, 0.9}) {
    request.strength = strength;
    const Tensor image = generate_images(*generator.network, *generator.process, request, torch::kCPU).images;
    const double far = (image - request.start).abs().mean().item<double>();
    EXPECT_GT(far, before);
    before = far;
  }
}

// An untrained interpolant has velocity 0: noise equals the image, and its bits are those of a normal
// distribution. The bound of diffusion is then far above, as its steps predict nothing.
TEST(Diffuse, BitsOfANetworkThatSaysNothingAreThoseOfNoise) {
  const auto task = make_task({{"process", "linear"}});
  set_training(task->parts(), false);
  const Generator& generator = *generator_of(*task);
  const Tensor images = torch::rand({3, 3, kSide, kSide}) * 2 - 1,
               labels = torch::tensor({0, 1, 2}, torch::kInt64);
  const std::vector<uint64_t> seeds = {4, 5, 6};
  const Tensor density = bits_per_dimension(*generator.network, *generator.process, images, labels, seeds, 0);
  const Tensor want =
      (0.5 * images.square().mean({1, 2, 3}) + 0.5 * std::log(2 * std::acos(-1.0))) / std::log(2.0);
  EXPECT_LT((density - want).abs().max().item<double>(), 1e-5);
  // For stored levels: plus log2(255 / 2), and the squared width of the dequantisation.
  const Tensor levels =
      bits_per_dimension(*generator.network, *generator.process, images, labels, seeds, 256);
  EXPECT_LT((levels - want - std::log2(127.5)).abs().max().item<double>(), 1e-3);
  EXPECT_FALSE(torch::equal(levels - std::log2(127.5), density));
}

TEST(Diffuse, BitsAreMeasuredOfTheFirstImages) {
  for (const char* process : {"linear", "diffusion"}) {
    Value::Table settings = {{"process", process}, {"bits", 6}, {"samples", 0}};
    if (process == std::string("diffusion")) settings.emplace_back("steps", 40);
    const auto task = make_task(settings);
    const auto bits_of = [&](int64_t batch) {
      EvaluateOptions options;
      options.open = [&](const StreamSpec& stream) {
        return std::make_unique<data::Loader>(
            *stream.source, stream.transform(kSide),
            data::LoaderConfig{.batch_size = batch, .shuffle = false, .drop_last = false});
      };
      const Findings findings = task->evaluators().at(0)->run(options);
      for (const Metric& metric : findings.metrics)
        if (metric.info.name == "bits_per_dim") return metric.value;
      return std::nan("");
    };
    EXPECT_GT(bits_of(4), 0) << process;
    EXPECT_NEAR(bits_of(4), bits_of(20), 1e-3 * bits_of(20)) << process;
  }
}

TEST(Diffuse, LearnsWithinAFewSteps) {
  const auto task = make_task({{"process", "linear"}, {"label_dropout", 0.0}});
  set_training(task->parts(), true);
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    if (parameter.requires_grad()) parameters.push_back(parameter);
  torch::optim::AdamW optimiser(parameters, torch::optim::AdamWOptions(3e-3).weight_decay(0));
  const data::Batch batch = batch_of(*task, 16);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const Inputs inputs = prepared(*task, batch, step);
    const Tensor loss = task->loss(inputs, {}, Collective::alone()).sum / task->weight(inputs);
    optimiser.zero_grad();
    loss.backward();
    optimiser.step();
    (step < 10 ? first : last) += step < 10 || step >= 50 ? loss.item<double>() : 0;
  }
  EXPECT_LT(last, 0.8 * first);
}

TEST(Diffuse, WithoutALabelForNoneThereIsNoGuidance) {
  EXPECT_THROW(make_task({}, {{"null_label", false}}), Error);  // by default labels are dropped
  const auto task = make_task({{"label_dropout", 0.0}}, {{"null_label", false}});
  const Generator& generator = *generator_of(*task);
  EXPECT_FALSE(generator.network->has_null_label());
  GenerateRequest request = request_of(generator, {1}, "ddim", 3);
  EXPECT_THROW(generate_images(*generator.network, *generator.process, request, torch::kCPU), Error);
  request.guidance.scale = 1;
  EXPECT_EQ(generate_images(*generator.network, *generator.process, request, torch::kCPU).evaluations, 3);
  request.labels.fill_(generator.network->null_label());
  EXPECT_THROW(generate_images(*generator.network, *generator.process, request, torch::kCPU), Error);
}

TEST(Diffuse, RefusesWhatDoesNotGoTogether) {
  const auto message = [](const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage) << error.what();
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message([] {
              make_task({{"zero_terminal_snr", true}});
            }).find("must be v or x0"),
            std::string::npos);
  EXPECT_NE(message([] {
              make_task({{"process", "gvp"}, {"loss_weight", "velocity"}});
            }).find("score or noise"),
            std::string::npos);
  EXPECT_NE(message([] {
              make_task({}, {{"image_size", 32}});
            }).find("model.image_size = 32"),
            std::string::npos);
  EXPECT_NE(message([] {
              make_task({{"field", "score"}});
            }).find("task.field is for interpolants only, but task.process = \"diffusion\""),
            std::string::npos);
  EXPECT_NE(message([] {
              make_task({{"process", "linear"}, {"predict", "v"}});
            }).find("task.predict is for diffusion only, but task.process = \"linear\""),
            std::string::npos);
  EXPECT_NE(message([] {
              make_task({}, {{"labels", 7}});
            }).find("model.labels = 7 but there are 10 classes of the data"),
            std::string::npos);
  const auto task = make_task({});
  const Generator& generator = *generator_of(*task);
  const auto drawn = [&](const auto& change) {
    return message([&] {
      GenerateRequest request = request_of(generator, {1}, "ddim", 5);
      change(request);
      generate_images(*generator.network, *generator.process, request, torch::kCPU);
    });
  };
  EXPECT_NE(drawn([](GenerateRequest& r) { r.labels.fill_(100000); }).find("class 100000 does not exist"),
            std::string::npos);
  EXPECT_NE(drawn([](GenerateRequest& r) { r.guidance.scale = -1; }).find("cfg = -1"), std::string::npos);
  EXPECT_NE(drawn([](GenerateRequest& r) { r.sampler.steps = 1001; }).find("must be 1 to 1000"),
            std::string::npos);
  EXPECT_NE(drawn([](GenerateRequest& r) { r.sampler.karras = true; }).find("karras is for dpmpp"),
            std::string::npos);
  EXPECT_NE(drawn([](GenerateRequest& r) { r.sampler.sampler = "dopri5"; }).find("is not for diffusion"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::tasks
