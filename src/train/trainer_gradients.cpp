// The gradients of a step: piece by piece, and in a pipeline with several pieces under way.
#include <algorithm>
#include <deque>

#include "core/error.h"
#include "nn/units.h"
#include "ops/inference.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// Adds a piece's means: `part` is its share of the loss weight, `share` its share of the samples.
void add_piece(StepMeans& means, const torch::Tensor& loss, double part,
               const std::vector<tasks::Term>& terms, double share) {
  const auto add = [](torch::Tensor& sum, const torch::Tensor& value, double factor) {
    const torch::Tensor scaled = factor == 1 ? value : value * factor;
    sum = sum.defined() ? sum + scaled : scaled;
  };
  add(means.loss, loss, part);
  means.terms.resize(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) add(means.terms[i], terms[i].sum / terms[i].weight, share);
}

}  // namespace

// Returns why steps are no graphs, if TESSERA_GPU=graphs; empty if they may be.
std::string Trainer::why_no_graphs() const {
  const auto& train = setup_.recipe.train;
  if (world_.size() > 1) return "several processes train";
  if (train.accumulate > 1) return text("train.accumulate is ", train.accumulate);
  if (train.checkpoint_activations) return "train.checkpoint_activations is on";
  if (loss_scale_.on()) return "fp16 scales the loss";
  return step_graphs_.objection();
}

// Computes the gradients by a graph, or by the calls that it would record. Returns none if steps are no graphs.
std::optional<StepMeans> Trainer::graphed_gradients(const tasks::Inputs& inputs) {
  if (!StepGraphs::on()) return {};
  std::optional<StepMeans> means;
  std::string why = why_no_graphs();
  if (const double weight = why.empty() ? task_.weight(inputs) : 0; weight > 0) {
    means = step_graphs_.run(inputs, weight, context_of(inputs));
    why = step_graphs_.refusal();
  }
  const std::string line = "steps have no graphs: " + why;
  if (!why.empty() && noted_.insert(line).second) note(line);
  return means;
}

// Computes piece by piece. The loss of a step is the sum over all pieces and processes divided by their total weight.
// Gradients are averaged over processes, so each multiplies its part by the number of those that share the batch.
StepMeans Trainer::compute_gradients(const tasks::Inputs& inputs) {
  if (const auto means = graphed_gradients(inputs)) return *means;
  const auto& train = setup_.recipe.train;
  const int64_t pieces = std::min(train.accumulate, inputs.size());
  const double own = task_.weight(inputs);
  double all = static_cast<double>(inputs.main().whole);
  if (!task_.weight_counts_samples()) {
    const torch::Tensor weight = torch::tensor({own}, torch::kFloat64);
    if (world_.size() > 1) world_.samples().sum(weight);
    all = weight.item<double>();
  }
  nn::UnitKeeper* const keeper = optimisation_.shards ? optimisation_.shards->units() : nullptr;
  nn::UnitRunner* const runner = pipeline_ ? static_cast<nn::UnitRunner*>(pipeline_.get()) : keeper;
  const nn::UnitScope units(runner);
  const nn::LayerDivisionScope layers(&layers_);
  ops::InferenceSettings settings = ops::inference_settings();
  if (keeper) settings.keep_packed = false;  // packed weights would outlive the weights
  const ops::InferenceScope inference(settings);
  StepMeans means;
  // A step with zero weight, such as one with masks without any class, has loss 0 and no gradient.
  means.loss_share = all > 0 ? own / all : 0;
  means.share = static_cast<double>(inputs.size()) / static_cast<double>(inputs.main().whole);
  const int64_t ahead = pipeline_ ? pipeline_->ahead() : 0;
  std::deque<torch::Tensor> losses;  // of pieces without their backward pass
  int64_t done = 0;
  const auto backward = [&] {
    piece_backward(losses.front(), ++done == pieces);
    losses.pop_front();
  };
  for (int64_t i = 0; i < pieces; ++i) {
    const tasks::Inputs piece = pieces == 1 ? inputs : inputs.piece(i, pieces);
    const double weight = pieces == 1 ? own : task_.weight(piece);
    const double part = own > 0 ? weight / own : 0;
    const double factor = part * means.loss_share * static_cast<double>(world_.samples().size());
    const tasks::Loss loss = piece_loss(piece);
    if (!loss.sum.defined()) {  // another process of the pipeline has it
      losses.emplace_back();
    } else {
      const torch::Tensor mean = weight > 0 ? loss.sum / weight : loss.sum;
      losses.push_back(factor == 1 ? mean : mean * factor);
      add_piece(means, mean.detach(), part, loss.terms,
                static_cast<double>(piece.size()) / static_cast<double>(inputs.size()));
    }
    if (std::ssize(losses) > ahead) backward();
    if (i == 0 && train.noise_scale) measure_piece(factor * loss_scale_.scale(), piece.size());
  }
  while (!losses.empty()) backward();
  if (pipeline_) share_means(means);
  return means;
}

