// Operations by the kernels of a GPU, which the emulator runs on tensors of the CPU, against their compositions.
#include <ATen/autocast_mode.h>

#include "ops/attention.h"
#include "ops/convolution.h"
#include "ops/gpu.h"
#include "ops/gpu_testing.h"
#include "ops/linear.h"
#include "ops/mlstm_mixer.h"
#include "ops/norm.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

TEST(GpuOperations, NormIsItsComposition) {
  for (const bool centred : {true, false})
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      torch::manual_seed(1);
      const Tensor x = (torch::randn({3, 7, 72}) * 2 + 1).to(type).requires_grad_();
      const Tensor weight = (torch::randn({72}) + 1).requires_grad_(),
                   bias = torch::randn({72}).requires_grad_();
      const NormParameters p{weight, centred ? bias : Tensor(), 1e-5, centred};
      const std::vector<Tensor> inputs =
          centred ? std::vector<Tensor>{x, weight, bias} : std::vector<Tensor>{x, weight};
      const auto compute = [&] { return norm(x, p); };
      const auto want = [&] {
        const InferenceScope composed({.fused = false});
        const Tensor wide = x.to(torch::kFloat32);
        return with_gradients(inputs, [&] { return norm(wide, p); });
      }();
      const Emulated emulated;
      expect_close(with_gradients(inputs, compute), want, type == torch::kFloat32 ? 1e-5 : 1e-2);
      const torch::NoGradGuard no_grad;
      EXPECT_EQ(norm(x, p).scalar_type(), type);
    }
}

TEST(GpuOperations, GatedActivationIsItsComposition) {
  for (const auto kind : {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::silu})
    for (const bool gated : {false, true}) {
      torch::manual_seed(2);
      const Tensor x = torch::randn({5, 3, 40}).requires_grad_(),
                   gate = torch::randn({5, 3, 40}).requires_grad_();
      const std::vector<Tensor> inputs = gated ? std::vector<Tensor>{x, gate} : std::vector<Tensor>{x};
      const auto compute = [&] { return activation(kind, x, gated ? gate : Tensor()); };
      const auto want = with_gradients(inputs, compute);
      const Emulated emulated;
      expect_close(with_gradients(inputs, compute), want, 1e-5);
    }
}

TEST(GpuOperations, ResidualSumIsItsComposition) {
  for (const bool of_each : {false, true})
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      torch::manual_seed(5);
      const Tensor x = torch::randn({3, 7, 40}).to(type).requires_grad_(),
                   residual = torch::randn({3, 7, 40}).requires_grad_(),
                   scale = (of_each ? torch::randn({3, 80}) : torch::randn({40})).requires_grad_();
      const auto compute = [&] {
        return add_scaled(residual, x, of_each ? scale.slice(1, 40) : scale);  // a part of a modulation
      };
      const auto want = with_gradients({x, residual, scale}, compute);
      const Emulated emulated;
      const Runs runs("residual");
      expect_close(with_gradients({x, residual, scale}, compute), want,
                   type == torch::kFloat32 ? 1e-5 : 1e-2);
      EXPECT_EQ(runs.names().size(), 2u);  // the kernel's names: forward and backward
    }
}

TEST(GpuOperations, RotationIsItsComposition) {
  const std::vector<std::vector<int64_t>> tables = {{9, 8}, {3, 9, 12}, {2, 1, 9, 8}};
  for (const auto type : {torch::kFloat32, torch::kBFloat16})
    for (const auto& shape : tables) {
      torch::manual_seed(7);
      const Tensor packed = torch::randn({2, 9, 3, 3, 24}).to(type).requires_grad_(),
                   angles = torch::randn(shape);
      const auto compute = [&] {
        return rotate_pairs(packed.select(2, 1).transpose(1, 2), angles.cos(), angles.sin());
      };
      const auto want = with_gradients({packed}, compute);
      const Emulated emulated;
      const Runs runs("rotate");
      expect_close(with_gradients({packed}, compute), want, type == torch::kFloat32 ? 1e-6 : 1e-2);
      EXPECT_EQ(runs.names().size(), 2u);
      const Tensor learned = angles.cos().requires_grad_();
      with_gradients({learned}, [&] {
        return rotate_pairs(packed.select(2, 1).transpose(1, 2), learned, angles.sin());
      });
      EXPECT_EQ(runs.names().size(), 2u);  // a table with gradients is composed
    }
}

