// Training steps of one process as graphs of a GPU's calls (models/base/graphed.h): forward pass, loss and backward pass.
//
//   StepGraphs graphs(task, loss_of);
//   const StepMeans means = graphs.run(inputs, task.weight(inputs));   // and the parameters have their gradients
//
// The optimiser's call is no part of them: it is one kernel. Drop path computes all samples, with factors that are an input.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/graphed.h"
#include "nn/drop_path.h"
#include "runs/meter.h"
#include "tasks/base/task.h"

namespace tessera::train {

class StepGraphs {
 public:
  using LossOf = std::function<tasks::Loss(const tasks::Inputs& inputs)>;

  // `loss_of` computes the task's loss on its device. Both outlive the graphs.
  StepGraphs(const tasks::Task& task, LossOf loss_of);

  // Computes loss, terms and gradients of whole steps, each divided by `weight`, above 0; `context` is that of the loss. The parameters
  // have no gradients before; later steps overwrite these.
  StepMeans run(const tasks::Inputs& inputs, double weight, const models::Context& context = {});
  // Drops all graphs: the host has changed a value that it reads in a pass.
  void forget() { pass_.forget(); }
  // Returns why the last step that was not among the first of its shape had no graph; empty if it had one.
  const std::string& refusal() const { return pass_.refusal(); }

  // True if TESSERA_GPU=graphs and there are graphs.
  static bool on();
  // Returns why the task's steps cannot be graphs; empty if they can.
  std::string objection() const;

 private:
  using Tensors = models::GraphedPass::Tensors;
  Tensors compute(const tasks::Inputs& frame, const Tensors& given);

  const tasks::Task& task_;
  LossOf loss_of_;
  std::vector<std::shared_ptr<torch::nn::Module>> parts_;
  models::Context context_;                            // of this step
  std::vector<nn::DropPathFactors::Branch> branches_;  // of the latest step that was no graph
  models::GraphedPass pass_;
};

}  // namespace tessera::train
