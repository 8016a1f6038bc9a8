// Random settings of every family, with widths and windows that fit no block of a kernel: what the fused
// operations compute in float32, without gradients and with them, against their compositions in float64.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/value.h"
#include "ops/inference.h"
#include "tests/contract/tiny.h"
#include "weights/name_tables.h"

namespace tessera::models {
namespace {

constexpr int64_t kDraws = 12;  // of each family

class Draw {
 public:
  Draw(const std::string& family, int64_t number)
      : random_(7, "random settings of " + family, static_cast<uint64_t>(number)) {}
  int64_t of(int64_t low, int64_t high) { return random_.integer(low, high); }
  bool coin() { return random_.chance(0.5); }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[random_.below(choices.size())];
  }

 private:
  RandomStream random_;
};

Value list(const std::vector<int64_t>& items) { return Value(Value::Array(items.begin(), items.end())); }

Value image(int64_t height, int64_t width) { return list({height, width}); }

// One grid: heads of any width, a grid of one cell or of sides that differ.
Value isotropic(Draw& draw, int64_t head_step) {
  Value settings;
  const int64_t patch = draw.of(1, 5), heads = draw.of(1, 5);
  settings.set("patch_size", patch);
  settings.set("heads", heads);
  settings.set("dim", heads * head_step * draw.of(1, 24 / head_step));
  settings.set("depth", draw.of(1, 2));
  settings.set("classes", draw.of(0, 3));
  settings.set("image_size", image(patch * draw.of(1, 6), patch * draw.of(1, 9)));
  return settings;
}

// Stages whose windows need not divide the grid.
Value pyramid(Draw& draw, int64_t head_step) {
  Value settings;
  const int64_t stages = draw.of(2, 4), patch = draw.of(1, 4);
  std::vector<int64_t> dims, depths, heads;
  for (int64_t s = 0; s < stages; ++s) {
    heads.push_back(draw.of(1, 3));
    dims.push_back(heads.back() * head_step * draw.of(1, 12 / head_step));
    depths.push_back(draw.of(1, 2));
  }
  settings.set("dims", list(dims));
  settings.set("depths", list(depths));
  settings.set("heads", list(heads));
  settings.set("patch_size", patch);
  settings.set("classes", draw.of(0, 3));
  settings.set("image_size", image((patch << stages) * draw.of(1, 3), (patch << stages) * draw.of(1, 3)));
  return settings;
}

void set_windows(Value& settings, Draw& draw) {
  std::vector<int64_t> windows, sub_sampling;
  const auto stages = static_cast<int64_t>(settings.find("dims")->as_array().size());
  for (int64_t s = 0; s < stages; ++s) {
    windows.push_back(draw.of(0, 5));
    sub_sampling.push_back(int64_t{1} << (stages - 1 - s));
  }
  settings.set("windows", list(windows));
  settings.set("sub_sampling", list(sub_sampling));
}

Value random_settings(const std::string& family, Draw& draw) {
  Value settings;
  if (family == "vit") {
    settings = isotropic(draw, 1);
    settings.set("class_token", draw.coin());
    settings.set("reg_tokens", draw.of(0, 3));
    settings.set("global_pool", draw.one_of({"avg", "max", "avgmax", "map"}));
    settings.set("qkv_bias", draw.coin());
    settings.set("no_embed_class", draw.coin());
    settings.set("pre_norm", draw.coin());
    settings.set("init_values", draw.coin() ? 0.1 : 0.0);
    settings.set("norm", draw.one_of({"layer", "rms"}));
    settings.set("mlp", draw.one_of({"gelu", "gelu_tanh", "quick_gelu"}));
    settings.set("mlp_ratio", draw.one_of({0.7, 1.0, 2.37, 4.0}));
    settings.set("positions", draw.one_of({"learned", "relative", "alibi", "none"}));
  } else if (family == "vil" || family == "vil1") {
    settings = isotropic(draw, 4);
    settings.set("dim", 4 * settings.find("heads")->as_int() * draw.of(1, 4));
    settings.set("pooling", draw.one_of({"bilateral_flatten", "bilateral_avg", "mean", "cls_middle"}));
    settings.set("directions", draw.one_of({"uni", "bi", "quad", "oct"}));
    settings.set("traversal", draw.one_of({"alternating", "in_layer"}));
    settings.set("conv_kind", draw.one_of({"2d", "conv1d", "causal1d"}));
    settings.set("conv_kernel", draw.one_of({int64_t{1}, int64_t{3}, int64_t{5}}));
    settings.set("proj_bias", draw.coin());
    settings.set("norm_bias", draw.coin());
    settings.set("conv_bias", draw.coin());
    settings.set("value_conv", draw.coin());
    settings.set("skip", draw.coin());
  } else if (family == "darl") {
    settings = isotropic(draw, 4);
    settings.set("positions", draw.one_of({"rope_2d", "rope_1d", "learned", "none"}));
    settings.set("causal", draw.coin());
    settings.set("pooling", draw.one_of({"last", "mean"}));
  } else if (family == "illama") {
    settings = isotropic(draw, 2);
    settings.set("mask", draw.one_of({"after", "before", "modified", "none"}));
    settings.set("class_token", draw.one_of({"last", "first"}));
    settings.set("positions", draw.one_of({"both", "learned", "rope", "none"}));
    settings.set("norm", draw.one_of({"layer", "rms"}));
    settings.set("mlp", draw.one_of({"swiglu", "gelu"}));
  } else if (family == "visionllama") {
    settings = isotropic(draw, 4);
    settings.set("class_token", draw.coin());
    settings.set("norm", draw.one_of({"layer", "rms"}));
    settings.set("mlp", draw.one_of({"swiglu", "gelu", "swiglu_packed"}));
    settings.set("mlp_hidden", draw.of(1, 70));
    settings.set("rope", draw.one_of({"2d", "1d", "none"}));
    settings.set("rope_grid", draw.one_of({"input", "square"}));
    settings.set("auto_scale", draw.coin());
    settings.set("qkv_bias", draw.coin());
    settings.set("peg", draw.coin());
  } else if (family == "visionllama_pyramid") {
    settings = pyramid(draw, 4);
    set_windows(settings, draw);
    settings.set("norm", draw.one_of({"layer", "rms"}));
    settings.set("mlp", draw.one_of({"swiglu", "gelu"}));
    settings.set("auto_scale", draw.coin());
    settings.set("stage_norms", draw.coin());
    settings.set("final_norm", draw.coin());
    settings.set("rope_keys", draw.one_of({"published", "mean"}));
    settings.set("positions", draw.one_of({"none", "learned", "sincos"}));
  } else if (family == "twins_svt") {
    settings = pyramid(draw, 1);
    set_windows(settings, draw);
    settings.set("mlp_ratio", draw.one_of({1.0, 2.7}));
    settings.set("qkv_bias", draw.coin());
  } else if (family == "swin") {
    settings = pyramid(draw, 1);
    settings.set("window_size", draw.of(1, 5));
    settings.set("shift", draw.coin());
    settings.set("relative_bias", draw.coin());
    settings.set("form", draw.one_of({"timm", "original", "mmseg"}));
    settings.set("stage_norms", draw.coin());
    settings.set("mlp_ratio", draw.one_of({1.0, 2.7}));
  } else if (family == "vim" || family == "vrwkv") {
    settings = isotropic(draw, 1);
    settings.as_table().erase(std::find_if(settings.as_table().begin(), settings.as_table().end(),
                                           [](const auto& entry) { return entry.first == "heads"; }));
    if (family == "vim") {
      settings.set("class_token", draw.one_of({"middle", "head", "both", "none"}));
      settings.set("pooling", draw.one_of({"mean", "last"}));
      settings.set("norm", draw.one_of({"layer", "rms"}));
      settings.set("directions", draw.one_of({"none", "v1", "v2"}));
      settings.set("state", draw.of(1, 18));
      settings.set("conv_kernel", draw.of(1, 5));
      settings.set("expand", draw.of(1, 3));
      settings.set("divide", draw.coin());
      settings.set("init_values", draw.coin() ? 0.1 : 0.0);
    } else {
      settings.set("post_norm", draw.coin());
      settings.set("key_norm", draw.coin());
      settings.set("final_norm", draw.coin());
      settings.set("init_values", draw.coin() ? 0.1 : 0.0);
      settings.set("hidden_rate", draw.of(1, 4));
      settings.set("shift_pixels", draw.of(0, 3));
      settings.set("channel_gamma", draw.one_of({0.0, 0.2, 0.25}));
    }
  } else {  // without a line of its own: the first size's tiny form
    const Family& other = find_family(family);
    settings = tiny_spec({&other, &other.sizes.front()}).settings;
  }
  return settings;
}

// Values with which every branch counts.
void fill(Backbone& model) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  for (torch::Tensor parameter : model.parameters()) {
    const torch::Tensor noise = torch::randn(parameter.sizes());
    if (parameter.dim() <= 1)
      parameter.add_(0.2 * noise);
    else
      parameter.copy_(noise / std::sqrt(static_cast<double>(std::max<int64_t>(1, parameter[0].numel()))));
  }
}

