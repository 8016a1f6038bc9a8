#include "onnx/export.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <functional>
#include <map>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

using Tensors = std::vector<torch::Tensor>;

// A node with the tensors of its inputs; missing ones are undefined.
struct Step {
  const OnnxNode& node;
  const Tensors& in;

  const torch::Tensor& x(size_t i = 0) const {
    check(i < in.size() && in[i].defined(), "node '", printable(node.name), "' has no input ", i);
    return in[i];
  }
  bool has(size_t i) const { return i < in.size() && in[i].defined(); }
  std::vector<int64_t> numbers(size_t i) const {
    const torch::Tensor values = x(i).to(torch::kInt64).contiguous();
    return {values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.numel()};
  }
  template <class T>
  T attribute(const std::string& name, T standard) const {
    const OnnxAttribute* found = node.find(name);
    if (!found) return standard;
    const T* value = std::get_if<T>(&found->value);
    check(value, "node '", printable(node.name), "': attribute '", name, "' has another type");
    return *value;
  }
  std::vector<int64_t> list(const std::string& name) const { return attribute(name, std::vector<int64_t>()); }
  // Axes as an input or, in old opsets, as an attribute.
  std::vector<int64_t> axes() const { return has(1) ? numbers(1) : list("axes"); }
  bool flag(const std::string& name, int64_t standard) const { return attribute(name, standard) != 0; }
};

torch::Tensor reshape(const Step& step) {
  std::vector<int64_t> sizes = step.numbers(1);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = step.x().size(static_cast<int64_t>(i));
  return step.x().reshape(sizes);
}

torch::Tensor slice(const Step& step) {
  const std::vector<int64_t> begin = step.numbers(1), end = step.numbers(2), axes = step.numbers(3);
  const std::vector<int64_t> by = step.has(4) ? step.numbers(4) : std::vector<int64_t>(axes.size(), 1);
  torch::Tensor out = step.x();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (by[i] > 0) {
      out = out.slice(axes[i], begin[i], end[i], by[i]);
      continue;
    }
    check(by[i] == -1 && begin[i] == -1 && end[i] < -out.size(axes[i]), "node '", printable(step.node.name),
          "' has a slice that is not a whole axis backwards");
    out = out.flip(axes[i]);
  }
  return out;
}

torch::Tensor gather(const Step& step) {
  const int64_t axis = step.attribute<int64_t>("axis", 0);
  const torch::Tensor& index = step.x(1);
  const torch::Tensor wrapped = torch::where(index < 0, index + step.x().size(axis), index).to(torch::kInt64);
  std::vector<int64_t> shape = step.x().sizes().vec();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, index.sizes().begin(), index.sizes().end());
  return step.x().index_select(axis, wrapped.reshape({-1})).reshape(shape);
}

torch::Tensor pad(const Step& step) {
  const std::vector<int64_t> pads = step.numbers(1);
  const size_t rank = pads.size() / 2;
  std::vector<int64_t> reversed;
  for (size_t axis = rank; axis-- > 0;) reversed.push_back(pads[axis]), reversed.push_back(pads[axis + rank]);
  return torch::constant_pad_nd(step.x(), reversed, step.x(2).item());
}

torch::Tensor shape(const Step& step) {
  const auto rank = step.x().dim();
  const int64_t start = step.attribute<int64_t>("start", 0),
                end = std::min(step.attribute<int64_t>("end", rank), rank);
  return torch::tensor(
      step.x().sizes().slice(static_cast<size_t>(start), static_cast<size_t>(end - start)).vec(),
      torch::kInt64);
}

torch::Tensor unsqueeze(const Step& step) {
  torch::Tensor out = step.x();
  std::vector<int64_t> axes = step.numbers(1);
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) out = out.unsqueeze(axis);
  return out;
}
torch::Tensor squeeze(const Step& step) {
  if (!step.has(1)) return step.x().squeeze();
  return step.x().squeeze(step.numbers(1));
}

