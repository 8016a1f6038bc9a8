// Measures the optimiser step on the parameters of a ViT-B (86 M, float32) relative to memory bandwidth: the
// loops, the composition of tensor operations, and ATen's fused AdamW, taking turns in one process.
//
//   optimiser_bench [SECONDS] prints one line each: median and fastest ms, bytes that the arithmetic moves,
//   GB/s
#include "ops/torch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "core/threads.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/optimiser.h"

namespace tessera::train {
namespace {

NamedTensors vit_base() {
  NamedTensors parameters;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    parameters.emplace_back(name, (0.02 * torch::randn(shape)).requires_grad_());
  };
  add("cls_token", {1, 1, 768}), add("pos_embed", {1, 197, 768});
  add("patch_embed.proj.weight", {768, 3, 16, 16}), add("patch_embed.proj.bias", {768});
  for (int block = 0; block < 12; ++block) {
    const std::string at = "blocks." + std::to_string(block) + ".";
    for (const char* norm : {"norm1", "norm2"})
      add(at + norm + ".weight", {768}), add(at + norm + ".bias", {768});
    add(at + "attn.qkv.weight", {2304, 768}), add(at + "attn.qkv.bias", {2304});
    add(at + "attn.proj.weight", {768, 768}), add(at + "attn.proj.bias", {768});
    add(at + "mlp.fc1.weight", {3072, 768}), add(at + "mlp.fc1.bias", {3072});
    add(at + "mlp.fc2.weight", {768, 3072}), add(at + "mlp.fc2.bias", {768});
  }
  add("norm.weight", {768}), add("norm.bias", {768}), add("head.weight", {1000, 768}),
      add("head.bias", {1000});
  return parameters;
}

struct Candidate {
  std::string name;
  double arrays;  // number of float32 arrays of the model's size that are read or written
  std::function<void()> run;
  std::vector<double> times = {};
};

std::unique_ptr<Optimiser> make(const std::string& name, const NamedTensors& parameters, bool composition) {
  auto optimiser = make_optimiser(resolve_optimiser(Value(Value::Table{{"name", name}})),
                                  make_parameter_groups(parameters, GroupOptions{}));
  optimiser->use_composition(composition);
  return optimiser;
}

// ATen's fused version: one call for all parameters.
std::function<void()> aten_fused_adamw(const NamedTensors& named) {
  std::vector<torch::Tensor> p, g, m, v, steps;
  for (const auto& [name, parameter] : named) {
    p.push_back(parameter.detach()), g.push_back(parameter.grad());
    m.push_back(torch::zeros_like(p.back())), v.push_back(torch::zeros_like(p.back()));
    steps.push_back(torch::ones({}));
  }
  return [=] {
    at::_fused_adamw_(p, g, m, v, {}, steps, /*lr=*/1e-6, /*beta1=*/0.9, /*beta2=*/0.999,
                      /*weight_decay=*/0.05,
                      /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
  };
}

void run(double seconds) {
  const torch::NoGradGuard no_grad;
  const NamedTensors parameters = vit_base();
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() = torch::randn_like(parameter);
    count += parameter.numel();
  }
  const torch::Tensor from = torch::ones({count}), to = torch::ones({count});
  auto adamw = make("adamw", parameters, false), composed = make("adamw", parameters, true);
  auto lamb = make("lamb", parameters, false);
  const auto all = adamw->parameters();
  Ema ema({}, parameters);
  std::vector<torch::Tensor> averages, models;
  for (const auto& [name, parameter] : parameters) {
    models.push_back(parameter.detach()), averages.push_back(parameter.detach().clone());
  }
  std::vector<Candidate> candidates = {
      {"copy (the memory's limit)", 2, [&] { to.copy_(from); }},
      {"triad a = a*x + b*y (limit with two reads)", 3, [&] { to.mul_(0.5).add_(from, 0.5); }},
      {"gradient norm", 1,
       [&] {
         clip_gradients({"norm", 1, 2}, all);
       }},
      {"adamw", 7, [&] { adamw->step(1e-6); }},
      {"adamw, composition", 7, [&] { composed->step(1e-6); }},
      {"adamw, ATen's fused", 7, aten_fused_adamw(parameters)},
      {"lamb", 11, [&] { lamb->step(1e-6); }},
      {"ema", 3, [&] { ema.update(parameters); }},
      {"ema, composition", 3, [&] { at::_foreach_lerp_(averages, models, 1e-4); }},
      {"norm + adamw + ema", 11,
       [&] {
         const Clipped clipped = clip_gradients({"norm", 1, 2}, all);
         adamw->step(1e-6, clipped.scale);
         ema.update(parameters);
       }},
  };
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  for (Candidate& candidate : candidates) candidate.run();
  const double start = now();
  for (int round = 0; round < 5 || now() - start < seconds; ++round)
    for (Candidate& candidate : candidates) {
      const double begin = now();
      candidate.run();
      candidate.times.push_back(now() - begin);
    }
  std::printf("%lld parameters, %d threads\n", static_cast<long long>(count), num_threads());
  for (Candidate& candidate : candidates) {
    std::sort(candidate.times.begin(), candidate.times.end());
    const double median = candidate.times[candidate.times.size() / 2], fastest = candidate.times[0];
    const double bytes = 4 * candidate.arrays * static_cast<double>(count);
    std::printf("%-44s %8.1f ms %8.1f ms  %5.2f GB  %6.1f GB/s\n", candidate.name.c_str(), 1e3 * median,
                1e3 * fastest, 1e-9 * bytes, 1e-9 * bytes / fastest);
  }
}

}  // namespace
}  // namespace tessera::train

int main(int argc, char** argv) {
  tessera::train::run(argc > 1 ? std::atof(argv[1]) : 10);
  return 0;
}
