// Linear layers by cuBLASLt's products, which a library of the test computes on the host, against the formula in double.
#include <ATen/autocast_mode.h>

#include "core/recording.h"
#include "kernels/gpu/cublaslt_testing.h"
#include "ops/gpu_testing.h"
#include "ops/linear.h"

namespace tessera::ops {
namespace {

using kernels::Activation;
using kernels::gpu_testing::StandIn;
using torch::Tensor;

struct Case {
  Activation activation = Activation::none;
  bool bias = true, scale = false, of_samples = false, norm = false;
  torch::ScalarType residual = torch::ScalarType::Undefined;
  int64_t forward = 1, trained = 3;  // products of a pass without gradients, and of one with them
};
const Case kCases[] = {
    {},
    {.bias = false},
    {.norm = true},
    {.residual = torch::kFloat32},
    {.scale = true, .residual = torch::kFloat32},
    {.bias = false, .scale = true, .residual = torch::kBFloat16},
    {.scale = true, .of_samples = true, .residual = torch::kFloat32},
    {.scale = true},
    {.activation = Activation::gelu},
    {.activation = Activation::gelu_tanh},
    {.activation = Activation::silu_gate, .bias = false, .forward = 2, .trained = 6},
};

// Tensors of a layer with 3 samples of 5 tokens, 24 -> 40 channels, in numbers of bfloat16.
struct Layer {
  explicit Layer(const Case& c) : of(c) {
    torch::manual_seed(9);
    const auto draw = [](at::IntArrayRef shape, double size = 1) {
      return (torch::randn(shape) * size).to(torch::kBFloat16).to(torch::kFloat32).requires_grad_();
    };
    x = draw({3, 5, 24}), p.weight = draw({40, 24}, 0.3), p.activation = c.activation;
    if (c.bias) p.bias = draw({40});
    if (c.activation == Activation::silu_gate) p.gate = draw({40, 24}, 0.3);
    if (c.scale) p.scale = c.of_samples ? draw({3, 40}) : draw({40});
    if (c.norm) norm = {draw({24}), draw({24}), 1e-5, true};
    if (c.residual != torch::ScalarType::Undefined) residual = draw({3, 5, 40});
  }
  std::vector<Tensor> inputs() const {
    std::vector<Tensor> all;
    for (const Tensor& t : {x, p.weight, p.bias, p.gate, p.scale, norm.weight, norm.bias, residual})
      if (t.defined()) all.push_back(t);
    return all;
  }
  Tensor computed() const {
    return linear(x, p, residual.defined() ? residual.to(of.residual) : residual, cache, norm);
  }
  Tensor exact() const {
    const auto wide = [](const Tensor& t) { return t.defined() ? t.to(torch::kFloat64) : t; };
    LinearParameters q = p;
    q.weight = wide(p.weight), q.bias = wide(p.bias), q.gate = wide(p.gate), q.scale = wide(p.scale);
    const Tensor in =
        norm.defined() ? ops::norm(wide(x), {wide(norm.weight), wide(norm.bias), 1e-5, true}) : wide(x);
    return linear_unfused(in, q, wide(residual));
  }
  Case of;
  Tensor x, residual;
  LinearParameters p;
  NormParameters norm;
  mutable LinearCache cache;
};

class HalfAutocast {
 public:
  HalfAutocast() { at::autocast::set_autocast_enabled(torch::kCPU, true); }
  ~HalfAutocast() { at::autocast::set_autocast_enabled(torch::kCPU, false); }
  HalfAutocast(const HalfAutocast&) = delete;
  HalfAutocast& operator=(const HalfAutocast&) = delete;
};

// A rounding to bfloat16 is off by 2^-9 at most, and a layer has up to four of them. Sums over rows cancel in part.
constexpr double kTolerance = 1e-2;

TEST(GpuProducts, LayersAreTheirFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(&c - kCases);
    const Layer layer(c);
    const auto want = with_gradients(layer.inputs(), [&] { return layer.exact(); });
    const StandIn library;
    const HalfAutocast autocast;
    const int64_t before = library.products();
    expect_close(with_gradients(layer.inputs(), [&] { return layer.computed(); }), want, kTolerance);
    EXPECT_EQ(library.products() - before, c.trained);
    const torch::NoGradGuard no_grad;
    const Tensor y = layer.computed();
    EXPECT_EQ(library.products() - before, c.trained + c.forward);
    expect_close({y}, {want.back()}, kTolerance);
    const bool floats =
        c.residual == torch::kFloat32 || (c.scale && c.residual == torch::ScalarType::Undefined);
    EXPECT_EQ(y.scalar_type(), floats ? torch::kFloat32 : torch::kBFloat16);
  }
}

// The same bits in every run, and of the forward pass with gradients as without, where a recomputation repeats it.
TEST(GpuProducts, RepeatTheirBits) {
  const Layer layer(kCases[4]);
  const StandIn library;
  const HalfAutocast autocast;
  const auto first = with_gradients(layer.inputs(), [&] { return layer.computed(); });
  const auto second = with_gradients(layer.inputs(), [&] { return layer.computed(); });
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i])) << i;
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(layer.computed(), first.back()));
}