// Rows in bfloat16 under autocast and of bfloat16 images, with a border; other types and images with gradients are composed.
TEST(GpuOperations, PatchRowsAreTheirComposition) {
  torch::manual_seed(8);
  const Tensor images = torch::randn({2, 3, 36, 50});
  const auto runs_of = [](const Tensor& x, int64_t patch, Tensor* y = nullptr) {
    const Runs runs("patch rows");
    const Tensor rows = patch_rows(x, patch);
    if (y) *y = rows;
    return runs.names();
  };
  const std::vector<std::string> none;
  for (const int64_t patch : {4, 8, 14, 16}) {
    const std::vector<std::string> kernel = {patch % 8 == 0 ? "patch rows (vectors)" : "patch rows (pairs)"};
    const Tensor want = patch_rows(images, patch).to(torch::kBFloat16);
    const Tensor sixteen = torch::zeros({2, 3, 36, 56}).slice(3, 0, 50).copy_(images);
    const Emulated emulated;
    EXPECT_EQ(runs_of(images, patch), none);
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    Tensor y, of_half;
    EXPECT_EQ(runs_of(patch % 8 == 0 ? sixteen : images, patch, &y), kernel);
    EXPECT_EQ(runs_of(images.clone().requires_grad_(), patch), none);
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    EXPECT_EQ(runs_of(sixteen.to(torch::kBFloat16), patch, &of_half).size(), 1u);
    EXPECT_TRUE(torch::equal(y, want));
    EXPECT_TRUE(torch::equal(of_half, want));
  }
}

// A modulation (adaLN) is part of a wider tensor.
TEST(GpuOperations, NormOfEachSampleIsItsComposition) {
  for (const bool centred : {true, false})
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      torch::manual_seed(6);
      const Tensor x = torch::randn({3, 7, 40}).to(type).requires_grad_(),
                   modulation = torch::randn({3, 120}).requires_grad_();
      const auto compute = [&](const Tensor& in) {
        const Tensor shift = modulation.slice(1, 40, 80);
        return norm(in, {1 + modulation.slice(1, 0, 40), centred ? shift : Tensor(), 1e-6, centred});
      };
      const auto want = [&] {
        const InferenceScope composed({.fused = false});
        return with_gradients({x, modulation}, [&] { return compute(x.to(torch::kFloat32)); });
      }();
      const Emulated emulated;
      const Runs runs("norm ");
      expect_close(with_gradients({x, modulation}, [&] { return compute(x); }), want,
                   type == torch::kFloat32 ? 1e-5 : 1e-2);
      EXPECT_EQ(runs.names(), (std::vector<std::string>{"norm (rows)", "norm backward (rows)"}));
      const torch::NoGradGuard no_grad;
      expect_close({compute(x)}, {want.back()}, type == torch::kFloat32 ? 1e-5 : 1e-2);
    }
}

// A gradient as a view off any boundary, and x as a matrix with a stride.
TEST(GpuOperations, ViewsAreRead) {
  torch::manual_seed(3);
  const Tensor wide = torch::randn({9, 64}), weight = torch::ones({32});
  const Tensor x = wide.slice(1, 0, 32).detach().requires_grad_();
  const auto gradient = [&] {
    const Tensor y = norm(x, {weight, {}, 1e-5, true});
    const Tensor dy = torch::linspace(-1, 1, 1 + y.numel()).slice(0, 1).view(y.sizes());
    return torch::autograd::grad({y}, {x}, {dy})[0];
  };
  const Tensor want = gradient();
  const Emulated emulated;
  expect_close({gradient()}, {want}, 1e-5);
}

TEST(GpuOperations, AFormMayBeForcedOrForbidden) {
  const Tensor x = torch::randn({4, 16});
  const auto runs = [&] {
    const Runs of_norm("norm");
    const torch::NoGradGuard no_grad;
    norm(x, {torch::ones({16}), {}, 1e-5, true});
    return of_norm.names();
  };
  const std::vector<std::string> by_kernel = {"norm (rows)"};
  EXPECT_NE(runs(), by_kernel);
  {
    const Emulated emulated;
    EXPECT_EQ(runs(), by_kernel);
    const InferenceScope reference({.fused = false});
    EXPECT_NE(runs(), by_kernel);
  }
  {
    const Emulated emulated("rows");
    EXPECT_EQ(runs(), by_kernel);
  }
  for (const char* other : {"composition", "vectors"}) {
    const Emulated emulated(other);
    EXPECT_NE(runs(), by_kernel) << other;
  }
}