std::pair<int64_t, int64_t> sides_of(const Value& size) {
  if (size.is_int()) return {size.as_int(), size.as_int()};
  return {size.as_array()[0].as_int(), size.as_array()[1].as_int()};
}

struct Result {
  torch::Tensor scores, input_gradient;
  std::vector<torch::Tensor> gradients;
};

// Scores without gradients, and gradients of a fixed weighting of the scores.
Result run(Classifier& model, const torch::Tensor& images, torch::ScalarType dtype, bool fused) {
  const ops::InferenceScope scope({.fused = fused});
  model.backbone->to(dtype);
  model.backbone->eval();
  Result result;
  {
    const torch::NoGradGuard no_grad;
    result.scores = model.forward(images.to(dtype)).to(torch::kFloat64);
  }
  const torch::Tensor x = images.to(dtype).detach().requires_grad_();
  torch::manual_seed(4);
  const torch::Tensor y = model.forward(x);
  EXPECT_TRUE(torch::allclose(y.to(torch::kFloat64), result.scores, 1e-3, 1e-3));
  (y * torch::randn(y.sizes()).to(dtype)).sum().backward();
  // The colours that igpt looks up have none.
  result.input_gradient = (x.grad().defined() ? x.grad() : torch::zeros_like(x)).to(torch::kFloat64);
  for (const torch::Tensor& parameter : model.backbone->parameters()) {
    result.gradients.push_back(parameter.grad().defined() ? parameter.grad().to(torch::kFloat64)
                                                          : torch::Tensor());
    parameter.mutable_grad() = torch::Tensor();
  }
  return result;
}