// GELU in the product has no gradient, so that a pass with gradients to follow does not use it.
TEST(GpuProducts, ARecomputedLayerRepeatsItsFirstPass) {
  const Layer layer(kCases[9]);
  const StandIn library;
  const HalfAutocast autocast;
  const Tensor recorded = layer.computed();
  const InferenceScope follow({.gradients_follow = true});
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(layer.computed(), recorded));
}

// Only what is trained is computed.
TEST(GpuProducts, FrozenParametersHaveNoProduct) {
  Layer layer(kCases[4]);
  layer.p.weight.requires_grad_(false), layer.p.bias.requires_grad_(false),
      layer.p.scale.requires_grad_(false);
  const StandIn library;
  const HalfAutocast autocast;
  const int64_t before = library.products();
  with_gradients({layer.x, layer.residual}, [&] { return layer.computed(); });
  EXPECT_EQ(library.products() - before, 2);
}

// Without an algorithm for an epilogue the steps are computed alone.
TEST(GpuProducts, RefusedEpiloguesAreComposed) {
  for (const size_t i : {size_t{0}, size_t{4}, size_t{9}})
    for (const uint32_t refused : {4u, 36u, 512u}) {
      const Layer layer(kCases[i]);
      const auto want = with_gradients(layer.inputs(), [&] { return layer.exact(); });
      const StandIn library;
      const HalfAutocast autocast;
      library.refuse(refused);
      expect_close(with_gradients(layer.inputs(), [&] { return layer.computed(); }), want, kTolerance);
      const torch::NoGradGuard no_grad;
      expect_close({layer.computed()}, {want.back()}, kTolerance);
      library.refuse(refused, false);
    }
}

// An MLP of 3 samples of 5 tokens, 24 -> 40 -> 16 channels.
struct Mlp {
  explicit Mlp(const Case& c) : first({.norm = c.norm}), last(c) {
    const auto draw = [](at::IntArrayRef shape, double size = 1) {
      return (torch::randn(shape) * size).to(torch::kBFloat16).to(torch::kFloat32).requires_grad_();
    };
    last.p.weight = draw({16, 40}, 0.3);
    if (c.bias) last.p.bias = draw({16});
    if (c.scale) last.p.scale = c.of_samples ? draw({3, 16}) : draw({16});
    if (c.residual != torch::ScalarType::Undefined) last.residual = draw({3, 5, 16});
    first.p.activation = Activation::gelu_tanh;
  }
  std::vector<Tensor> inputs() const {
    std::vector<Tensor> all = first.inputs();
    for (const Tensor& t : {last.p.weight, last.p.bias, last.p.scale, last.residual})
      if (t.defined()) all.push_back(t);
    return all;
  }
  std::optional<Tensor> computed() const {
    const Tensor residual = last.residual.defined() ? last.residual.to(last.of.residual) : last.residual;
    return gelu_mlp_in_products(first.x, first.norm, first.p, last.p, residual);
  }
  Tensor exact() {
    last.x = first.exact(), last.norm = {};
    return last.exact();
  }
  Layer first, last;
};
const Case kLastCases[] = {
    {},
    {.bias = false, .norm = true},
    {.scale = true, .residual = torch::kFloat32},
    {.scale = true, .of_samples = true, .norm = true, .residual = torch::kFloat32},
    {.residual = torch::kBFloat16},
};

// Two products forward, and four of gradients. GELU has no pass of its own.
TEST(GpuProducts, MlpsAreTheirFormula) {
  for (const Case& c : kLastCases) {
    SCOPED_TRACE(&c - kLastCases);
    Mlp mlp(c);
    const auto want = with_gradients(mlp.inputs(), [&] { return mlp.exact(); });
    const StandIn library;
    const HalfAutocast autocast;
    const int64_t before = library.products();
    const auto got = with_gradients(mlp.inputs(), [&] { return *mlp.computed(); });
    EXPECT_EQ(library.products() - before, 6);
    expect_close(got, want, kTolerance);
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(mlp.computed());
    const InferenceScope follow({.gradients_follow = true});
    EXPECT_TRUE(torch::equal(*mlp.computed(), got.back()));  // a pass that is recomputed
  }
}

TEST(GpuProducts, MlpsWithRefusedEpiloguesAreComposed) {
  for (const uint32_t refused : {160u, 164u, 192u})
    for (const bool bias : {true, false}) {
      Mlp mlp({.norm = true, .residual = torch::kFloat32});
      if (!bias) mlp.first.p.bias.reset();
      const auto want = with_gradients(mlp.inputs(), [&] { return mlp.exact(); });
      const StandIn library;
      const HalfAutocast autocast;
      library.refuse(refused);
      expect_close(with_gradients(mlp.inputs(), [&] { return *mlp.computed(); }), want, kTolerance);
      library.refuse(refused, false);
    }
}

