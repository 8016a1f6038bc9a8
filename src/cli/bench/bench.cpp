// `tessera bench infer|train`: images per second of a model, and the limit of the machine in the same run.
#include <sys/resource.h>

#include <ATen/DeviceAccelerator.h>
#include <torch/cuda.h>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/base/command.h"
#include "cli/bench/bench_limit.h"
#include "cli/bench/bench_profile.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "kernels/linear/linear.h"
#include "models/base/codec.h"
#include "models/base/denoiser.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "open/device.h"
#include "open/open_task.h"
#include "open/ready_task.h"
#include "ops/inference.h"
#include "optim/optimiser.h"
#include "tasks/base/registry.h"
#include "train/memory.h"
#include "train/setup.h"
#include "train/step_graphs.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string model, weights, device = "cpu", dtype = "fp32", impl = "fast";
  std::string task = tasks::default_task().name;
  int64_t batch = 8, size = 0, threads = 0;
  double seconds = 6;
  bool json = false, profile = false;
  models::ModelSpec trained;  // of --weights

  template <class V>
  void visit(V& v) {
    v("model", model, "model name (`tessera models` lists them)");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    v("size", size, between(1, 8192), "side of the images in pixels (default: 224, or from the weights)");
    v("device", device, "cpu, cuda or auto");
    v("precision", dtype, "fp32, bf16, or int8 (inference only)");
    v("impl", impl, {.choices = {"fast", "reference"}},
      "fast, or reference: compositions of LibTorch's operations");
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
    v("seconds", seconds, between(0, 3600), "seconds of measurement");
    v("json", json, "one JSON line");
    v("profile", profile, "also a table of time by operation, to stderr");
  }
};

struct BenchInferOptions : BenchOptions {
  template <class V>
  void visit(V& v) {
    BenchOptions::visit(v);
    v("weights", weights, {.names = "-w"}, "a trained model instead: weights of any format, or a run");
  }
};

struct BenchTrainOptions : BenchOptions {
  template <class V>
  void visit(V& v) {
    BenchOptions::visit(v);
    v("task", task, "task, with its default settings");
  }
};

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double gpu_peak_mb(const torch::Device& device) {
  if (device.is_cpu()) return 0;
  const auto stats = at::accelerator::getDeviceStats(device.has_index() ? device.index() : 0);
  return static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 20);  // 0: of all pools
}

kernels::Arithmetic arithmetic_of(BenchDtype dtype) {
  return dtype == BenchDtype::fp32   ? kernels::Arithmetic::f32
         : dtype == BenchDtype::bf16 ? kernels::Arithmetic::bf16
                                     : kernels::Arithmetic::int8;
}

models::ModelSpec spec_of(const BenchOptions& options) {
  if (!options.weights.empty()) return options.trained;
  Value settings{Value::Table{}};
  settings.set("image_size", options.size);
  return models::resolve_model(options.model, settings);
}

// The model and the image size to measure, from --model or --weights.
void choose_model(BenchOptions& options) {
  if (options.model.empty() == options.weights.empty())
    fail_usage("--model and --weights both name what is measured: give one (`tessera models` lists models)");
  if (options.weights.empty()) {
    if (options.size == 0) options.size = 224;
    return;
  }
  const train::OpenedTask opened = train::open_task(options.weights, {.size = options.size});
  options.trained = opened.info.model;
  options.model = opened.info.model.name;
  if (options.size == 0) options.size = opened.info.preprocess.size;
}

// The task with default settings and without data.
std::unique_ptr<tasks::Task> build_task(const BenchOptions& options, const torch::Device& device) {
  Value named;
  named.set("name", options.task);
  const tasks::TaskKind& kind = tasks::find_task(options.task);
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(tasks::resolve_task(named));
  setup.model = spec_of(options);
  kind.fit_model(setup.model.settings, setup.settings, nullptr);
  setup.preprocess.size = options.size;
  setup.sides = {options.size};
  auto task = kind.make(setup);
  tasks::move(task->parts(), device, torch::kFloat32);
  return task;
}

