#include "tasks/base/exported.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include "core/error.h"
#include "models/heads/class_head.h"

namespace tessera::tasks {

onnx::FunctionInput image_input(int64_t channels, int64_t height, int64_t width) {
  const auto example = [](const std::vector<int64_t>& shape, uint64_t draw) {
    return torch::randn(shape, at::detail::createCPUGenerator(draw + 1));
  };
  return {"images", {2, channels, height, width}, example};
}

onnx::FunctionInput token_input(int64_t tokens, int64_t vocabulary, int64_t start, int64_t end) {
  const auto example = [=](const std::vector<int64_t>& shape, uint64_t draw) {
    const at::Generator generator = at::detail::createCPUGenerator(draw + 1);
    torch::Tensor ids =
        torch::randint(1, std::max<int64_t>(2, std::min(start, end)), shape, generator, torch::kInt64);
    ids.select(1, 0).fill_(start);
    for (int64_t row = 0; row < shape[0]; ++row) {
      const int64_t last = 2 + (row + static_cast<int64_t>(draw)) % std::max<int64_t>(1, shape[1] - 2);
      ids[row].slice(0, std::min(last, shape[1] - 1)).zero_();
      ids[row][std::min(last, shape[1] - 1)] = end;
    }
    return ids.clamp_max(vocabulary - 1);
  };
  return {"ids", {2, tokens}, example};
}

ExportedPart exported_part(const std::string& name, std::vector<onnx::FunctionInput> inputs,
                           std::vector<std::string> outputs,
                           std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> run) {
  ExportedPart part{
      .name = name,
      .function = {.inputs = std::move(inputs), .outputs = std::move(outputs), .run = std::move(run)}};
  onnx::Function::FreeAxis batch{.name = "batch", .places = {}, .other_sizes = {3}};
  for (size_t i = 0; i < part.function.inputs.size(); ++i) batch.places.push_back({i, 0});
  part.function.free = {batch};
  return part;
}

ExportedPart exported_features(const BackbonePart& backbone, int64_t side) {
  const auto model = backbone.model;
  return exported_part("", {image_input(models::input_channels(backbone.spec.settings), side, side)},
                       {"vector", "map"}, [model](const std::vector<torch::Tensor>& in) {
                         return std::vector<torch::Tensor>{
                             model->embed(in[0]), model->features(in[0], {model->block_count() - 1}).at(0)};
                       });
}

std::vector<ExportedPart> Task::exported(int64_t side) {
  const auto model = classifier();
  if (!model)
    fail_usage("this task has no computation that other programs could run: --features exports its backbone");
  const int64_t channels = models::input_channels(backbones().at(0).spec.settings);
  return {exported_part("", {image_input(channels, side, side)}, {"logits"}, [model](const auto& in) {
    return std::vector<torch::Tensor>{model->forward(in[0])};
  })};
}

}  // namespace tessera::tasks