TEST(GpuOperations, WhatNoKernelTakesIsComposed) {
  const Emulated emulated;
  const torch::NoGradGuard no_grad;
  const Tensor odd = torch::randn({4, 15}), half = torch::randn({4, 16}).to(torch::kHalf);
  EXPECT_TRUE(norm(odd, {torch::ones({15}), {}, 1e-5, true}).defined());
  EXPECT_FALSE(gpu_place(half));
  EXPECT_FALSE(gpu_place(odd.to(torch::kFloat64)));
  EXPECT_TRUE(torch::equal(activation(ActivationKind::silu, odd), torch::silu(odd)));
}

MlstmMixerParameters drawn_mixer(int64_t inner, int64_t heads) {
  torch::manual_seed(4);
  MlstmMixerParameters p;
  kernels::visit_mixer_parameters(
      {2, 1, 1, inner, heads, 4, true},
      [&](const std::string& name, bool, const kernels::ParameterShape& shape, Tensor& to) {
        const double deviation = name == "input_bias" || name == "forget_bias" ? 1 : 0.4;
        to = torch::randn(at::IntArrayRef(shape.sizes.data(), shape.rank)) * deviation;
      },
      p);
  return p;
}
MlstmMixerParameters converted(MlstmMixerParameters p, torch::ScalarType type) {
  kernels::visit_mixer_parameters(
      {}, [&](const char*, bool, const kernels::ParameterShape&, Tensor& t) { t = t.to(type); }, p);
  return p;
}

// The error of a layer in bfloat16 is at most twice that of its composition: one slice with all after the cell, two
// chunks with states, and slices with composed norm, skip and gate.
TEST(GpuOperations, MlstmLayerIsAsExactAsItsComposition) {
  struct Case {
    int64_t tokens, dim, heads;
    bool reverse;
    std::vector<std::string> kernels;
  };
  const Case cases[] = {{40, 48, 2, false, {"mlstm (tile48)"}},
                        {270, 48, 1, true, {"mlstm states (rows48)", "mlstm (tile48)"}},
                        {20, 192, 1, false, {"mlstm (tile192)"}}};
  const torch::NoGradGuard no_grad;
  for (const Case& c : cases) {
    const int64_t inner = c.dim * c.heads;
    MlstmMixerOptions options;
    options.heads = c.heads, options.rows = 1, options.columns = c.tokens, options.reverse = c.reverse;
    const MlstmMixerParameters half = converted(drawn_mixer(inner, c.heads), torch::kBFloat16);
    const Tensor u = torch::randn({2, c.tokens, 2 * inner}).to(torch::kBFloat16);
    const Tensor exact =
        mlstm_mixer_unfused(u.to(torch::kFloat64), converted(half, torch::kFloat64), options);
    const auto error = [&](const Tensor& y) {
      return ((y.to(torch::kFloat64) - exact).norm() / exact.norm()).item<double>();
    };
    const double composed = error(mlstm_mixer_unfused(u, half, options));
    const Emulated emulated;
    const Runs runs("mlstm");
    EXPECT_LE(error(mlstm_mixer_unfused(u, half, options)), 2 * composed);
    EXPECT_EQ(runs.names(), c.kernels);
  }
}

// The gradients of a layer with respect to u and all parameters.
std::vector<Tensor> layer_gradients(const Tensor& u_in, MlstmMixerParameters p, torch::ScalarType type,
                                    const MlstmMixerOptions& options) {
  const Tensor u = u_in.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
  std::vector<Tensor> inputs = {u};
  kernels::visit_mixer_parameters(
      {},
      [&](const char*, bool, const kernels::ParameterShape&, Tensor& t) {
        if (t.defined()) inputs.push_back(t = t.to(type, false, /*copy=*/true).requires_grad_());
      },
      p);
  return with_gradients(inputs, [&] { return mlstm_mixer_unfused(u, p, options).to(torch::kFloat64); });
}