double largest(const torch::Tensor& x) { return x.numel() ? x.abs().max().item<double>() : 0; }

void expect_near(const torch::Tensor& got, const torch::Tensor& want, double scale, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_LE(largest(got - want), 2e-3 * scale) << what;
}

class RandomSettings : public testing::TestWithParam<std::string> {};

TEST_P(RandomSettings, FusedAgreesWithTheCompositionForRandomSettings) {
  int64_t compared = 0;
  for (int64_t number = 0; number < kDraws; ++number) {
    Draw draw(GetParam(), number);
    ModelSpec spec;
    const Value settings = random_settings(GetParam(), draw);
    try {
      spec = resolve_model(GetParam(), settings);
    } catch (const Error&) {
      continue;  // settings that exclude each other
    }
    SCOPED_TRACE(write_toml(spec.settings));
    const auto model = build_classifier(spec, 1);
    fill(*model->backbone);
    const auto [height, width] = sides_of(*spec.settings.find("image_size"));
    torch::manual_seed(9);
    const torch::Tensor images = torch::randn({draw.of(1, 3), 3, height, width});
    const Result want = run(*model, images, torch::kFloat64, false),
                 got = run(*model, images, torch::kFloat32, true);
    expect_near(got.scores, want.scores, std::max(1.0, largest(want.scores)), "scores");
    double scale = largest(want.input_gradient);
    for (const torch::Tensor& gradient : want.gradients)
      if (gradient.defined()) scale = std::max(scale, largest(gradient));
    expect_near(got.input_gradient, want.input_gradient, scale, "gradient of the images");
    const auto parameters = model->backbone->named_parameters().pairs();
    for (size_t i = 0; i < parameters.size(); ++i) {
      // A missing gradient is zero: a single token has no decay.
      const auto whole = [&](const torch::Tensor& gradient) {
        return gradient.defined() ? gradient : torch::zeros(parameters[i].second.sizes(), torch::kFloat64);
      };
      expect_near(whole(got.gradients[i]), whole(want.gradients[i]), scale, parameters[i].first);
    }
    ++compared;
  }
  EXPECT_GE(compared, kDraws / 2);
}

// What a file of ours holds is read under the same names, and no two tensors get one name.
TEST_P(RandomSettings, OwnNamesStayAsTheyAre) {
  for (int64_t number = 0; number < 4 * kDraws; ++number) {
    Draw draw(GetParam(), number);
    ModelSpec spec;
    try {
      spec = resolve_model(GetParam(), random_settings(GetParam(), draw));
    } catch (const Error&) {
      continue;
    }
    std::vector<std::string> names;
    const auto model = meta_classifier(spec);
    for (const auto& entry : model->backbone->named_parameters()) names.push_back(entry.key());
    EXPECT_EQ(train::our_names(names, spec.family), names) << write_toml(spec.settings);
  }
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, RandomSettings, testing::ValuesIn(family_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace tessera::models
