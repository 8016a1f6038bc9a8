#include "onnx/trace.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/selective_scan.h"

namespace tessera::onnx {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// The traces are compared, so the tracer's warnings are ignored.
class QuietTracer {
 public:
  QuietTracer() { torch::jit::tracer::getTracerStateWarnMode() = false; }
  ~QuietTracer() { torch::jit::tracer::getTracerStateWarnMode() = before_; }
  QuietTracer(const QuietTracer&) = delete;

 private:
  const bool before_ = torch::jit::tracer::getTracerStateWarnMode();
};

// Adds the sizes of the outputs as outputs, so that the traces are compared in them as well.
void add_sizes(Graph& graph) {
  const std::vector<Value*> outputs(graph.outputs().begin(), graph.outputs().end());
  for (const Value* output : outputs) {
    const auto type = output->type()->cast<c10::TensorType>();
    const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
    check(sizes.has_value(), "a traced output has no shape");
    for (const int64_t size : *sizes) graph.registerOutput(graph.insertConstant(size));
  }
}

std::shared_ptr<Graph> traced_graph(const Function& function, std::vector<torch::Tensor> inputs) {
  const torch::NoGradGuard no_gradients;
  const ops::InferenceScope composed(function.settings);
  const ops::WholeScans scans;
  const QuietTracer quiet;
  torch::jit::Stack stack;
  for (torch::Tensor& input : inputs) stack.emplace_back(std::move(input));
  const auto run = [&](torch::jit::Stack values) {
    std::vector<torch::Tensor> tensors;
    for (const c10::IValue& value : values) tensors.push_back(value.toTensor());
    torch::jit::Stack results;
    for (torch::Tensor& tensor : function.run(tensors)) results.emplace_back(std::move(tensor));
    return results;
  };
  const auto unnamed = [](const torch::Tensor&) { return std::string(); };
  const auto graph =
      torch::jit::tracer::trace(std::move(stack), run, unnamed, /*strict=*/true, /*force_outplace=*/true)
          .first->graph;
  add_sizes(*graph);
  return graph;
}

// Walks the nodes of all traces side by side.
class Comparison {
 public:
  Comparison(std::vector<std::shared_ptr<Graph>> graphs, std::vector<std::vector<int64_t>> sizes)
      : graphs_(std::move(graphs)), sizes_(std::move(sizes)), same_(graphs_.size()) {}

  std::unordered_map<const Value*, Dimension> dimensions() {
    std::vector<torch::jit::graph_node_list_iterator> at;
    for (size_t i = 0; i < graphs_.size(); ++i) {
      at.push_back(graphs_[i]->nodes().begin());
      for (size_t k = 0; k < graphs_[0]->inputs().size(); ++k)
        same_[i][graphs_[i]->inputs()[k]] = graphs_[0]->inputs()[k];
    }
    for (; at[0] != graphs_[0]->nodes().end(); ++at[0]) {
      std::vector<Node*> nodes{*at[0]};
      for (size_t i = 1; i < at.size(); ++i) {
        check(at[i] != graphs_[i]->nodes().end(), differs(nodes[0]));
        nodes.push_back(*at[i]++);
      }
      compare(nodes);
    }
    for (size_t i = 1; i < at.size(); ++i)
      check(at[i] == graphs_[i]->nodes().end(),
            "other inputs lead to more operations: the model cannot be traced");
    return std::move(dimensions_);
  }

 private:
  static std::string differs(const Node* node) {
    return text("inputs of another size or content lead to other operations than ",
                node->kind().toQualString(), ": the model cannot be traced");
  }