torch::Tensor expand(const Step& step) {
  return step.x().expand(at::infer_size(step.x().sizes(), step.numbers(1)));
}

torch::Tensor divide(const Step& step) {
  const bool whole = !torch::isFloatingType(step.x().scalar_type());
  return whole ? torch::div(step.x(), step.x(1), "trunc") : torch::div(step.x(), step.x(1));
}

torch::Tensor range(const Step& step) {
  return torch::arange(step.x(0).item(), step.x(1).item(), step.x(2).item(), step.x().options());
}

torch::Tensor trilu(const Step& step) {
  const int64_t diagonal = step.has(1) ? step.x(1).item<int64_t>() : 0;
  return step.flag("upper", 1) ? step.x().triu(diagonal) : step.x().tril(diagonal);
}

torch::Tensor convolution(const Step& step, bool transposed) {
  const size_t axes = static_cast<size_t>(step.x(1).dim()) - 2;
  const std::vector<int64_t> ones(axes, 1), none(axes, 0);
  const auto or_ones = [&](const char* name) { return step.node.find(name) ? step.list(name) : ones; };
  std::vector<int64_t> pads = step.node.find("pads") ? step.list("pads") : std::vector<int64_t>(2 * axes, 0);
  check(std::equal(pads.begin(), pads.begin() + static_cast<int64_t>(axes),
                   pads.begin() + static_cast<int64_t>(axes)),
        "node '", printable(step.node.name), "' pads its sides differently");
  pads.resize(axes);
  return at::convolution(step.x(), step.x(1), step.has(2) ? std::make_optional(step.x(2)) : std::nullopt,
                         or_ones("strides"), pads, or_ones("dilations"), transposed,
                         step.node.find("output_padding") ? step.list("output_padding") : none,
                         step.attribute<int64_t>("group", 1));
}

torch::Tensor pool(const Step& step, bool largest) {
  std::vector<int64_t> pads = step.list("pads");
  pads.resize(2);
  if (largest)
    return torch::max_pool2d(step.x(), step.list("kernel_shape"), step.list("strides"), pads, 1,
                             step.flag("ceil_mode", 0));
  return torch::avg_pool2d(step.x(), step.list("kernel_shape"), step.list("strides"), pads,
                           step.flag("ceil_mode", 0), step.flag("count_include_pad", 0));
}

torch::Tensor layer_norm(const Step& step) {
  const int64_t axis = step.attribute<int64_t>("axis", -1);
  const auto sizes = step.x().sizes().slice(static_cast<size_t>(axis < 0 ? axis + step.x().dim() : axis));
  return torch::layer_norm(step.x(), sizes, step.x(1), step.has(2) ? step.in[2] : torch::Tensor(),
                           step.attribute("epsilon", 1e-5f));
}

torch::Tensor resize(const Step& step) {
  const std::vector<int64_t> sizes = step.numbers(3);
  const std::vector<int64_t> side(sizes.begin() + 2, sizes.end());
  const std::string mode = step.attribute<std::string>("mode", "nearest");
  const bool corners = step.attribute<std::string>("coordinate_transformation_mode", "") == "align_corners";
  if (mode == "nearest") return at::upsample_nearest2d(step.x(), side);
  if (mode == "cubic") return at::upsample_bicubic2d(step.x(), side, corners);
  return at::upsample_bilinear2d(step.x(), side, corners);
}

torch::Tensor reduce(const Step& step, const std::string& operation) {
  std::vector<int64_t> axes = step.axes();
  const bool keep = step.flag("keepdims", 1);
  if (axes.empty())
    for (int64_t axis = 0; axis < step.x().dim(); ++axis) axes.push_back(axis);
  if (operation == "ReduceSum") return step.x().sum(axes, keep);
  if (operation == "ReduceMean") return step.x().mean(axes, keep);
  if (operation == "ReduceMax") return step.x().amax(axes, keep);
  return at::linalg_vector_norm(step.x(), 2, axes, keep);
}

