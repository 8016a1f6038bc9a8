#include "train/step_graphs.h"

#include <bit>

#include "kernels/gpu/graphs.h"
#include "ops/gpu.h"

namespace tessera::train {
namespace {

// Returns all of the inputs but the tensors.
tasks::Inputs frame_of(const tasks::Inputs& inputs) {
  tasks::Inputs frame = inputs;
  for (tasks::StreamInputs& stream : frame.streams)
    for (tasks::FieldTensor& field : stream.fields) field.values.reset(), field.host.reset();
  return frame;
}

// Returns the sizes and places that a graph has as constants, and the branches of its factors.
std::vector<int64_t> numbers_of(const tasks::Inputs& inputs,
                                const std::vector<nn::DropPathFactors::Branch>& branches) {
  std::vector<int64_t> numbers;
  for (const auto& [layer, batch, rate] : branches)
    numbers.insert(numbers.end(), {layer, batch, std::bit_cast<int64_t>(rate)});
  for (const tasks::StreamInputs& stream : inputs.streams) {
    numbers.insert(numbers.end(), {stream.size, stream.first, stream.whole, std::ssize(stream.fields)});
    for (const tasks::FieldTensor& field : stream.fields) {
      numbers.push_back(std::ssize(field.offsets));
      numbers.insert(numbers.end(), field.offsets.begin(), field.offsets.end());
    }
  }
  return numbers;
}

}  // namespace

bool StepGraphs::on() { return kernels::gpu::graph_calls() != nullptr; }

std::string StepGraphs::objection() const {
  return task_.repeats_its_calls() ? "" : "the task's steps differ in their calls";
}

StepGraphs::StepGraphs(const tasks::Task& task, LossOf loss_of) : task_(task), loss_of_(std::move(loss_of)) {
  for (const tasks::Part& part : task.parts()) parts_.push_back(part.module);
}

// Runs a step with the tensors `given`: the weight, the factors of drop path, then the fields. Returns the loss's sum, then the terms'
// means.
StepGraphs::Tensors StepGraphs::compute(const tasks::Inputs& frame, const Tensors& given) {
  tasks::Inputs inputs = frame;
  const nn::DropPathFactors factors(branches_, given[1], context_);
  auto next = given.begin() + 2;
  for (tasks::StreamInputs& stream : inputs.streams)
    for (tasks::FieldTensor& field : stream.fields) field.values = *next++;
  const tasks::Loss loss = loss_of_(inputs);
  Tensors out = {loss.sum.detach()};
  for (const tasks::Term& term : loss.terms) out.push_back(term.sum / term.weight);
  // The gradient of the sum in that of sum / weight, to the last bit.
  loss.sum.backward(given[0].to(loss.sum.scalar_type()).reciprocal());
  return out;
}

StepMeans StepGraphs::run(const tasks::Inputs& inputs, double weight, const models::Context& context) {
  context_ = context;
  Tensors tensors(2);
  for (const tasks::StreamInputs& stream : inputs.streams)
    for (const tasks::FieldTensor& field : stream.fields) tensors.push_back(field.values);
  const torch::Device device = tensors.at(2).device();
  tensors[0] = torch::full({}, weight, torch::TensorOptions(torch::kFloat64).device(device));
  tensors[1] = torch::zeros({0}, device);
  if (!branches_.empty()) tensors[1] = ops::sent_to(device, nn::DropPathFactors::drawn(branches_, context));
  std::vector<torch::nn::Module*> modules;
  for (const auto& part : parts_) modules.push_back(part.get());
  const Tensors out = pass_.run_step(
      tensors, numbers_of(inputs, branches_), modules,
      [this, frame = frame_of(inputs)](const Tensors& given) { return compute(frame, given); });
  StepMeans means;
  means.loss = out[0] / weight;
  means.terms.assign(out.begin() + 1, out.end());
  return means;
}

}  // namespace tessera::train