  void compare(const std::vector<Node*>& nodes) {
    for (size_t i = 1; i < nodes.size(); ++i) {
      check(nodes[i]->kind() == nodes[0]->kind() && nodes[i]->inputs().size() == nodes[0]->inputs().size() &&
                nodes[i]->outputs().size() == nodes[0]->outputs().size(),
            differs(nodes[0]));
      for (size_t k = 0; k < nodes[0]->inputs().size(); ++k)
        check(same_[i].at(nodes[i]->inputs()[k]) == nodes[0]->inputs()[k], differs(nodes[0]));
      for (size_t k = 0; k < nodes[0]->outputs().size(); ++k)
        same_[i][nodes[i]->outputs()[k]] = nodes[0]->outputs()[k];
    }
    if (nodes[0]->kind() == c10::prim::Constant) compare_constants(nodes);
  }

  void compare_constants(const std::vector<Node*>& nodes) {
    std::vector<c10::IValue> values;
    for (const Node* node : nodes) values.push_back(*torch::jit::toIValue(node->output()));
    if (std::all_of(values.begin(), values.end(), [](const c10::IValue& value) { return value.isInt(); })) {
      std::vector<int64_t> numbers;
      for (const c10::IValue& value : values) numbers.push_back(value.toInt());
      if (std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number == numbers[0]; }))
        return;
      const auto found = fit_dimension(numbers, sizes_);
      check(found.has_value(), "the number ", numbers[0], " of ", user_of(nodes[0]),
            " follows no rule from the sizes of the inputs");
      dimensions_[nodes[0]->output()] = *found;
      return;
    }
    for (const c10::IValue& value : values)
      check(equal(value, values[0]), "a constant of ", user_of(nodes[0]),
            " differs for inputs of another size or content: it is computed on the host");
  }

  static bool equal(const c10::IValue& a, const c10::IValue& b) {
    if (!a.isTensor() || !b.isTensor()) return a.isTensor() == b.isTensor() && a == b;
    const torch::Tensor x = a.toTensor(), y = b.toTensor();
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    if (x.sizes() != y.sizes() || x.dtype() != y.dtype()) return false;
    return (x.data_ptr() == y.data_ptr() && x.strides() == y.strides()) || x.equal(y);
  }
  static std::string user_of(const Node* node) {
    const auto& uses = node->output()->uses();
    if (uses.empty()) return "no operation";
    return uses[0].user->kind() == c10::prim::Return ? "an output's shape"
                                                     : uses[0].user->kind().toQualString();
  }

  std::vector<std::shared_ptr<Graph>> graphs_;
  std::vector<std::vector<int64_t>> sizes_;                           // [trace][axis]
  std::vector<std::unordered_map<const Value*, const Value*>> same_;  // values of a trace in the first one
  std::unordered_map<const Value*, Dimension> dimensions_;
};

}  // namespace

std::vector<int64_t> Function::usual_sizes() const {
  std::vector<int64_t> sizes;
  for (const FreeAxis& axis : free)
    sizes.push_back(inputs[axis.places[0].first].shape[axis.places[0].second]);
  return sizes;
}

std::vector<torch::Tensor> Function::examples(const std::vector<int64_t>& sizes, uint64_t draw) const {
  std::vector<torch::Tensor> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> shape = inputs[i].shape;
    for (size_t axis = 0; axis < free.size(); ++axis)
      for (const auto& [input, dimension] : free[axis].places)
        if (input == i) shape[dimension] = sizes[axis];
    out.push_back(inputs[i].example(shape, draw));
  }
  return out;
}

Trace trace(const Function& function) {
  std::vector<std::vector<int64_t>> sizes = {function.usual_sizes()};
  for (size_t axis = 0; axis < function.free.size(); ++axis)
    for (const int64_t other : function.free[axis].other_sizes) {
      sizes.push_back(sizes[0]);
      sizes.back()[axis] = other;
    }
  if (sizes.size() == 1) sizes.push_back(sizes[0]);  // other content alone
  std::vector<std::shared_ptr<Graph>> graphs;
  for (size_t draw = 0; draw < sizes.size(); ++draw)
    graphs.push_back(traced_graph(function, function.examples(sizes[draw], draw)));
  auto dimensions = Comparison(graphs, sizes).dimensions();
  return {graphs[0], std::move(dimensions)};
}

}  // namespace tessera::onnx