// The scale of a quantisation, with the axes of x.
torch::Tensor scale_of(const Step& step) {
  check(!step.has(2) || step.x(2).count_nonzero().item<int64_t>() == 0, "node '", printable(step.node.name),
        "' has a zero point other than 0");
  if (step.x(1).dim() == 0) return step.x(1);
  std::vector<int64_t> shape(static_cast<size_t>(step.x().dim()), 1);
  shape.at(static_cast<size_t>(step.attribute<int64_t>("axis", 1))) = -1;
  return step.x(1).reshape(shape);
}

using Rule = std::function<torch::Tensor(const Step&)>;

// Each rule defines an ONNX operation in ATen.
const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> table = {
      {"Identity", [](const Step& s) { return s.x(); }},
      {"Cast",
       [](const Step& s) {
         return s.x().to(torch_type(static_cast<OnnxType>(s.attribute<int64_t>("to", 1))));
       }},
      {"Reshape", reshape},
      {"Transpose", [](const Step& s) { return s.x().permute(s.list("perm")); }},
      {"Unsqueeze", unsqueeze},
      {"Squeeze", squeeze},
      {"Slice", slice},
      {"Gather", gather},
      {"GatherElements", [](const Step& s) { return s.x().gather(s.attribute<int64_t>("axis", 0), s.x(1)); }},
      {"Concat", [](const Step& s) { return torch::cat(s.in, s.attribute<int64_t>("axis", 0)); }},
      {"Expand", expand},
      {"Tile", [](const Step& s) { return s.x().repeat(s.numbers(1)); }},
      {"Pad", pad},
      {"Shape", shape},
      {"Range", range},
      {"Trilu", trilu},
      {"Where", [](const Step& s) { return torch::where(s.x(), s.x(1), s.x(2)); }},
      {"Add", [](const Step& s) { return s.x() + s.x(1); }},
      {"Sub", [](const Step& s) { return s.x() - s.x(1); }},
      {"Mul", [](const Step& s) { return s.x() * s.x(1); }},
      {"Div", divide},
      {"Mod", [](const Step& s) { return torch::remainder(s.x(), s.x(1)); }},
      {"Pow", [](const Step& s) { return torch::pow(s.x(), s.x(1)); }},
      {"Max", [](const Step& s) { return torch::maximum(s.x(), s.x(1)); }},
      {"Min", [](const Step& s) { return torch::minimum(s.x(), s.x(1)); }},
      {"Equal", [](const Step& s) { return s.x() == s.x(1); }},
      {"Less", [](const Step& s) { return s.x() < s.x(1); }},
      {"LessOrEqual", [](const Step& s) { return s.x() <= s.x(1); }},
      {"Greater", [](const Step& s) { return s.x() > s.x(1); }},
      {"GreaterOrEqual", [](const Step& s) { return s.x() >= s.x(1); }},
      {"And", [](const Step& s) { return torch::logical_and(s.x(), s.x(1)); }},
      {"Or", [](const Step& s) { return torch::logical_or(s.x(), s.x(1)); }},
      {"Not", [](const Step& s) { return torch::logical_not(s.x()); }},
      {"Abs", [](const Step& s) { return s.x().abs(); }},
      {"Neg", [](const Step& s) { return s.x().neg(); }},
      {"Exp", [](const Step& s) { return s.x().exp(); }},
      {"Log", [](const Step& s) { return s.x().log(); }},
      {"Sqrt", [](const Step& s) { return s.x().sqrt(); }},
      {"Sin", [](const Step& s) { return s.x().sin(); }},
      {"Cos", [](const Step& s) { return s.x().cos(); }},
      {"Floor", [](const Step& s) { return s.x().floor(); }},
      {"Round", [](const Step& s) { return s.x().round(); }},
      {"Tanh", [](const Step& s) { return s.x().tanh(); }},
      {"Erf", [](const Step& s) { return s.x().erf(); }},
      {"Sigmoid", [](const Step& s) { return s.x().sigmoid(); }},
      {"Relu", [](const Step& s) { return s.x().relu(); }},
      {"Reciprocal", [](const Step& s) { return s.x().reciprocal(); }},
      {"Softplus", [](const Step& s) { return -torch::log_sigmoid(-s.x()); }},
      {"Gelu",
       [](const Step& s) { return torch::gelu(s.x(), s.attribute<std::string>("approximate", "none")); }},
      {"Clip",
       [](const Step& s) {
         torch::Tensor out = s.x();
         if (s.has(1)) out = torch::maximum(out, s.x(1));
         return s.has(2) ? torch::minimum(out, s.x(2)) : out;
       }},
      {"ReduceSum", [](const Step& s) { return reduce(s, "ReduceSum"); }},
      {"ReduceMean", [](const Step& s) { return reduce(s, "ReduceMean"); }},
      {"ReduceMax", [](const Step& s) { return reduce(s, "ReduceMax"); }},
      {"ReduceL2", [](const Step& s) { return reduce(s, "ReduceL2"); }},
      {"ArgMax",
       [](const Step& s) { return s.x().argmax(s.attribute<int64_t>("axis", 0), s.flag("keepdims", 1)); }},
      {"ArgMin",
       [](const Step& s) { return s.x().argmin(s.attribute<int64_t>("axis", 0), s.flag("keepdims", 1)); }},
      {"CumSum", [](const Step& s) { return s.x().cumsum(s.x(1).item<int64_t>()); }},
      {"Softmax", [](const Step& s) { return s.x().softmax(s.attribute<int64_t>("axis", -1)); }},
      {"LogSoftmax", [](const Step& s) { return s.x().log_softmax(s.attribute<int64_t>("axis", -1)); }},
      {"MatMul", [](const Step& s) { return s.x().matmul(s.x(1)); }},
      {"Einsum", [](const Step& s) { return torch::einsum(s.attribute<std::string>("equation", ""), s.in); }},
      {"QuantizeLinear",
       [](const Step& s) { return (s.x() / scale_of(s)).round().clamp(-128, 127).to(torch::kInt8); }},
      {"DequantizeLinear", [](const Step& s) { return s.x().to(s.x(1).scalar_type()) * scale_of(s); }},
      {"Conv", [](const Step& s) { return convolution(s, false); }},
      {"ConvTranspose", [](const Step& s) { return convolution(s, true); }},
      {"MaxPool", [](const Step& s) { return pool(s, true); }},
      {"AveragePool", [](const Step& s) { return pool(s, false); }},
      {"GlobalAveragePool",
       [](const Step& s) {
         return s.x().mean({2, 3}, true);
       }},
      {"LayerNormalization", layer_norm},
      {"InstanceNormalization",
       [](const Step& s) {
         return torch::instance_norm(s.x(), s.x(1), s.x(2), {}, {}, true, 0, s.attribute("epsilon", 1e-5f),
                                     false);
       }},
      {"BatchNormalization",
       [](const Step& s) {
         return torch::batch_norm(s.x(), s.x(1), s.x(2), s.x(3), s.x(4), false, 0,
                                  s.attribute("epsilon", 1e-5f), false);
       }},
      {"Resize", resize},
  };
  return table;
}

