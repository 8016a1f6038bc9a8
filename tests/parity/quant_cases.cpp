// components/quant_lsq: quantisation with a learned step, values and gradients; components/quant_int8_linear:
// a linear layer with weights of 8 bits an output and inputs of 8 bits a token; components/quant_torch_fake.
#include <functional>
#include <regex>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "ops/lsq.h"
#include "tests/parity/case.h"

namespace tessera::parity::quant_cases {
namespace {

using Json = nlohmann::json;

// One of the case's quantisers: x, step[, offset]; or a linear layer of two of them.
void check_quantiser(Comparison& comparison, const Golden& golden, const Json& wanted, double relative,
                     double absolute, torch::ScalarType dtype) {
  const std::string name = wanted.at("name"), prefix = name + "/";
  const auto range = ops::quantised_range(wanted.at("bits"), wanted.at("signed"));
  std::map<std::string, torch::Tensor> leaves;
  for (const std::string& input : golden.names(prefix + "input."))
    leaves[input] = golden.tensor(prefix + "input." + input, dtype).requires_grad_();
  torch::Tensor y;
  if (leaves.contains("weight"))
    y = torch::linear(ops::learned_step_size_quantise(leaves["x"], leaves["step_x"], range),
                      ops::learned_step_size_quantise(leaves["weight"], leaves["step_w"], range));
  else
    y = ops::learned_step_size_quantise(leaves["x"], leaves["step"], range, leaves["offset"]);
  (y * golden.tensor(prefix + "loss_weight", dtype)).sum().backward();
  const std::string label = dtype == torch::kFloat64 ? "float64 " : "float32 ";
  comparison.close(label + name + " y", y, golden.tensor(prefix + "output.y"), relative, absolute);
  for (const auto& [leaf, tensor] : leaves)
    if (tensor.defined())
      comparison.close(label + name + " gradient of " + leaf, tensor.grad(),
                       golden.tensor(prefix + "grad." + leaf), relative, absolute);
  if (golden.has(prefix + "output.init_step"))
    comparison.close(label + name + " first step",
                     ops::first_step_size(leaves["x"], range, wanted.value("per_channel", false)),
                     golden.tensor(prefix + "output.init_step"), relative, absolute);
}

CaseResult check_learned_step(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const Json& wanted : golden.config().at("cases"))
      check_quantiser(comparison, golden, wanted, tolerance.value("rtol", 1e-5),
                      tolerance.value("atol", 1e-6), dtype);
  return comparison.result();
}

// The int8 layer's output in float: that it gives where there is a residual, here of zeros.
torch::Tensor int8_layer(const torch::Tensor& x, const ops::LinearParameters& parameters) {
  ops::LinearCache cache;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = parameters.weight.size(0);
  return ops::linear(x, parameters, torch::zeros(shape), cache);
}

// W's integers: a row of the unit matrix is 127 on a step of 1/127, so that it reads a column of them.
torch::Tensor integers_of(const ops::LinearParameters& weights, const torch::Tensor& scales) {
  const torch::Tensor columns = int8_layer(torch::eye(weights.weight.size(1)), weights);
  return (columns / scales).round().t();
}

// Inputs with an offset are not among what the layer does.
CaseResult check_int8_linear(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const double relative = tolerance.value("rtol", 1e-5), absolute = tolerance.value("atol", 1e-5);
  const torch::NoGradGuard no_grad;
  const ops::InferenceScope int8({.fused = true, .gradients_follow = false, .int8 = true});
  const torch::Tensor x = golden.tensor("input.x"), bias = golden.tensor("input.bias"),
                      x_scale = golden.tensor("output.x_scale").unsqueeze(-1),
                      w_scale = golden.tensor("output.w_scale");
  ops::LinearParameters layer{.weight = golden.tensor("input.weight"), .bias = bias};
  const ops::LinearParameters plain{.weight = layer.weight}, unit{.weight = torch::eye(x.size(-1))};
  Comparison comparison;
  const torch::Tensor y = int8_layer(x, layer), x_dequant = int8_layer(x, unit);
  comparison.close("y", y, golden.tensor("output.y"), relative, absolute);
  comparison.close("x_dequant", x_dequant, golden.tensor("output.x_dequant"), relative, absolute);
  const auto integers = [&](const char* what, const torch::Tensor& got) {
    comparison.equal(what, got, golden.tensor(text("output.", what)).to(torch::kFloat32));
  };
  integers("x_int8", (x_dequant / x_scale).round());
  integers("w_int8", integers_of(plain, w_scale));
  integers("acc_int32", (int8_layer(x, plain) / (x_scale * w_scale)).round());
  // One scale for all of W, as a learned step.
  const torch::Tensor step = golden.tensor("output.w_per_tensor_scale");
  layer.weight_log_step = step.log().expand({layer.weight.size(0)});
  comparison.close("y_per_tensor", int8_layer(x, layer), golden.tensor("output.y_per_tensor"), relative,
                   absolute);
  layer.bias = torch::Tensor();
  integers("w_per_tensor_int8", integers_of(layer, step));
  return comparison.result();
}

// What torch.fake_quantize was given; the case says it in its notes: "per tensor: scale 0.04, zero_point 10, range
// 0..255; per channel axis 1, range -128..127".
struct PublishedQuantiser {
  explicit PublishedQuantiser(const Golden& golden) {
    std::smatch found;
    const std::string notes = golden.meta.value("notes", Json()).dump();
    static const std::regex tensor("scale ([0-9.e-]+), zero_point (-?\\d+), range (-?\\d+)\\.\\.(-?\\d+)"),
        channel("per channel[^;]*range (-?\\d+)\\.\\.(-?\\d+)");
    if (std::regex_search(notes, found, tensor)) {
      scale = std::stof(found[1]), zero = std::stoll(found[2]);
      least = std::stoll(found[3]), most = std::stoll(found[4]);
    }
    if (std::regex_search(notes, found, channel))
      channel_least = std::stoll(found[1]), channel_most = std::stoll(found[2]);
  }
  float scale = 0.04f;
  int64_t zero = 10, least = 0, most = 255, channel_least = -128, channel_most = 127;
};

// torch.fake_quantize with zero points: integers of the range less the zero point. Where a number lies at
// most half a step beyond the range its gradient passes there, in LSQ it does not.
CaseResult check_fake_quantise(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const double relative = tolerance.value("rtol", 1e-6), absolute = tolerance.value("atol", 1e-6);
  const torch::Tensor loss_weight = golden.tensor("loss_weight"), scales = golden.tensor("input.scale"),
                      zero_points = golden.tensor("input.zero_point");
  Comparison comparison;
  const auto check = [&](const std::string& name,
                         const std::function<torch::Tensor(const torch::Tensor&)>& of,
                         const torch::Tensor& beyond) {
    const torch::Tensor x = golden.tensor("input.x").requires_grad_();
    const torch::Tensor y = of(x);
    (y * loss_weight).sum().backward();
    comparison.close(name, y, golden.tensor("output." + name), relative, absolute);
    const torch::Tensor wanted = golden.tensor("grad." + name).masked_fill(beyond, 0);
    comparison.close(name + " gradient", x.grad(), wanted, relative, absolute);
  };
  const torch::Tensor x = golden.tensor("input.x");
  const auto outside = [](const torch::Tensor& v, int64_t low, int64_t high) {
    return (v <= -low) | (v >= high);
  };
  const PublishedQuantiser q(golden);
  const int64_t low = q.zero - q.least, high = q.most - q.zero;
  check(
      "per_tensor",
      [&](const torch::Tensor& in) {
        return ops::learned_step_size_quantise(in, torch::full({1}, q.scale), {.low = low, .high = high});
      },
      outside(x / q.scale, low, high));
  std::vector<torch::Tensor> beyond;
  std::vector<ops::QuantisedRange> ranges;
  for (int64_t c = 0; c < x.size(1); ++c) {
    const auto zero = zero_points[c].item<int64_t>();
    ranges.push_back({.low = zero - q.channel_least, .high = q.channel_most - zero});
    beyond.push_back(outside(x.select(1, c) / scales[c], ranges.back().low, ranges.back().high));
  }
  check(
      "per_channel",
      [&](const torch::Tensor& in) {
        std::vector<torch::Tensor> columns;
        for (int64_t c = 0; c < x.size(1); ++c)
          columns.push_back(ops::learned_step_size_quantise(in.select(1, c), scales.slice(0, c, c + 1),
                                                            ranges[static_cast<size_t>(c)]));
        return torch::stack(columns, 1);
      },
      torch::stack(beyond, 1));
  return comparison.result();
}

const Registered registered({
    {"learned_step", check_learned_step, {"components/quant_lsq"}},
    {"int8_linear", check_int8_linear, {"components/quant_int8_linear"}},
    {"fake_quantise", check_fake_quantise, {"components/quant_torch_fake"}},
});

}  // namespace
}  // namespace tessera::parity::quant_cases
