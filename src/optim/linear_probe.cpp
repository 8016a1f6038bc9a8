#include "optim/linear_probe.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"

namespace tessera::train {
namespace {

constexpr double kEps = 1e-6;             // MAE's batch norm
constexpr double kFirstDeviation = 0.01;  // MAE's initial weights
constexpr int64_t kRows = 8192;

torch::Tensor first_weights(int64_t width, int64_t classes, uint64_t seed) {
  torch::Tensor weight = torch::empty({classes, width}, torch::kFloat32);
  RandomStream stream(seed, "linear probe weights");
  float* at = weight.data_ptr<float>();
  for (int64_t i = 0; i < weight.numel(); ++i) at[i] = static_cast<float>(kFirstDeviation * stream.normal());
  return weight;
}

Value lars_settings(const LinearProbe& probe) {
  return Value(Value::Table{{"name", "lars"},
                            {"adapt_matrices", true},
                            {"lr", probe.rate},
                            {"lr_batch", 256.0},
                            {"momentum", probe.momentum},
                            {"weight_decay", 0.0}});
}

}  // namespace

torch::Tensor linear_probe_classes(const LinearProbe& probe, const torch::Tensor& train,
                                   const torch::Tensor& labels, int64_t classes, const torch::Tensor& test) {
  check(train.dim() == 2 && labels.size(0) == train.size(0) && test.size(1) == train.size(1),
        "a probe on features ", train.sizes(), " with labels ", labels.sizes(), " and ", test.sizes());
  const torch::NoGradGuard no_grad;
  const int64_t samples = train.size(0), batch = std::min(probe.batch, samples);
  const torch::Tensor classes_there = labels.to(train.device());
  const torch::Tensor mean = train.mean(0), scale = (train.var(0, /*unbiased=*/false) + kEps).rsqrt();
  const torch::Device device = train.device();
  torch::Tensor weight = first_weights(train.size(1), classes, probe.seed).to(device),
                bias = torch::zeros({classes}, weight.options());
  weight.set_requires_grad(true), bias.set_requires_grad(true);
  const OptimiserSpec spec = resolve_optimiser(lars_settings(probe));
  const auto optimiser =
      make_optimiser(spec, make_parameter_groups({{"weight", weight}, {"bias", bias}}, {.weight_decay = 0}));
  const int64_t steps_per_epoch = std::max<int64_t>(1, samples / batch);
  const auto schedule =
      make_schedule(Value(Value::Table{
                        {"name", "mae_cosine"},
                        {"warmup_epochs", static_cast<double>(std::min(probe.warmup_epochs, probe.epochs))}}),
                    {.lr = spec.lr_for(batch),
                     .steps = probe.epochs * steps_per_epoch,
                     .steps_per_epoch = steps_per_epoch});
  for (int64_t epoch = 0, step = 0; epoch < probe.epochs; ++epoch) {
    const torch::Tensor order =
        torch::tensor(
            RandomStream(probe.seed, "linear probe", static_cast<uint64_t>(epoch)).permutation(samples),
            torch::kInt64)
            .to(device);
    for (int64_t s = 0; s < steps_per_epoch; ++s, ++step) {
      const torch::Tensor chosen = order.slice(0, s * batch, (s + 1) * batch);
      const torch::Tensor x = (train.index_select(0, chosen) - mean) * scale;
      torch::Tensor error = torch::addmm(bias, x, weight.t()).softmax(1);
      const torch::Tensor target =
          torch::full_like(error, probe.label_smoothing / static_cast<double>(classes));
      const torch::Tensor ones = torch::full({x.size(0), 1}, 1 - probe.label_smoothing, error.options());
      error = (error - target.scatter_add(1, classes_there.index_select(0, chosen).unsqueeze(1), ones)) /
              static_cast<double>(x.size(0));
      weight.mutable_grad() = error.t().mm(x);
      bias.mutable_grad() = error.sum(0);
      optimiser->step(schedule->rate(step));
    }
    if (probe.progress && !probe.progress()) throw Error(ErrorKind::interrupted, "interrupted");
  }
  std::vector<torch::Tensor> out;
  for (int64_t begin = 0; begin < test.size(0); begin += kRows) {
    const torch::Tensor x = (test.slice(0, begin, begin + kRows).to(device) - mean) * scale;
    out.push_back(torch::addmm(bias, x, weight.t()).argmax(1).cpu());
  }
  return torch::cat(out);
}

}  // namespace tessera::train