// The precision of everything except linear layers.
tasks::Precision precision_of(BenchDtype dtype) {
  return dtype == BenchDtype::fp32 ? tasks::Precision::fp32 : tasks::Precision::bf16;
}

// Reads the size of a product from "linear 1576 x 384 -> 1152 …" or "convolution …" in a profile; a gated
// layer has two products.
std::optional<ProductShape> product_of(const std::string& name, const Profile::Row& row) {
  long long rows = 0, in = 0, out = 0;
  const size_t from = name.starts_with("convolution ") ? 12 : name.starts_with("linear ") ? 7 : name.size();
  if (std::sscanf(name.c_str() + from, "%lld x %lld -> %lld", &rows, &in, &out) != 3) return std::nullopt;
  return ProductShape{rows, in, name.ends_with("gated") ? 2 * out : out, static_cast<double>(row.calls)};
}

// Returns the products of a forward pass, which runs once with our own operations for this purpose.
std::vector<ProductShape> products_of(const Step& forward) {
  const torch::NoGradGuard no_grad;
  ops::InferenceSettings settings = ops::inference_settings();
  settings.fused = true;
  const ops::InferenceScope scope(settings);
  Profile profile;
  forward();
  profile.stop();
  std::vector<ProductShape> products;
  for (const auto& [name, row] : profile.rows())
    if (const auto product = product_of(name, row)) products.push_back(*product);
  return products;
}

// Returns the arithmetic of one call in GFLOP, 0 if the operation is no product.
double gflop_of(const std::string& name, const Profile::Row& row) {
  const auto product = product_of(name, row);
  if (!product) return 0;
  return 2e-9 * static_cast<double>(product->rows) * static_cast<double>(product->in) *
         static_cast<double>(product->out);
}

