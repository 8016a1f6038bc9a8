#include "tasks/pretrain/moco_v3.h"

#include "data/base/chosen_samples.h"
#include "nn/init.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kCompared = 1024;  // validation images that are compared with each other

torch::Tensor unit_rows(const torch::Tensor& x) {
  const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  return wide / torch::linalg_vector_norm(wide, 2, {1}, /*keepdim=*/true).clamp_min(1e-12);
}

// Freezes the embedding of patches by one convolution.
void freeze_patches(models::Backbone& backbone) {
  for (const auto& entry : backbone.named_parameters())
    if (entry.key() == "patch_embed.proj.weight" || entry.key() == "patch_embed.proj.bias")
      entry.value().set_requires_grad(false);
}

}  // namespace

MocoMlp::MocoMlp(const MocoMlpOptions& options) {
  int64_t in = options.in;
  for (int64_t i = 0; i < options.layers; ++i) {
    const bool last = i + 1 == options.layers;
    const int64_t out = last ? options.out : options.hidden;
    layers_.push_back(register_module(std::to_string(3 * i), nn::Linear(in, out, false)));
    if (!last || options.last_norm)
      norms_.push_back(
          register_module(std::to_string(3 * i + 1),
                          std::make_shared<WholeBatchNorm>(out, WholeBatchNorm::Options{.affine = !last})));
    in = out;
  }
}

void MocoMlp::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
  });
}

torch::Tensor MocoMlp::forward(torch::Tensor x, int64_t count, Collective& others) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(x);
    if (i < norms_.size()) x = norms_[i]->forward(x, count, others);
    if (i + 1 < layers_.size()) x = x.relu();
  }
  return x;
}

int64_t MocoMlp::macs() const {
  int64_t total = 0;
  for (const nn::Linear& layer : layers_) total += layer->macs();
  return total;
}

torch::Tensor moco_losses(const torch::Tensor& queries, const torch::Tensor& keys, int64_t first,
                          double temperature) {
  const torch::Tensor scores = unit_rows(queries).mm(unit_rows(keys).t()) / temperature;
  const torch::Tensor own = torch::arange(first, first + queries.size(0),
                                          torch::TensorOptions(torch::kInt64).device(queries.device()));
  return scores.log_softmax(1).gather(1, own.unsqueeze(1)).squeeze(1) * (-2 * temperature);
}

Moco::Moco(const TaskSetup& setup)
    : config_(read_task<MocoConfig>(setup.settings)),
      spec_(setup.model),
      validation_(setup.validation),
      base_(setup.build_backbone(spec_)),
      momentum_base_(setup.build_backbone(momentum_spec(spec_))),
      views_(setup, {{config_.view_1}, {config_.view_2}}, "task moco_v3", *base_) {
  const auto mlp = [&](const MocoMlpOptions& options, uint64_t seed) {
    return setup.build([&] {
      auto made = std::make_shared<MocoMlp>(options);
      if (setup.draws()) made->initialise(seed);
      return made;
    });
  };
  const MocoMlpOptions projector{.layers = config_.projector_layers,
                                 .in = base_->embed_width(),
                                 .hidden = config_.hidden,
                                 .out = config_.dim};
  projector_ = mlp(projector, setup.seed), momentum_projector_ = mlp(projector, setup.seed);
  predictor_ = mlp({.layers = config_.predictor_layers,
                    .in = config_.dim,
                    .hidden = config_.hidden,
                    .out = config_.dim,
                    .last_norm = config_.predictor_norm},
                   setup.seed + 1);
  momentum_ = std::make_unique<MomentumNetwork>(
      MomentumNetwork::Modules{{"", momentum_base_}, {"projector.", momentum_projector_}},
      MomentumNetwork::Modules{{"", base_}, {"projector.", projector_}});
  if (config_.stop_grad_conv1) freeze_patches(*base_);
}

std::vector<Part> Moco::parts() const {
  return {{"", base_},
          {"projector.", projector_},
          {"predictor.", predictor_},
          {"momentum_encoder.", momentum_->buffers()}};
}

int64_t Moco::macs(int64_t side) const {
  return 4 * (base_->macs(side, side) + projector_->macs()) + 2 * predictor_->macs();
}

void Moco::before_step(const models::TrainingStep& step) {
  momentum_base_->before_step(step);
  if (step.step == 0) momentum_->copy();  // the base may have pretrained weights
  momentum_->follow(config_.momentum_cos ? cosine_momentum(config_.momentum, step.step, step.steps)
                                         : config_.momentum);
}

Moco::Outputs Moco::outputs(const StreamInputs& inputs, const models::Context& context, Collective& others) {
  momentum_->take_mode();
  const auto query = [&](int64_t view) {
    const torch::Tensor features = base_->embed(inputs.at(view_field(view)), of_view(context, view, 2));
    return predictor_->forward(projector_->forward(features, inputs.whole, others), inputs.whole, others);
  };
  const auto key = [&](int64_t view) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor features =
        momentum_base_->embed(inputs.at(view_field(view)), of_view(context, view, 2));
    return momentum_projector_->forward(features, inputs.whole, others);
  };
  Outputs made;
  made.q1 = query(0), made.q2 = query(1), made.k1 = key(0), made.k2 = key(1);
  return made;
}

Loss Moco::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const StreamInputs& images = inputs.main();
  const Outputs made = outputs(images, context, others);
  const auto contrast = [&](const torch::Tensor& queries, const torch::Tensor& keys) {
    return moco_losses(queries, others.gather(keys, images.first, images.whole), images.first,
                       config_.temperature)
        .sum();
  };
  return {contrast(made.q1, made.k2) + contrast(made.q2, made.k1), {}};
}

std::vector<std::unique_ptr<Evaluator>> Moco::evaluators() {
  return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
}

// The loss among the first validation images, with views that depend only on their index. Later images are not decoded.
Findings Moco::evaluate(const EvaluateOptions& options) {
  StreamSpec compared = validation();
  compared.source = std::make_shared<data::FirstSamples>(validation_, kCompared);
  SampleRows rows(4 * config_.dim);
  FeatureHealth health(base_->embed_width());
  Findings out = evaluate_rows(options, compared, rows, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    const Outputs made = outputs(batch, {}, Collective::alone());
    health.add(loaded, base_->embed(batch.at("image")));
    return torch::cat({made.q1, made.k2, made.q2, made.k1}, 1);
  });
  const std::vector<torch::Tensor> all = rows.rows().chunk(4, 1);
  const torch::Tensor losses = moco_losses(all[0], all[1], 0, config_.temperature) +
                               moco_losses(all[2], all[3], 0, config_.temperature);
  out.metrics = {{main_metric(), losses.mean().item<double>()}};
  health.finish(options, validation_.get(), out);
  return out;
}

TaskKind moco_v3_kind() {
  return task_kind<Moco, MocoConfig>(
      "moco_v3", "contrast of views (MoCo v3): two views predict each other's momentum key",
      {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