TEST(GpuProducts, FrozenMlpsHaveGradientsOfTheirInputAlone) {
  Mlp mlp({.residual = torch::kFloat32});
  for (const Tensor& t : {mlp.first.p.weight, mlp.first.p.bias, mlp.last.p.weight, mlp.last.p.bias})
    t.requires_grad_(false);
  const auto want = with_gradients({mlp.first.x}, [&] { return mlp.exact(); });
  const StandIn library;
  const HalfAutocast autocast;
  const int64_t before = library.products();
  expect_close(with_gradients({mlp.first.x}, [&] { return *mlp.computed(); }), want, kTolerance);
  EXPECT_EQ(library.products() - before, 4);
}

TEST(GpuProducts, OtherMlpsAreNotTaken) {
  Mlp mlp({});
  EXPECT_FALSE(mlp.computed());  // no library
  const StandIn library;
  EXPECT_FALSE(mlp.computed());  // floats without autocast
  const HalfAutocast autocast;
  mlp.last.p.weight = torch::randn({10, 40}), mlp.last.p.bias.reset();
  EXPECT_FALSE(mlp.computed());
}

TEST(GpuProducts, OtherLayersAreComposed) {
  const StandIn library;
  const LinearParameters fits{torch::randn({16, 24})}, narrow{torch::randn({10, 24})},
      odd{torch::randn({16, 20})};
  const auto taken = [](const Tensor& x, const LinearParameters& p, const Tensor& residual = {}) {
    return product_place(x, p, residual).has_value();
  };
  const Tensor x = torch::randn({2, 24}), half = x.to(torch::kBFloat16);
  EXPECT_TRUE(taken(half, fits));
  EXPECT_FALSE(taken(x, fits));  // floats without autocast
  EXPECT_FALSE(taken(half, narrow));
  EXPECT_FALSE(taken(torch::randn({2, 20}).to(torch::kBFloat16), odd));
  EXPECT_FALSE(taken(half, fits, torch::randn({16})));  // a residual for all rows
  const InferenceScope reference({.fused = false});
  EXPECT_FALSE(taken(half, fits));
}

// A copy of the weight gives the bits of the cast, in LibTorch's products and in cuBLASLt's.
TEST(HalfWeights, GiveTheBitsOfACast) {
  for (const bool by_library : {false, true}) {
    torch::manual_seed(5);
    const Tensor x = torch::randn({2, 3, 24}).requires_grad_(),
                 weight = torch::randn({16, 24}).requires_grad_(), bias = torch::randn({16}).requires_grad_();
    std::optional<StandIn> library;
    if (by_library) library.emplace();
    const HalfAutocast autocast;
    LinearCache cache;
    const auto computed = [&] {
      return with_gradients({x, weight, bias}, [&] {
        return by_library ? linear(x, {weight, bias}, {}, cache) : linear_unfused(x, {weight, bias}, {});
      });
    };
    const auto want = computed();
    keep_half(weight, weight.detach().to(torch::kBFloat16));
    const auto got = computed();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::equal(got[i], want[i])) << i;
    keep_half(weight, torch::zeros({16, 24}, torch::kBFloat16));
    EXPECT_FALSE(torch::equal(computed().back(), want.back())) << "the copy is not read";
    forget_half(weight);
    EXPECT_TRUE(torch::equal(computed().back(), want.back()));
  }
}

TEST(HalfWeights, EndWithTheirWeight) {
  const Tensor half = torch::zeros({16, 24}, torch::kBFloat16);
  Tensor weight = torch::randn({16, 24});
  EXPECT_FALSE(half_of(weight).defined());
  keep_half(weight, half);
  EXPECT_TRUE(half_of(weight).is_same(half));
  EXPECT_TRUE(half_or(weight).is_same(weight));  // without autocast
  {
    const Recording recording;
    EXPECT_FALSE(half_of(weight).defined());
  }
  weight.set_data(weight.clone());  // other memory
  EXPECT_FALSE(half_of(weight).defined());
  keep_half(weight, half);
  weight.add_(1);
  EXPECT_FALSE(half_of(weight).defined());
  keep_half(weight, half);
  weight = torch::randn({16, 24});
  EXPECT_FALSE(half_of(weight).defined());
}

TEST(GpuProducts, AreOffWithoutTheirName) {
  const StandIn library;
  const Emulated emulated;  // TESSERA_GPU is empty
  EXPECT_FALSE(product_place(torch::randn({2, 24}).to(torch::kBFloat16), {torch::randn({16, 24})}, {}));
}

}  // namespace
}  // namespace tessera::ops
