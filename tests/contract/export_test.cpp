// Every registered size, in a tiny form, as a file of ONNX that gives the same numbers.
#include <gtest/gtest.h>

#include "core/core_testing.h"
#include "onnx/export.h"
#include "tasks/base/exported.h"
#include "tests/contract/tiny.h"

namespace tessera::models {
namespace {

class EverySizeExported : public testing::TestWithParam<Named> {};

TEST_P(EverySizeExported, GivesTheSameNumbers) {
  const ModelSpec spec = tiny_spec(GetParam());
  const auto model = build_classifier(spec, 1);
  model->backbone->eval();
  const torch::NoGradGuard no_gradients;
  torch::manual_seed(2);
  for (torch::Tensor& parameter : model->backbone->parameters())
    parameter.set_requires_grad(false).add_(torch::randn_like(parameter), 0.1);
  const int64_t side = tiny_side(spec);
  const tasks::ExportedPart part =
      tasks::exported_part("", {tasks::image_input(input_channels(spec.settings), side, side)}, {"logits"},
                           [&](const auto& in) { return std::vector<torch::Tensor>{model->forward(in[0])}; });
  for (const int64_t opset : {17, 20}) {
    const onnx::Exported exported =
        onnx::export_function(part.function, named_state(*model->backbone), {.opset = opset});
    EXPECT_LE(exported.difference, 1e-5);
    EXPECT_EQ(exported.model.graph.outputs.at(0).shape.at(0).name, "batch");
    const std::vector<torch::Tensor> five = part.function.examples({5}, 77);
    EXPECT_EQ(onnx::interpret(exported.model.graph, five).at(0).sizes(), (std::vector<int64_t>{5, 5}));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EverySizeExported, testing::ValuesIn(all_sizes()),
                         [](const testing::TestParamInfo<Named>& one) { return one.param.size->name; });

}  // namespace
}  // namespace tessera::models
