// Layers: products with weights, convolutions, norms, pooling, resizing and attention.
#include "onnx/lowering.h"

#include <cmath>

#include "core/error.h"

namespace tessera::onnx {
namespace {

// x W^T + b
void linear(Call& call) {
  const torch::Tensor weight = call.constant("weight");
  const std::string transposed = weight.defined() ? call.to.constant(weight.t())
                                                  : call.to.add("Transpose", {call.tensor("weight")},
                                                                {{"perm", std::vector<int64_t>{1, 0}}});
  const std::string product = call.to.add("MatMul", {call.tensor("input"), transposed});
  call.result(call.has("bias") ? call.to.add("Add", {product, call.tensor("bias")}) : product);
}
// beta self + alpha mat1 mat2
void addmm(Call& call) {
  if (call.real("beta") != 1 || call.real("alpha") != 1) call.refuse("has factors other than 1");
  call.result(call.to.add(
      "Add", {call.to.add("MatMul", {call.tensor("mat1"), call.tensor("mat2")}), call.tensor("self")}));
}

void convolution(Call& call) {
  const std::vector<int64_t> weight = call.shape("weight"), padding = call.integers("padding");
  const size_t axes = weight.size() - 2;
  const auto each = [&](const char* name) {
    std::vector<int64_t> values = call.integers(name);
    if (values.size() == 1) values.resize(axes, values[0]);
    return values;
  };
  std::vector<int64_t> pads = each("padding");
  pads.insert(pads.end(), pads.begin(), pads.end());
  std::vector<OnnxAttribute> attributes = {
      {"strides", each("stride")},
      {"pads", pads},
      {"dilations", each("dilation")},
      {"group", call.integer("groups")},
      {"kernel_shape", std::vector<int64_t>(weight.begin() + 2, weight.end())}};
  const bool transposed = call.flag("transposed");
  if (transposed) attributes.push_back({"output_padding", each("output_padding")});
  std::vector<std::string> inputs = {call.tensor("input"), call.tensor("weight")};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  call.result(call.to.add(transposed ? "ConvTranspose" : "Conv", inputs, attributes));
}

// The integer that is zero, for all channels: int8 files have symmetric steps alone.
void require_zero_point(const Call& call) {
  const torch::Tensor points = call.constant("zero_point");
  const bool none =
      points.defined() ? points.count_nonzero().item<int64_t>() == 0 : call.integer("zero_point") == 0;
  if (!none) call.refuse("has a zero point other than 0");
}

// Rounds to integers and back. Constants are stored as integers.
void fake_quantize(Call& call) {
  const bool by_channel = call.has("axis");
  const torch::Tensor given = call.constant("scale"), known = call.constant("self");
  if (!given.defined() || call.integer("quant_min") != -128 || call.integer("quant_max") != 127)
    call.refuse("does not round to int8 by fixed scales");
  require_zero_point(call);
  const torch::Tensor scale = by_channel ? given : given.reshape({});
  std::vector<OnnxAttribute> attributes;
  if (by_channel) attributes.push_back({"axis", call.integer("axis")});
  const std::string steps = call.to.constant(scale),
                    zero = call.to.constant(torch::zeros_like(scale, torch::kInt8));
  std::string integers;
  if (known.defined()) {
    std::vector<int64_t> shape(static_cast<size_t>(known.dim()), 1);
    if (by_channel) shape[static_cast<size_t>(call.integer("axis"))] = -1;
    integers = call.to.constant((known / scale.reshape(shape)).round().clamp(-128, 127).to(torch::kInt8));
  } else {
    integers = call.to.add("QuantizeLinear", {call.tensor("self"), steps, zero}, attributes);
  }
  call.result(call.to.add("DequantizeLinear", {integers, steps, zero}, attributes));
}

// Returns the weight or bias, else one value for all channels.
std::string per_channel(Call& call, const char* name, const std::vector<int64_t>& shape, double otherwise) {
  return call.has(name) ? call.tensor(name) : call.to.constant(torch::full(shape, otherwise));
}

void layer_norm(Call& call) {
  const std::vector<int64_t> shape = call.integers("normalized_shape");
  std::vector<std::string> inputs = {call.tensor("input"), per_channel(call, "weight", shape, 1)};
  if (call.has("bias")) inputs.push_back(call.tensor("bias"));
  call.result(call.to.add("LayerNormalization", inputs,
                          {{"axis", call.rank("input") - static_cast<int64_t>(shape.size())},
                           {"epsilon", static_cast<float>(call.real("eps"))}}));
}

// Normalises groups as instances, then scales channels.
void group_norm(Call& call) {
  const int64_t groups = call.integer("num_groups"), rank = call.rank("input");
  const std::string x = call.tensor("input");
  const std::string grouped = call.to.add("Reshape", {x, call.to.integers({0, groups, -1})});
  const std::string normal = call.to.add(
      "InstanceNormalization",
      {grouped, call.to.constant(torch::ones({groups})), call.to.constant(torch::zeros({groups}))},
      {{"epsilon", static_cast<float>(call.real("eps"))}});
  std::string out = call.to.add("Reshape", {normal, call.to.add("Shape", {x})});
  std::vector<int64_t> shape(static_cast<size_t>(rank) - 1, 1);
  shape[0] = call.shape("input")[1];
  const auto broadcast = [&](const char* name) {
    const torch::Tensor known = call.constant(name);
    return known.defined() ? call.to.constant(known.reshape(shape))
                           : call.to.add("Reshape", {call.tensor(name), call.to.integers(shape)});
  };
  if (call.has("weight")) out = call.to.add("Mul", {out, broadcast("weight")});
  if (call.has("bias")) out = call.to.add("Add", {out, broadcast("bias")});
  call.result(out);
}

void batch_norm(Call& call) {
  if (call.flag("training")) call.refuse("has statistics of the batch");
  const std::vector<int64_t> channels = {call.shape("input")[1]};
  call.result(call.to.add(
      "BatchNormalization",
      {call.tensor("input"), per_channel(call, "weight", channels, 1), per_channel(call, "bias", channels, 0),
       call.tensor("running_mean"), call.tensor("running_var")},
      {{"epsilon", static_cast<float>(call.real("eps"))}}));
}

void pool(Call& call, const char* operation) {
  const auto pair = [&](const char* name) {
    std::vector<int64_t> values = call.integers(name);
    if (values.empty()) values = call.integers("kernel_size");
    if (values.size() == 1) values.resize(2, values[0]);
    return values;
  };
  std::vector<int64_t> pads = pair("padding");
  pads.insert(pads.end(), pads.begin(), pads.end());
  std::vector<OnnxAttribute> attributes = {{"kernel_shape", pair("kernel_size")},
                                           {"strides", pair("stride")},
                                           {"pads", pads},
                                           {"ceil_mode", static_cast<int64_t>(call.flag("ceil_mode"))}};
  if (std::string(operation) == "AveragePool")
    attributes.push_back({"count_include_pad", static_cast<int64_t>(call.flag("count_include_pad"))});
  call.result(call.to.add(operation, {call.tensor("self")}, attributes));
}
void max_pool(Call& call) { pool(call, "MaxPool"); }
void average_pool(Call& call) { pool(call, "AveragePool"); }
// Returns the weights [out, in] that average `in` cells in `out` overlapping bins.
torch::Tensor bin_weights(int64_t in, int64_t out) {
  torch::Tensor weights = torch::zeros({out, in});
  for (int64_t bin = 0; bin < out; ++bin) {
    const int64_t first = bin * in / out, last = ((bin + 1) * in + out - 1) / out;
    weights[bin].slice(0, first, last).fill_(1.0 / static_cast<double>(last - first));
  }
  return weights;
}

// Bins are sums along both axes, for the traced size of the map.
void adaptive_pool(Call& call) {
  const std::vector<int64_t> out = call.integers("output_size"), shape = call.shape("self");
  if (out == std::vector<int64_t>{1, 1})
    return call.result(call.to.add("GlobalAveragePool", {call.tensor("self")}));
  const std::string rows = call.to.constant(bin_weights(shape[2], out[0]));
  const std::string columns = call.to.constant(bin_weights(shape[3], out[1]).t());
  call.result(call.to.add("MatMul", {call.to.add("MatMul", {rows, call.tensor("self")}), columns}));
}

// Pixel centres are at half positions, or corners are aligned.
void resize(Call& call) {
  const std::string operation = call.operation();
  const bool corners = call.has("align_corners") && call.flag("align_corners");
  const std::vector<int64_t> shape = call.shape("self");
  std::vector<Size> sizes = call.sizes("output_size");
  const std::string head =
      call.to.add("Shape", {call.tensor("self")}, {{"start", int64_t{0}}, {"end", int64_t{2}}});
  const std::string all = call.to.add("Concat", {head, call.to.sizes(sizes)}, {{"axis", int64_t{0}}});
  const bool nearest = operation == "aten::upsample_nearest2d";
  std::vector<OnnxAttribute> attributes = {
      {"mode", std::string(nearest                                   ? "nearest"
                           : operation == "aten::upsample_bicubic2d" ? "cubic"
                                                                     : "linear")},
      {"coordinate_transformation_mode", std::string(nearest   ? "asymmetric"
                                                     : corners ? "align_corners"
                                                               : "pytorch_half_pixel")}};
  if (nearest) attributes.push_back({"nearest_mode", std::string("floor")});
  if (operation == "aten::upsample_bicubic2d") attributes.push_back({"cubic_coeff_a", -0.75f});
  call.result(call.to.add("Resize", {call.tensor("self"), "", "", all}, attributes));
}

// Keys after their query have weight 0.
std::string causal_scores(Call& call, const std::string& scores) {
  const torch::ScalarType type = call.type("query");
  const std::string ones =
      call.to.add("Expand", {call.to.constant(torch::ones({1}, type)), call.to.add("Shape", {scores})});
  const std::string kept = call.to.add("Trilu", {ones}, {{"upper", int64_t{0}}});
  return call.to.add("Where", {call.to.add("Cast", {kept}, {{"to", static_cast<int64_t>(OnnxType::boolean)}}),
                               scores, call.to.scalar(-std::numeric_limits<double>::infinity(), type)});
}

// softmax(q k^T / sqrt(d) + mask) v
void attention(Call& call) {
  if (call.has("dropout_p") && call.real("dropout_p") != 0) call.refuse("drops values");
  const std::vector<int64_t> shape = call.shape("query");
  const double scale =
      call.has("scale") ? call.real("scale") : 1 / std::sqrt(static_cast<double>(shape.back()));
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < call.rank("key"); ++axis) order.push_back(axis);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const torch::ScalarType type = call.type("query");
  const std::string scaled = call.to.add("Mul", {call.tensor("query"), call.to.scalar(scale, type)});
  const std::string keys = call.to.add("Transpose", {call.tensor("key")}, {{"perm", order}});
  std::string scores = call.to.add("MatMul", {scaled, keys});
  if (call.flag("is_causal")) scores = causal_scores(call, scores);
  if (call.has("attn_mask"))
    scores = call.type("attn_mask") == torch::kBool
                 ? call.to.add("Where", {call.tensor("attn_mask"), scores,
                                         call.to.scalar(-std::numeric_limits<double>::infinity(), type)})
                 : call.to.add("Add", {scores, call.operand("attn_mask", type)});
  const std::string weights = call.to.add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  call.result(call.to.add("MatMul", {weights, call.tensor("value")}));
}

}  // namespace

void add_layer_entries(Entries& table) {
  table.insert({{"aten::linear", linear},
                {"aten::addmm", addmm},
                {"aten::_convolution", convolution},
                {"aten::convolution", convolution},
                {"aten::fake_quantize_per_tensor_affine", fake_quantize},
                {"aten::fake_quantize_per_channel_affine", fake_quantize},
                {"aten::layer_norm", layer_norm},
                {"aten::group_norm", group_norm},
                {"aten::batch_norm", batch_norm},
                {"aten::max_pool2d", max_pool},
                {"aten::avg_pool2d", average_pool},
                {"aten::adaptive_avg_pool2d", adaptive_pool},
                {"aten::upsample_bicubic2d", resize},
                {"aten::upsample_bilinear2d", resize},
                {"aten::upsample_nearest2d", resize},
                {"aten::scaled_dot_product_attention", attention}});
}

}  // namespace tessera::onnx
