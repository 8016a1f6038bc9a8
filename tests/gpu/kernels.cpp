// Compares each operation by the kernels of a GPU with its composition of LibTorch's operations, both against float64:
//
//   tessera-gpu-kernels [--emulated] [PART…]   a row for each case with PART in its name; ends with 1 if one fails
//
// A kernel's error, in the result and in each gradient, may be twice that of the composition in the same types, and three runs have
// the same bits. --emulated: small sizes on the host.
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "core/value.h"
#include "open/device.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/gpu_testing.h"
#include "ops/linear.h"
#include "ops/mlstm_mixer.h"
#include "optim/optimiser.h"

namespace tessera {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

enum class Way { exact, composed, kernels };

struct Case {
  std::string name;
  const char* kernel;  // begins the names of its kernels
  std::function<Tensors(Way way)> run;
  double slack = 0;  // relative error that is allowed anyway
};

torch::Device device = torch::kCPU;
bool small = false;
int64_t sized(int64_t size, int64_t emulated) { return small ? emulated : size; }

constexpr auto kHalf = torch::kBFloat16, kFloat = torch::kFloat32;

Tensor drawn(at::IntArrayRef shape, torch::ScalarType type, double size = 1) {
  return (torch::randn(shape) * size).to(type).to(device);
}

// A case of an operation: gradients of all inputs, then the result.
Case operation(std::string name, const char* kernel, const Tensors& inputs,
               const std::function<Tensor(const Tensors&)>& compute, double slack = 0) {
  const auto run = [=](Way way) {
    const ops::InferenceScope scope({.fused = way == Way::kernels});
    Tensors own;
    for (const Tensor& x : inputs) {
      const auto type = way == Way::exact ? torch::kFloat64 : x.scalar_type();
      own.push_back(x.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
    }
    const Tensor y = compute(own);
    const Tensor weight =
        torch::linspace(-1, 1, y.numel(), y.options().dtype(torch::kFloat64)).view(y.sizes());
    Tensors all = torch::autograd::grad({(y.to(torch::kFloat64) * weight.detach()).sum()}, own);
    all.push_back(y.detach());
    return all;
  };
  return {std::move(name), kernel, run, slack};
}

void add_rows(std::vector<Case>& cases) {
  const int64_t samples = sized(64, 2), tokens = sized(197, 5), width = sized(384, 24);
  for (const auto type : {kFloat, kHalf}) {
    const std::string of = type == kHalf ? ", bf16" : ", fp32";
    const Tensor x = drawn({samples, tokens, width}, type), weight = drawn({width}, kFloat),
                 bias = drawn({width}, kFloat), each = drawn({samples, 2 * width}, kFloat);
    cases.push_back(operation("layer norm" + of, "norm", {x, weight, bias}, [](const Tensors& in) {
      return ops::norm(in[0], {in[1], in[2], 1e-6, true});
    }));
    cases.push_back(operation("RMS norm" + of, "norm", {x, weight}, [](const Tensors& in) {
      return ops::norm(in[0], {in[1], {}, 1e-6, false});
    }));
    cases.push_back(operation("norm of each sample" + of, "norm", {x, each}, [=](const Tensors& in) {
      return ops::norm(in[0], {1 + in[1].slice(1, 0, width), in[1].slice(1, width), 1e-6, true});
    }));
    for (const auto kind :
         {ops::ActivationKind::gelu, ops::ActivationKind::gelu_tanh, ops::ActivationKind::silu}) {
      const std::string what = "activation " + std::to_string(static_cast<int>(kind));
      cases.push_back(operation(what + of, "activation", {x},
                                [=](const Tensors& in) { return ops::activation(kind, in[0]); }));
      cases.push_back(operation(what + " with a gate" + of, "activation", {x, drawn(x.sizes(), type)},
                                [=](const Tensors& in) { return ops::activation(kind, in[0], in[1]); }));
    }
    cases.push_back(operation("residual" + of, "residual", {drawn(x.sizes(), kFloat), x, weight},
                              [](const Tensors& in) { return ops::add_scaled(in[0], in[1], in[2]); }));
    cases.push_back(
        operation("residual of each sample" + of, "residual", {drawn(x.sizes(), kFloat), x, each},
                  [=](const Tensors& in) { return ops::add_scaled(in[0], in[1], in[2].slice(1, width)); }));
  }
}

void add_heads(std::vector<Case>& cases) {
  const int64_t batch = sized(16, 1), heads = sized(6, 2);
  for (const int64_t tokens : {sized(197, 20), sized(256, 33)}) {
    const Tensor angles = drawn({tokens, 32}, kFloat);
    Tensors inputs;
    for (int i = 0; i < 3; ++i) inputs.push_back(drawn({batch, tokens, heads, 64}, kHalf).transpose(1, 2));
    const std::string of = std::to_string(tokens) + " tokens";
    cases.push_back(operation("rotation of " + of, "rotate", {inputs[0]}, [=](const Tensors& in) {
      const Tensor own = in[0].scalar_type() == torch::kFloat64 ? angles.to(torch::kFloat64) : angles;
      return ops::rotate_pairs(in[0], own.cos(), own.sin());
    }));
    for (const bool causal : {false, true})
      cases.push_back(operation(
          "attention of " + of + (causal ? ", causal" : ""), "attention", inputs,
          [=](const Tensors& in) { return ops::attention(in[0], in[1], in[2], {.causal = causal}); }, 4e-3));
  }
}

ops::MlstmMixerParameters mixer_parameters(int64_t inner, int64_t heads) {
  ops::MlstmMixerParameters p;
  kernels::visit_mixer_parameters(
      {2, 1, 1, inner, heads, 4, true},
      [&](const std::string& name, bool, const kernels::ParameterShape& shape, Tensor& to) {
        const double size = name == "input_bias" || name == "forget_bias" ? 1 : 0.15;
        to = drawn(at::IntArrayRef(shape.sizes.data(), static_cast<size_t>(shape.rank)), kHalf, size);
      },
      p);
  return p;
}

// A whole mixer: its inputs' kernel and the cell, with all gradients.
void add_mixers(std::vector<Case>& cases) {
  for (const int64_t dim : {48, 96, 192, 384}) {
    if (small && dim > 48) continue;
    for (const int64_t tokens : {sized(196, 40), sized(1024, 270)}) {
      const int64_t heads = 2, inner = heads * dim;
      const ops::MlstmMixerParameters p = mixer_parameters(inner, heads);
      Tensors inputs = {drawn({sized(4, 1), tokens, 2 * inner}, kHalf)};
      kernels::visit_mixer_parameters(
          {},
          [&](const char*, bool, const kernels::ParameterShape&, const Tensor& t) { inputs.push_back(t); },
          p);
      const auto compute = [=](const Tensors& in) {
        ops::MlstmMixerParameters own = p;
        size_t next = 1;
        kernels::visit_mixer_parameters(
            {}, [&](const char*, bool, const kernels::ParameterShape&, Tensor& t) { t = in[next++]; }, own);
        ops::MlstmMixerOptions options;
        options.heads = heads, options.rows = 1, options.columns = tokens, options.reverse = tokens % 2 != 0;
        return ops::mlstm_mixer_unfused(in[0], own, options);
      };
      // Gradients of the gates' biases are sums that cancel, with the rounding of states in bfloat16 from the second chunk on; the
      // composition's cell computes in float.
      cases.push_back(operation(text("mLSTM mixer, heads of ", dim, ", ", tokens, " tokens"), "m", inputs,
                                compute, 6e-2));
    }
  }
}

// A token after `before` others in a cache, without gradients.
void add_cache(std::vector<Case>& cases) {
  const int64_t before = sized(700, 130), room = sized(1024, 200), dim = 64;
  const Tensor q = drawn({2, 8, 1, dim}, kHalf), k = drawn({2, 2, 1, dim}, kHalf),
               v = drawn({2, 2, 1, dim}, kHalf), keys = drawn({2, 2, room, dim}, kHalf),
               values = drawn({2, 2, room, dim}, kHalf);
  const auto run = [=](Way way) -> Tensors {
    const torch::NoGradGuard no_grad;
    const ops::InferenceScope scope({.fused = way == Way::kernels});
    const auto own = [&](const Tensor& x) {
      return x.to(way == Way::exact ? torch::kFloat64 : kHalf, /*non_blocking=*/false, /*copy=*/true);
    };
    ops::CachedAttentionOptions options;
    options.before = torch::full({1}, before, torch::TensorOptions(torch::kInt64).device(device));
    return {ops::cached_attention(own(q), own(k), own(v), own(keys), own(values), options)};
  };
  cases.push_back({"attention to a cache", "cached attention", run, 4e-3});
}

// Three steps of an optimiser.
void add_optimisers(std::vector<Case>& cases) {
  for (const std::string name : {"adamw", "adam", "sgd", "lars", "lamb"}) {
    const Tensors weights = {drawn({sized(1000, 50), 97}, kFloat), drawn({17}, kFloat)};
    Tensors gradients;
    for (int i = 0; i < 6; ++i)
      gradients.push_back(drawn(weights[static_cast<size_t>(i % 2)].sizes(), kFloat));
    const auto run = [=](Way way) {
      const auto type = way == Way::exact ? torch::kFloat64 : kFloat;
      train::ParameterGroup group;
      group.weight_decay = 0.05;
      for (const Tensor& w : weights)
        group.parameters.emplace_back(std::to_string(group.parameters.size()),
                                      w.to(type, false, /*copy=*/true).requires_grad_());
      const auto optimiser =
          train::make_optimiser(train::resolve_optimiser(Value(Value::Table{{"name", name}})), {group});
      optimiser->use_composition(way != Way::kernels);
      Tensors parameters = optimiser->parameters();
      for (size_t step = 0; step < 3; ++step) {
        for (size_t i = 0; i < 2; ++i) parameters[i].mutable_grad() = gradients[2 * step + i].to(type);
        optimiser->step(0.01, 0.5);
      }
      for (Tensor& p : parameters) p = p.detach();
      return parameters;
    };
    cases.push_back({"steps of " + name, "optimiser", run, 1e-6});
  }
}

// Returns the relative error of each tensor; small ones count next to the others.
std::vector<double> errors_of(const Tensors& got, const Tensors& exact) {
  double largest = 0;
  for (const Tensor& each : exact) largest = std::max(largest, each.norm().item<double>());
  std::vector<double> errors;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double size = exact[i].norm().item<double>() + 1e-2 * largest + 1e-30,
                 error = (got[i].to(torch::kFloat64) - exact[i]).norm().item<double>() / size;
    errors.push_back(std::isfinite(error) ? error : HUGE_VAL);
  }
  return errors;
}

bool passes(const Case& c) {
  const Tensors exact = c.run(Way::exact);
  const std::vector<double> composed = errors_of(c.run(Way::composed), exact);
  const ops::Runs runs(c.kernel);
  const Tensors first = c.run(Way::kernels);
  const bool by_kernel = !runs.names().empty();
  bool same = true, as_exact = true;
  for (int again = 0; again < 2; ++again) {
    const Tensors next = c.run(Way::kernels);
    for (size_t i = 0; i < first.size(); ++i) same = same && torch::equal(first[i], next[i]);
  }
  const std::vector<double> errors = errors_of(first, exact);
  for (size_t i = 0; i < errors.size(); ++i)
    as_exact = as_exact && errors[i] <= 2 * std::max(composed[i], 1e-6) + c.slack;
  const char* const result = !by_kernel  ? "FAILED: no kernel takes it"
                             : !same     ? "FAILED: runs differ"
                             : !as_exact ? "FAILED: the kernel is less exact"
                                         : "passed";
  std::printf("%-44s %9.2e composed %9.2e by kernels  %s\n", c.name.c_str(),
              *std::max_element(composed.begin(), composed.end()),
              *std::max_element(errors.begin(), errors.end()), result);
  return by_kernel && same && as_exact;
}

int run(int argc, char** argv) {
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    small = small || std::strcmp(argv[i], "--emulated") == 0;
    if (std::strcmp(argv[i], "--emulated") != 0) parts.emplace_back(argv[i]);
  }
  if (small)
    kernels::gpu::use_table(tessera_gpu_table());
  else
    device = train::choose_device("cuda");
  torch::manual_seed(1);
  std::vector<Case> cases;
  add_rows(cases), add_heads(cases), add_mixers(cases), add_cache(cases), add_optimisers(cases);
  int failed = 0, counted = 0;
  for (const Case& c : cases) {
    const auto named = [&](const std::string& part) { return c.name.find(part) != std::string::npos; };
    if (!parts.empty() && std::none_of(parts.begin(), parts.end(), named)) continue;
    ++counted, failed += !passes(c);
  }
  std::printf("%d of %d cases failed\n", failed, counted);
  kernels::gpu::use_table(nullptr);
  return failed > 0 || counted == 0 ? 1 : 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    return tessera::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera-gpu-kernels: %s\n", error.what());
    return 2;
  }
}