TEST(GpuOperations, MlstmLayerTrainsAsExactlyAsItsComposition) {
  struct Case {
    int64_t tokens, dim, heads;
    bool reverse, grid;
    std::vector<std::string> kernels;
  };
  const Case cases[] = {
      {40, 48, 2, false, false, {"mlstm (tile48)", "mlstm backward (tile48)"}},
      {36, 64, 1, true, true, {"mlstm (tile64)", "mlstm backward (tile64)"}},
      {270, 48, 1, true, false, {"mlstm states (rows48)", "mlstm (tile48)", "mlstm backward (tile48)"}}};
  for (const Case& c : cases) {
    const int64_t inner = c.dim * c.heads;
    MlstmMixerOptions options;
    options.heads = c.heads, options.rows = c.grid ? 6 : 1, options.columns = c.tokens / options.rows;
    options.reverse = c.reverse;
    MlstmMixerParameters p = converted(drawn_mixer(inner, c.heads), torch::kBFloat16);
    if (c.grid) p.conv_weight = (torch::randn({inner, 1, 3, 3}) * 0.4).to(torch::kBFloat16);
    const Tensor u = torch::randn({2, c.tokens, 2 * inner}).to(torch::kBFloat16);
    const auto exact = layer_gradients(u, p, torch::kFloat64, options);
    // The composition's cell computes in float. Sums of the gates' gradients keep the rounding of the states.
    const double states = c.tokens > 256 ? 1.5e-2 : 5e-3;
    // Gradients of gates' biases are sums that cancel: their terms are as large as others.
    double largest = 0;
    for (const Tensor& each : exact) largest = std::max(largest, each.norm().item<double>());
    const auto error = [&](const std::vector<Tensor>& got, size_t i) {
      return (got[i].to(torch::kFloat64) - exact[i]).norm().item<double>() /
             (exact[i].norm().item<double>() + 0.01 * largest);
    };
    const auto composed = layer_gradients(u, p, torch::kBFloat16, options);
    const Emulated emulated;
    const Runs runs("m");
    const auto by_kernels = layer_gradients(u, p, torch::kBFloat16, options);
    std::vector<std::string> kernels = c.kernels;
    kernels.insert(kernels.begin(), "mixer inputs (warps)"),
        kernels.push_back("mixer inputs backward (warps)");
    EXPECT_EQ(runs.names(), kernels);
    for (size_t i = 0; i < exact.size(); ++i) {
      const bool of_gates =
          i >= 9 && i <= 12;  // sums that cancel most: the composition's may be right by chance
      EXPECT_LE(error(by_kernels, i), 2 * error(composed, i) + states + (of_gates ? 2.5e-2 : 0))
          << "tensor " << i << " of D " << c.dim;
    }
  }
}

// In inference one kernel computes what precedes the cell, for sequences and grids in both directions.
TEST(GpuOperations, MixerInputsAreAsExactAsTheirComposition) {
  const torch::NoGradGuard no_grad;
  for (const bool grid : {false, true})
    for (const bool reverse : {false, true}) {
      MlstmMixerParameters p = drawn_mixer(96, 2);
      if (grid) p.conv_weight = torch::randn({96, 1, 3, 3}) * 0.4;
      MlstmMixerOptions options;
      options.heads = 2, options.rows = 3, options.columns = 5, options.reverse = reverse;
      const Tensor u = torch::randn({2, 15, 192}).to(torch::kBFloat16);
      const Tensor exact = mlstm_mixer_unfused(u.to(torch::kFloat64), converted(p, torch::kFloat64), options);
      const auto error = [&](const Tensor& y) {
        return (y.to(torch::kFloat64) - exact).norm().item<double>();
      };
      const MlstmMixerParameters half = converted(p, torch::kBFloat16);
      const double composed = error(mlstm_mixer_unfused(u, half, options));
      const Emulated emulated;
      const Runs runs("mixer inputs");
      EXPECT_LE(error(mlstm_mixer_unfused(u, half, options)), composed);
      EXPECT_EQ(runs.names(), std::vector<std::string>{"mixer inputs (warps)"});
      options.off_grid = {7};
      if (!grid) continue;
      mlstm_mixer_unfused(torch::cat({u, u.slice(1, 0, 1)}, 1), half, options);
      EXPECT_EQ(runs.names().size(), 1u);  // a token outside the grid is composed
    }
}

// The state after a sequence, for streaming after it.
TEST(GpuOperations, MlstmLayerLeavesItsLastState) {
  const torch::NoGradGuard no_grad;
  const MlstmMixerParameters half = converted(drawn_mixer(96, 2), torch::kBFloat16);
  const Tensor u = torch::randn({2, 40, 192}).to(torch::kBFloat16);
  MlstmState want, got;
  MlstmMixerOptions options;
  options.heads = 2, options.last = &want;
  mlstm_mixer_unfused(u, half, options);
  const Emulated emulated;
  options.last = &got;
  mlstm_mixer_unfused(u, half, options);
  expect_close({got.c, got.n, got.m}, {want.c, want.n, want.m}, 1e-2);
}