models::Context Trainer::context_of(const tasks::Inputs& piece) const {
  return {
      .seed = setup_.seed(), .step = static_cast<uint64_t>(state_.step), .first_sample = piece.main().first};
}

// Returns the loss of a piece; undefined where another process of a pipeline has it.
tasks::Loss Trainer::piece_loss(const tasks::Inputs& piece) {
  tasks::Loss loss;
  const auto compute = [&] {
    const tasks::AutocastScope autocast(setup_.compute.device, setup_.compute.precision);
    loss = task_.loss(piece, context_of(piece), *collective_);
  };
  if (pipeline_)
    pipeline_->forward(compute);
  else
    compute();
  return loss;
}

void Trainer::piece_backward(const torch::Tensor& loss, bool last) {
  if (optimisation_.shards)
    optimisation_.shards->begin(last);
  else if (last)
    mean_->prepare(loss);
  const torch::Tensor scaled = loss.defined() && loss_scale_.on() ? loss * loss_scale_.scale() : loss;
  if (pipeline_)
    pipeline_->backward(scaled);
  else
    scaled.backward();
  if (optimisation_.shards) optimisation_.shards->end();
}

// The last process of a pipeline has the loss and the task's terms.
void Trainer::share_means(StepMeans& means) const {
  pipeline_->end_step();
  std::vector<torch::Tensor> numbers;
  if (means.loss.defined()) {
    numbers.push_back(means.loss);
    numbers.insert(numbers.end(), means.terms.begin(), means.terms.end());
    for (torch::Tensor& number : numbers) number = number.detach().to(torch::kFloat64);
  }
  const int64_t count = 1 + std::ssize(task_.step_metrics());
  const torch::Tensor all =
      numbers.empty()
          ? torch::zeros({count}, torch::TensorOptions(torch::kFloat64).device(setup_.compute.device))
          : torch::stack(numbers);
  pipeline_->share_last(all);
  numbers = all.unbind();
  means.loss = numbers[0];
  means.terms.assign(numbers.begin() + 1, numbers.end());
}

// Stores the squared norm of the first piece's mean gradient; its graph had `factor` on the mean.
void Trainer::measure_piece(double factor, int64_t samples) {
  const double norm = norm_of_gradients() / factor;
  piece_square_ = norm * norm, piece_samples_ = static_cast<double>(samples);
}

// Compares it with the whole step's gradient. Each process has a first piece, and their squared norms are averaged.
void Trainer::measure_noise(int64_t samples) {
  const double norm = norm_of_gradients();
  const parallel::Axis& all = world_.samples();
  if (all.size() > 1) {
    const torch::Tensor sums = torch::tensor({piece_square_, piece_samples_}, torch::kFloat64);
    all.sum(sums);
    piece_square_ = sums[0].item<double>() / all.size(), piece_samples_ = sums[1].item<double>() / all.size();
  }
  noise_scale_.add(piece_square_, piece_samples_, norm * norm, static_cast<double>(samples));
}

double Trainer::norm_of_gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : optimisation_.trained)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradient_norm(gradients);
}

}  // namespace tessera::train