// `limit` in GFLOP/s, if known.
void print_profile(const Step& step, int64_t steps, std::optional<double> limit,
                   const torch::Device& device) {
  const double start = steady_seconds();
  Profile profile(device);
  for (int64_t i = 0; i < steps; ++i) step();
  profile.stop();
  const double wall = steady_seconds() - start, count = static_cast<double>(steps);
  std::vector<std::pair<std::string, Profile::Row>> rows(profile.rows().begin(), profile.rows().end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double named = 0;
  std::cerr << "  ms a step  share   calls  GFLOP/s  of limit  operation\n" << std::fixed;
  const auto line = [&](const std::string& name, double calls, double seconds, double gflop) {
    std::cerr << std::setw(11) << std::setprecision(3) << seconds / count * 1e3 << std::setw(6)
              << std::setprecision(1) << 100 * seconds / wall << "%" << std::setw(8) << calls / count;
    if (gflop > 0 && limit)
      std::cerr << std::setw(9) << gflop * calls / seconds << std::setw(9)
                << 100 * gflop * calls / seconds / *limit << "%";
    else
      std::cerr << std::setw(19) << "";
    std::cerr << "  " << name << "\n";
  };
  double small = 0;
  for (const auto& [name, row] : rows) {
    named += row.seconds;
    if (row.seconds < 0.002 * wall) {
      small += row.seconds;
      continue;
    }
    line(name, static_cast<double>(row.calls), row.seconds, gflop_of(name, row));
  }
  line("operations below 0.2 % each", 0, small, 0);
  line("other", 0, wall - named, 0);
}

// The result of a measurement, and the limit in GFLOP/s if known.
struct Measured {
  std::vector<double> seconds;      // for each step
  double peak_rss_mb, peak_gpu_mb;  // peak_gpu_mb: of tensors, 0 on a CPU
  std::optional<double> limit;
};

void report(const char* what, const BenchOptions& options, BenchDtype dtype, const Measured& measured,
            double gflop) {
  const auto& [seconds, peak_rss_mb, peak_gpu_mb, limit] = measured;
  const double images = static_cast<double>(options.batch) / median(seconds), achieved = gflop * images;
  Json line = {{"bench", what},
               {"model", options.model},
               {"device", options.device},
               {"precision", name_of(dtype)},
               {"batch", options.batch},
               {"size", options.size},
               {"threads", train::use_threads(options.threads)},
               {"impl", options.impl}};
  if (limit && options.impl == "fast") line["kernel"] = kernels::choose_linear(arithmetic_of(dtype)).name;
  line["images_per_second"] = images;
  line["ms"] = median(seconds) * 1e3;
  line["rounds"] = seconds.size();
  line["gflops"] = achieved;
  if (limit) {
    line["limit_gflops"] = *limit;
    line["percent_of_limit"] = 100 * achieved / *limit;
  }
  line["peak_rss_mb"] = peak_rss_mb;
  if (peak_gpu_mb > 0) line["peak_gpu_mb"] = peak_gpu_mb;
  if (options.json)
    std::cout << line.dump() << std::endl;
  else
    for (const auto& [key, value] : line.items())
      std::cout << std::left << std::setw(18) << key
                << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
}

// Alternates steps and products of the limit, so that other load on the machine affects both.
void measure(const char* what, const BenchOptions& options, const torch::Device& device, BenchDtype dtype,
             const Step& forward, const Step& once, double gflop) {
  constexpr double kPatience = 10;  // seconds beyond --seconds, for five rounds of slow steps
  const Step step = waited_for(once, device);
  step();
  const double peak = peak_rss_mb();  // before the limit's products allocate memory
  std::optional<Limit> products;      // processor limit
  if (device.is_cpu()) products.emplace(dtype, products_of(forward));
  std::vector<double> seconds;
  const double begin = steady_seconds();
  while (steady_seconds() - begin < options.seconds + (seconds.size() < 5 ? kPatience : 0)) {
    const double start = steady_seconds();
    step();
    seconds.push_back(steady_seconds() - start);
    if (products) products->run();
  }
  const auto limit = products ? std::optional(products->gflops()) : std::nullopt;
  report(what, options, dtype, {seconds, peak, gpu_peak_mb(device), limit}, gflop);
  if (options.profile)
    print_profile(step, std::max<int64_t>(3, static_cast<int64_t>(seconds.size()) / 2), limit, device);
}

// Prints why the measured calls had no graphs although TESSERA_GPU=graphs.
void print_refusal(const std::string& why) {
  if (!why.empty()) std::cerr << "tessera: measured without graphs: " << why << "\n";
}

ops::InferenceSettings settings_of(const BenchOptions& options, BenchDtype dtype) {
  return {.fused = options.impl == "fast", .int8 = dtype == BenchDtype::int8};
}

torch::Tensor images_for(const BenchOptions& options, int64_t channels, const torch::Device& device) {
  torch::manual_seed(0);
  return torch::randn({options.batch, channels, options.size, options.size}).to(device);
}

struct ForwardPass {
  Step step;
  int64_t macs;  // for one image
};

// A generator predicts for noised images, an auto-encoder decodes latents, all other models score images.
ForwardPass forward_pass(const BenchOptions& options, models::Classifier& model,
                         const torch::Device& device) {
  if (auto* codec = ability_of<models::LatentCodec>(*model.backbone)) {
    const int64_t side = options.size / codec->factor();
    if (side < 1 || options.size % codec->factor() != 0)
      fail_usage("--size ", options.size, ": must be a multiple of ", codec->factor(),
                 ", the pixels to a place of the latent");
    torch::manual_seed(0);
    const auto latents = torch::randn({options.batch, codec->latent_channels(), side, side}).to(device);
    return {[=] { codec->decode(latents); }, codec->decoding_macs(side, side)};
  }
  const int64_t macs = model.macs(options.size, options.size);
  if (auto* network = ability_of<models::Denoiser>(*model.backbone)) {
    const torch::Tensor x = images_for(options, network->channels(), device),
                        time = torch::linspace(0.05, 0.95, options.batch).to(device),
                        labels = torch::arange(options.batch).remainder(network->label_count()).to(device);
    return {[=] { network->denoise(x, time, labels); }, macs};
  }
  const int64_t channels = models::input_channels(spec_of(options).settings);
  return {[&model, images = images_for(options, channels, device)] { model.forward(images); }, macs};
}

void infer(const BenchOptions& options) {
  const BenchDtype dtype = parse_bench_dtype(options.dtype);
  const torch::Device device = train::choose_device(options.device);
  if (dtype == BenchDtype::int8 && !device.is_cpu())
    fail_usage("--precision int8 is for the CPU; on a GPU use bf16");
  if (dtype == BenchDtype::int8 && options.impl == "reference")
    fail_usage("--precision int8 has no --impl reference: LibTorch's operations here are fp32 and bf16");
  train::use_threads(options.threads);
  const auto model = models::build_classifier(spec_of(options), 0);
  model->backbone->to(device);
  model->backbone->eval();
  const torch::InferenceMode inference;
  const ops::InferenceScope scope(settings_of(options, dtype));
  const ForwardPass forward = forward_pass(options, *model, device);
  const Step step = [&] {
    const tasks::AutocastScope autocast(device, precision_of(dtype));
    forward.step();
  };
  measure("infer", options, device, dtype, step, step, 2e-9 * static_cast<double>(forward.macs));
  print_refusal(model->graphs().refusal());
}

void train_steps(const BenchOptions& options) {
  const BenchDtype dtype = parse_bench_dtype(options.dtype);
  if (dtype == BenchDtype::int8) fail_usage("--precision int8: training takes fp32 or bf16");
  const torch::Device device = train::choose_device(options.device);
  train::use_threads(options.threads);
  const auto task = build_task(options, device);
  tasks::set_training(task->parts(), true);
  const ops::InferenceScope scope(settings_of(options, dtype));
  const auto optimiser = train::make_optimiser(
      train::resolve_optimiser({}),
      train::make_parameter_groups(tasks::named_parameters(task->parts()), train::GroupOptions{}));
  if (dtype == BenchDtype::bf16 && !train::StepGraphs::on())
    optimiser->keep_halves(train::weights_of_products(task->parts()));
  const tasks::Inputs inputs =
      train::example_inputs(*task, options.batch, options.size, device, tasks::Precision::fp32);
  torch::manual_seed(0);
  for (const char* field : {"image", "latent"})
    if (const torch::Tensor* given = inputs.find(field)) given->normal_();
  const auto loss_of = [&](const tasks::Inputs& given) {
    const tasks::AutocastScope autocast(device, precision_of(dtype));
    return task->loss(given, {}, tasks::Collective::alone());
  };
  train::StepGraphs graphs(*task, loss_of);
  const bool on = train::StepGraphs::on(), graphed = on && graphs.objection().empty();
  const auto mean_loss = [&] { return loss_of(inputs).sum / task->weight(inputs); };
  const Step forward = [&] { mean_loss(); };
  const Step step = [&] {
    if (graphed)
      graphs.run(inputs, task->weight(inputs));
    else
      mean_loss().backward();
    const ops::Profiled profiled("optimiser");
    optimiser->step(1e-4);
    optimiser->zero_grad();
  };
  // The backward pass computes the gradients of inputs and of weights: twice the forward pass.
  measure("train", options, device, dtype, forward, step,
          6e-9 * static_cast<double>(task->macs(options.size)));
  if (on) print_refusal(graphed ? graphs.refusal() : graphs.objection());
}

void bench_infer(const BenchInferOptions& options) {
  BenchOptions chosen = options;
  choose_model(chosen);
  infer(chosen);
}

void bench_train(const BenchTrainOptions& options) {
  BenchOptions chosen = options;
  choose_model(chosen);
  train_steps(chosen);
}

}  // namespace

void add_bench_infer(Arguments& command, Action& action) {
  action = with_options<BenchInferOptions>(command, bench_infer);
}

void add_bench_train(Arguments& command, Action& action) {
  action = with_options<BenchTrainOptions>(command, bench_train);
}

}  // namespace tessera::cli