// Equal tables are made once for a device; others, changed ones and those of the CPU each time.
TEST(KeptTables, AreMadeOnceForEqualContents) {
  int made = 0;
  const auto table = [&](const Tensor& host, torch::Device device = torch::kMeta, double factor = 1) {
    return kept_on(device, "KeptTables", host, factor, [&](const Tensor& t) {
      ++made;
      return std::vector<Tensor>{t.to(device)};
    })[0];
  };
  const Tensor host = torch::arange(6, torch::kFloat64);
  table(host), table(host), table(torch::arange(6, torch::kFloat64));
  EXPECT_EQ(made, 1);
  table(host, torch::kMeta, 2), table(torch::arange(7, torch::kFloat64)), table(host.to(torch::kFloat32));
  EXPECT_EQ(made, 4);
  const Tensor last = torch::arange(6, torch::kFloat64);
  table(last);
  EXPECT_EQ(made, 4);
  last.add_(1);
  table(last), table(last);
  EXPECT_EQ(made, 5);
  table(host, torch::kCPU), table(host, torch::kCPU);
  EXPECT_EQ(made, 7);
}

// A graph keeps the tables that it reads, also after others took their places.
TEST(KeptTables, AreListedForAGraph) {
  const auto table = [](double value) { return kept_on(torch::kMeta, torch::full({4}, value)); };
  const Tensor first = table(0.125);
  std::vector<Tensor> outer, inner;
  {
    const HeldTables held(outer);
    EXPECT_TRUE(table(0.125).is_same(first));
    {
      const HeldTables nested(inner);
      table(0.375);
    }
    table(0.25);
  }
  table(0.5);
  ASSERT_EQ(outer.size(), 2u);
  EXPECT_TRUE(outer[0].is_same(first));
  EXPECT_EQ(inner.size(), 1u);
}

// A result that was made in inference mode serves a training as well, and a changed table of that mode is made again.
TEST(KeptTables, AreUsableOutsideOfInferenceMode) {
  const auto table = [](const Tensor& host) {
    return kept_on(torch::kMeta, "Inference", host, 1, [](const Tensor& t) {
      return std::vector<Tensor>{t.to(torch::kMeta) * t.sum().item<double>()};
    })[0];
  };
  Tensor kept;
  {
    const c10::InferenceMode inference;
    const Tensor host = torch::ones({3}, torch::kFloat64);
    kept = table(host);
    EXPECT_TRUE(table(host).is_same(kept));
    host.add_(1);
    EXPECT_FALSE(table(host).is_same(kept));
  }
  EXPECT_FALSE(kept.is_inference());
  const Tensor x =
      torch::ones({3}, torch::TensorOptions(torch::kFloat64).device(torch::kMeta)).requires_grad_();
  EXPECT_NO_THROW((x * kept).sum().backward());
}

// Results are bounded by their bytes, and one that makes another is no deadlock.
TEST(KeptTables, AreBoundedAndMadeWithoutALock) {
  int made = 0;
  const auto table = [&](double value) {
    const Tensor host = torch::full({int64_t{1} << 20}, value, torch::kFloat64);  // 8 MiB
    kept_on(torch::kMeta, "Bounded", host, 1, [&](const Tensor& t) {
      ++made;
      kept_on(torch::kMeta, torch::full({3}, value));
      return std::vector<Tensor>{t.to(torch::kMeta)};
    });
  };
  for (int i = 0; i < 9; ++i) table(i);
  EXPECT_EQ(made, 9);
  table(8), table(7);
  EXPECT_EQ(made, 9);
  table(0);
  EXPECT_EQ(made, 10);
}

TEST(GpuOperations, AConvolutionMayWalkBackwards) {
  torch::manual_seed(5);
  const Tensor x = torch::randn({2, 12, 8}), bias = torch::randn({8});
  for (const Tensor& weight : {torch::randn({8, 1, 3, 3}), torch::randn({8, 1, 4}), torch::randn({8, 1, 5})})
    for (const bool causal : {true, false}) {
      if (!causal && weight.size(-1) == 4) continue;
      const Tensor want = sequence_conv(x.flip(1), weight, bias, 3, 4, causal).flip(1);
      expect_close({sequence_conv(x, weight, bias, 3, 4, causal, /*reverse=*/true)}, {want}, 1e-6);
    }
}

}  // namespace
}  // namespace tessera::ops
