#include "onnx/export.h"

#include <ATen/Functions.h>

#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/selective_scan.h"

namespace tessera::onnx {
namespace {

// Returns the largest difference, relative to the largest expected value.
double difference_of(const torch::Tensor& found, const torch::Tensor& expected) {
  const torch::Tensor a = found.to(torch::kFloat64), b = expected.to(torch::kFloat64);
  if (a.numel() == 0) return 0;
  const double largest = b.abs().max().item<double>();
  if (!torch::isfinite(a).all().item<bool>()) return std::numeric_limits<double>::infinity();
  const double difference = (a - b).abs().max().item<double>();
  return difference == 0 ? 0 : difference / std::max(largest, 1e-30);
}

// Compares on other content, at the traced sizes and at each other one.
double check_graph(const OnnxGraph& graph, const Function& function, double most) {
  constexpr uint64_t kUnseen = 1000;
  std::vector<std::vector<int64_t>> all = {function.usual_sizes()};
  for (size_t axis = 0; axis < function.free.size(); ++axis) {
    all.push_back(all[0]);
    // One image, and sides between the traced ones.
    const std::vector<int64_t>& seen = function.free[axis].other_sizes;
    all.back()[axis] = axis == 0 ? 1 : (seen.front() + seen.back()) / 2;
  }
  double largest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<torch::Tensor> inputs = function.examples(all[i], kUnseen + i);
    const torch::NoGradGuard no_gradients;
    const ops::InferenceScope composed(function.settings);
    const ops::WholeScans scans;
    const std::vector<torch::Tensor> expected = function.run(inputs), found = interpret(graph, inputs);
    for (size_t output = 0; output < expected.size(); ++output) {
      check(found[output].sizes() == expected[output].sizes(), "the file's output '",
            function.outputs[output], "' has shape ", found[output].sizes(), ", must have ",
            expected[output].sizes());
      const double difference = difference_of(found[output], expected[output]);
      check(difference <= most, "the file's output '", function.outputs[output],
            "' differs from the model's by ", difference, " of the largest value, at most ", most,
            " is written");
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

// Stores float32 weights in float16, each with a conversion before its first use. Those out of its range stay, as do
// the scales of quantisations, whose rounding would move every integer.
void store_half(OnnxGraph& graph) {
  std::unordered_map<std::string, std::string> wide;
  std::unordered_set<std::string> scales;
  std::vector<OnnxNode> nodes;
  for (const OnnxNode& node : graph.nodes)
    if (node.operation == "QuantizeLinear" || node.operation == "DequantizeLinear")
      scales.insert(node.inputs.at(1));
  for (OnnxTensor& weight : graph.weights) {
    if (weight.type != OnnxType::f32 || weight.shape.empty() || scales.count(weight.name) > 0) continue;
    const auto half = std::make_shared<torch::Tensor>(
        torch::from_blob(const_cast<std::byte*>(weight.bytes.data()), weight.shape, torch::kFloat32)
            .to(torch::kFloat16));
    if (!torch::isfinite(*half).all().item<bool>()) continue;
    weight.type = OnnxType::f16;
    weight.bytes = {static_cast<const std::byte*>(half->data_ptr()), half->nbytes()};
    weight.owner = half;
    wide[weight.name] = weight.name + ":f32";
    nodes.push_back({.name = weight.name + ".Cast",
                     .operation = "Cast",
                     .inputs = {weight.name},
                     .outputs = {wide[weight.name]},
                     .attributes = {{"to", static_cast<int64_t>(OnnxType::f32)}}});
  }
  for (OnnxNode& node : graph.nodes) {
    for (std::string& input : node.inputs)
      if (const auto found = wide.find(input); found != wide.end()) input = found->second;
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace

Exported export_function(const Function& function, const NamedTensors& weights,
                         const ExportOptions& options) {
  if (options.opset < 17 || options.opset > 20) fail_usage("--opset ", options.opset, ": must be 17 to 20");
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, tensor] : weights) names.emplace(tensor.data_ptr(), name);
  const Trace traced = trace(function);
  Exported out;
  out.model.opset = options.opset;
  out.model.producer = "tessera";
  out.model.producer_version = options.producer_version;
  out.model.graph = Lowering(function, traced, options.opset, std::move(names))
                        .graph(options.entries ? *options.entries : entries());
  out.difference =
      check_graph(out.model.graph, function, function.settings.int8 ? kMostRounded : kMostDifference);
  if (options.half) {
    store_half(out.model.graph);
    out.difference = check_graph(out.model.graph, function, kMostRounded);
  }
  return out;
}

}  // namespace tessera::onnx