// A view of the file's bytes, which outlive the computation.
torch::Tensor tensor_of(const OnnxTensor& stored) {
  return torch::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.shape,
                          torch::dtype(torch_type(stored.type)));
}

// One compute thread while it lives.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

// Repeats the body for each entry of the sequences: final states, then the results of all steps along their axes.
Tensors scan(const Step& step) {
  const auto body = step.attribute("body", std::shared_ptr<const OnnxGraph>());
  check(body != nullptr, "node '", printable(step.node.name), "' has no body");
  const auto sequences = static_cast<size_t>(step.attribute<int64_t>("num_scan_inputs", 0));
  check(sequences > 0 && sequences <= step.in.size(), "node '", printable(step.node.name),
        "' has no sequence");
  const size_t states = step.in.size() - sequences, results = body->outputs.size() - states;
  const auto numbers = [&](const char* name, size_t count) {
    std::vector<int64_t> all = step.list(name);
    all.resize(count);
    return all;
  };
  const std::vector<int64_t> axes = numbers("scan_input_axes", sequences),
                             reversed = numbers("scan_input_directions", sequences),
                             result_axes = numbers("scan_output_axes", results),
                             result_reversed = numbers("scan_output_directions", results);
  const int64_t length = step.x(states).size(axes[0]);
  const OneThread alone;  // the operations of a step are too small for several
  Tensors now = step.in;
  std::vector<Tensors> collected(results);
  for (int64_t at = 0; at < length; ++at) {
    for (size_t i = 0; i < sequences; ++i)
      now[states + i] = step.x(states + i).select(axes[i], reversed[i] != 0 ? length - 1 - at : at);
    const Tensors out = interpret(*body, now);
    std::copy_n(out.begin(), states, now.begin());
    for (size_t i = 0; i < results; ++i) collected[i].push_back(out[states + i]);
  }
  now.resize(states);
  for (size_t i = 0; i < results; ++i) {
    if (result_reversed[i] != 0) std::reverse(collected[i].begin(), collected[i].end());
    now.push_back(torch::stack(collected[i], result_axes[i]));
  }
  return now;
}

