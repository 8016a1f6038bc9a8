#include "onnx/export.h"

#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "ops/bi_wkv.h"
#include "ops/selective_scan.h"

namespace tessera::onnx {
namespace {

struct Small {
  torch::Tensor weight = torch::randn({6, 4}, torch::kFloat32), bias = torch::randn({6});
  Function function(std::function<torch::Tensor(const torch::Tensor&)> run) const {
    return {.inputs = {{"x",
                        {2, 3, 4},
                        [](const std::vector<int64_t>& shape, uint64_t draw) {
                          torch::manual_seed(draw);
                          return torch::randn(shape);
                        }}},
            .outputs = {"y"},
            .run = [run](const auto& in) { return std::vector<torch::Tensor>{run(in[0])}; },
            .free = {{"batch", {{0, 0}}, {3}}}};
  }
  Function layer() const {
    return function([*this](const torch::Tensor& x) {
      return torch::gelu(torch::linear(x, weight, bias)) - x.sum(2, true);
    });
  }
  NamedTensors weights() const { return {{"fc.weight", weight}, {"fc.bias", bias}}; }
};

TEST(Export, NamesNodesAndWeightsAfterTheModel) {
  const Small small;
  const Exported exported = export_function(small.layer(), small.weights());
  EXPECT_LE(exported.difference, 1e-6);
  const auto& nodes = exported.model.graph.nodes;
  EXPECT_TRUE(
      std::any_of(nodes.begin(), nodes.end(), [](const OnnxNode& one) { return one.name == "fc.MatMul"; }));
  const auto& weights = exported.model.graph.weights;
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(),
                          [](const OnnxTensor& one) { return one.name == "fc.bias"; }));
}

TEST(Export, TwoExportsAreEqual) {
  const Small small;
  const OnnxGraph a = export_function(small.layer(), small.weights()).model.graph,
                  b = export_function(small.layer(), small.weights()).model.graph;
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].name, b.nodes[i].name);
    EXPECT_EQ(a.nodes[i].inputs, b.nodes[i].inputs);
  }
}

// A wrong sign, an axis off by one and a product without its transposition are found by the interpreter.
TEST(Export, MistakesInTheTableAreFound) {
  const Small small;
  const auto exported_with = [&](const std::string& operation, Entry wrong) {
    Entries table = entries();
    table[operation] = wrong;
    return error_of([&] { export_function(small.layer(), small.weights(), {.entries = &table}); });
  };
  const std::string sign = exported_with("aten::sub", [](Call& call) {
    call.result(call.to.add("Add", {call.tensor("self"), call.tensor("other")}));
  });
  EXPECT_NE(sign.find("the file's output 'y' differs"), std::string::npos) << sign;
  const std::string axis = exported_with("aten::sum", [](Call& call) {
    call.result(
        call.to.add("ReduceSum", {call.tensor("self"), call.to.integers({1})}, {{"keepdims", int64_t{1}}}));
  });
  EXPECT_NE(axis.find("cannot be computed"), std::string::npos) << axis;
  const std::string transposed = exported_with("aten::linear", [](Call& call) {
    const torch::Tensor weight = call.constant("weight").reshape({4, 6});
    call.result(call.to.add("Add", {call.to.add("MatMul", {call.tensor("input"), call.to.constant(weight)}),
                                    call.tensor("bias")}));
  });
  EXPECT_NE(transposed.find("differs"), std::string::npos) << transposed;
}

TEST(Export, OperationsWithoutAFormAreNamed) {
  const Small small;
  const std::string message = error_of([&] {
    export_function(
        small.function([&](const torch::Tensor& x) { return torch::lgamma(torch::linear(x, small.weight)); }),
        small.weights());
  });
  EXPECT_NE(message.find("operation aten::lgamma of 'fc' with result [2, 3, 6] has no form in the file"),
            std::string::npos)
      << message;
}

TEST(Export, ValuesReadOnTheHostAreRefused) {
  const Small small;
  const std::string message = error_of([&] {
    export_function(small.function([](const torch::Tensor& x) { return x * x.max().item<double>(); }),
                    small.weights());
  });
  EXPECT_NE(message.find("differs for inputs of another size or content"), std::string::npos) << message;
}

// One trace has a whole number where the other has none.
TEST(Export, NumbersOfAnotherTypeAreRefused) {
  const Small small;
  const std::string message = error_of([&] {
    export_function(small.function([](const torch::Tensor& x) {
      return torch::div(x, x.size(0) == 2 ? torch::Scalar(2) : torch::Scalar(2.5));
    }),
                    {});
  });
  EXPECT_NE(message.find("a constant of aten::div differs"), std::string::npos) << message;
}

TEST(Export, FreeDimensionsAreComputedFromTheInput) {
  const Small small;
  const Function function = small.function([](const torch::Tensor& x) {
    return x.reshape({x.size(0) * x.size(1), 4}).reshape({x.size(0), 3, 4}) *
           torch::arange(x.size(0)).reshape({-1, 1, 1});
  });
  const OnnxGraph graph = export_function(function, {}).model.graph;
  const torch::Tensor x = torch::randn({7, 3, 4});
  EXPECT_TRUE(torch::allclose(interpret(graph, {x}).at(0), x * torch::arange(7).reshape({-1, 1, 1})));
}

// A function of x [batch, tokens, 6], whose tokens are free.
Function of_tokens(std::function<torch::Tensor(const torch::Tensor&)> run) {
  const auto example = [](const std::vector<int64_t>& shape, uint64_t draw) {
    torch::manual_seed(draw);
    return torch::randn(shape);
  };
  return {.inputs = {{"x", {2, 9, 6}, example}},
          .outputs = {"y"},
          .run = [run](const auto& in) { return std::vector<torch::Tensor>{run(in[0])}; },
          .free = {{"batch", {{0, 0}}, {3}}, {"tokens", {{0, 1}}, {12, 20}}}};
}

int64_t count(const OnnxGraph& graph, const std::string& operation) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const OnnxNode& one) { return one.operation == operation; });
}

// The definition of a scan, at a length that no trace had.
void expect_scan(const std::function<torch::Tensor(const torch::Tensor&)>& scan,
                 const std::function<torch::Tensor(const torch::Tensor&)>& definition) {
  for (const int64_t opset : {17, 20}) {
    const OnnxGraph graph = export_function(of_tokens(scan), {}, {.opset = opset}).model.graph;
    EXPECT_EQ(count(graph, "Scan"), 1);
    EXPECT_LT(graph.nodes.size(), 40);  // rounds over tokens would be many more
    EXPECT_EQ(graph.outputs[0].shape,
              (std::vector<OnnxDimension>{{.name = "batch"}, {.name = "tokens"}, {.size = 6}}));
    const torch::Tensor x = torch::randn({1, 70, 6});
    EXPECT_TRUE(torch::allclose(interpret(graph, {x}).at(0), definition(x), 1e-4, 1e-5));
  }
}

TEST(Export, SelectiveScansAreOneNodeForAnyLength) {
  torch::manual_seed(3);
  const torch::Tensor a = -torch::rand({6, 4}), d = torch::randn({6}), bias = torch::randn({6}),
                      b = torch::randn({6, 4}), c = torch::randn({6, 4});
  for (const bool reverse : {false, true}) {
    const auto inputs = [=](const torch::Tensor& x) {
      return ops::SelectiveScanInputs{.u = x,
                                      .delta = x.sin(),
                                      .a = a,
                                      .b = x.matmul(b),
                                      .c = x.matmul(c),
                                      .d = reverse ? torch::Tensor() : d,
                                      .z = reverse ? torch::Tensor() : x.cos(),
                                      .delta_bias = reverse ? torch::Tensor() : bias,
                                      .reverse = reverse};
    };
    expect_scan([=](const torch::Tensor& x) { return ops::selective_scan(inputs(x)).y; },
                [=](const torch::Tensor& x) { return ops::selective_scan_unfused(inputs(x)).y; });
  }
}

TEST(Export, BidirectionalWkvIsOneNodeForAnyLength) {
  torch::manual_seed(3);
  const torch::Tensor w = torch::rand({6}) - 0.1, u = torch::randn({6});
  expect_scan([=](const torch::Tensor& x) { return ops::bi_wkv(w, u, 3 * x, x.cos()); },
              [=](const torch::Tensor& x) { return ops::bi_wkv_unfused(w, u, 3 * x, x.cos()); });
}

// Sizes of an output are free if the traces differ in them, wherever they are.
TEST(Export, FreeAxesOfOutputsAreThoseThatDiffer) {
  const auto shape_of = [](std::function<torch::Tensor(const torch::Tensor&)> run) {
    return export_function(of_tokens(run), {}).model.graph.outputs.at(0).shape;
  };
  using Shape = std::vector<OnnxDimension>;
  EXPECT_EQ(shape_of([](const torch::Tensor& x) { return x.sum(0).unsqueeze(1); }),
            (Shape{{.name = "tokens"}, {.size = 1}, {.size = 6}}));
  EXPECT_EQ(shape_of([](const torch::Tensor& x) {
              return x.slice(1, 2).permute({2, 1, 0});
            }),
            (Shape{{.size = 6}, {.name = "y_1"}, {.name = "batch"}}));
  EXPECT_EQ(shape_of([](const torch::Tensor& x) { return x.mean(1); }),
            (Shape{{.name = "batch"}, {.size = 6}}));
}

Function rounded_layer(const Small& small, double scale, int zero_point) {
  return small.function([=](const torch::Tensor& x) {
    const torch::Tensor steps = torch::full({6}, scale), zeros = torch::zeros({6}, torch::kInt32);
    const torch::Tensor weight =
        at::fake_quantize_per_channel_affine((small.weight * scale * 30).t(), steps, zeros, 1, -128, 127);
    const torch::Tensor in = at::fake_quantize_per_tensor_affine(
        x, torch::full({1}, 0.02), torch::full({1}, zero_point, torch::kInt32), -128, 127);
    return in.matmul(weight) + small.bias * scale;
  });
}

// In float16, a scale of 1e-6 would be off by a twentieth.
TEST(Export, ScalesStayInFloatWithHalf) {
  const Small small;
  const Exported exported = export_function(rounded_layer(small, 1e-6, 0), {}, {.half = true});
  EXPECT_LE(exported.difference, 2e-3);
  std::map<std::string, OnnxType> types;
  for (const OnnxTensor& weight : exported.model.graph.weights) types[weight.name] = weight.type;
  EXPECT_EQ(count(exported.model.graph, "DequantizeLinear"), 2);
  for (const OnnxNode& node : exported.model.graph.nodes)
    if (node.operation == "DequantizeLinear") {
      EXPECT_EQ(types.at(node.inputs[1]), OnnxType::f32);
    }
}

TEST(Export, ZeroPointsAreRefused) {
  const Small small;
  EXPECT_NO_THROW(export_function(rounded_layer(small, 0.01, 0), {}));
  const std::string message = error_of([&] { export_function(rounded_layer(small, 0.01, 3), {}); });
  EXPECT_NE(message.find("operation aten::fake_quantize_per_tensor_affine"), std::string::npos) << message;
  EXPECT_NE(message.find("has a zero point other than 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera::onnx