// Computes a node: its outputs.
Tensors computed(const Step& step) {
  if (step.node.operation == "Scan") return scan(step);
  const auto rule = rules().find(step.node.operation);
  check(rule != rules().end(), "node '", printable(step.node.name), "' is ", printable(step.node.operation),
        ", which has no rule here");
  return {rule->second(step)};
}

}  // namespace

std::vector<torch::Tensor> interpret(const OnnxGraph& graph, const std::vector<torch::Tensor>& inputs) {
  const torch::NoGradGuard no_gradients;
  check(inputs.size() == graph.inputs.size(), "the graph has ", graph.inputs.size(), " inputs, not ",
        inputs.size());
  std::unordered_map<std::string, torch::Tensor> values;
  std::unordered_map<std::string, size_t> uses;  // left, to free values that are no longer read
  for (const OnnxNode& node : graph.nodes)
    for (const std::string& input : node.inputs) ++uses[input];
  for (const OnnxValue& output : graph.outputs) ++uses[output.name];
  for (const OnnxTensor& weight : graph.weights) values[weight.name] = tensor_of(weight);
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i].name] = inputs[i];
  for (const OnnxNode& node : graph.nodes) {
    Tensors in;
    for (const std::string& input : node.inputs) {
      const auto found = values.find(input);
      check(input.empty() || found != values.end(), "node '", printable(node.name), "' reads '",
            printable(input), "', which is not computed");
      in.push_back(input.empty() ? torch::Tensor() : found->second);
      if (!input.empty() && --uses[input] == 0) values.erase(found);
    }
    try {
      const Tensors out = computed({node, in});
      check(out.size() == node.outputs.size(), "node '", printable(node.name), "' has ", node.outputs.size(),
            " outputs, must have ", out.size());
      for (size_t i = 0; i < out.size(); ++i) values[node.outputs[i]] = out[i];
    } catch (const c10::Error& error) {
      fail("node '", printable(node.name), "' (", printable(node.operation),
           ") cannot be computed: ", printable(error.what_without_backtrace(), 300));
    }
  }
  std::vector<torch::Tensor> out;
  for (const OnnxValue& output : graph.outputs) {
    const auto found = values.find(output.name);
    check(found != values.end(), "output '", printable(output.name), "' is not computed");
    out.push_back(found->second);
  }
  return out;
}

}  // namespace tessera::onnx
