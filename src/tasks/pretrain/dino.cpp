#include "tasks/pretrain/dino.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

torch::Tensor at_least_float(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

std::vector<ImageView> views_of(const DinoConfig& config) {
  std::vector<ImageView> views = {{config.view_1}, {config.view_2}};
  for (int64_t i = 0; i < config.local_crops; ++i) views.push_back({config.view_local, config.local_size});
  return views;
}

}  // namespace

// --- the head

DinoHead::DinoHead(int64_t width, const DinoConfig& config) {
  const int64_t layers = config.head_layers;
  const auto mlp = layers > 1 ? register_module("mlp", std::make_shared<torch::nn::Module>()) : nullptr;
  int64_t in = width, place = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    const nn::Linear layer(in, last ? config.head_bottleneck : config.head_hidden, true);
    layers_.push_back(mlp ? mlp->register_module(std::to_string(place), layer)
                          : register_module("mlp", layer));
    if (!last && config.head_batch_norm)
      norms_.push_back(mlp->register_module(std::to_string(++place),
                                            std::make_shared<WholeBatchNorm>(config.head_hidden)));
    in = config.head_hidden, place += 2;  // GELU has a place too
  }
  const auto last_layer = register_module("last_layer", std::make_shared<torch::nn::Module>());
  weight_g_ = last_layer->register_parameter("weight_g", nn::ones({config.out_dim, 1}),
                                             /*requires_grad=*/!config.norm_last_layer);
  weight_v_ = last_layer->register_parameter("weight_v", nn::zeros({config.out_dim, config.head_bottleneck}));
}

void DinoHead::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "last_layer.weight_v") return fill.fan_in_uniform(parameter.size(1));
                   if (name.starts_with("mlp.") && parameter.dim() == 2) fill.truncated_normal(0.02);
                 });
}

torch::Tensor DinoHead::forward(torch::Tensor x, int64_t count, Collective& others, bool frozen) {
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    if (norms_.empty())
      x = layers_[i]->forward_gelu(x);
    else
      x = torch::gelu(norms_[i]->forward(layers_[i]->forward(x), count, others));
  }
  x = layers_.back()->forward(x);
  const auto unit = [](const torch::Tensor& rows, double eps) {
    return rows / torch::linalg_vector_norm(rows, 2, {1}, /*keepdim=*/true).clamp_min(eps);
  };
  const torch::Tensor g = frozen ? weight_g_.detach() : weight_g_,
                      v = frozen ? weight_v_.detach() : weight_v_;
  return torch::linear(unit(at_least_float(x), 1e-12), g * unit(v, 0));
}

int64_t DinoHead::macs() const {
  int64_t total = weight_v_.numel();
  for (const nn::Linear& layer : layers_) total += layer->macs();
  return total;
}

// --- the equations

double dino_temperature(const DinoConfig& config, int64_t epoch) {
  const int64_t warmup = config.warmup_teacher_temp_epochs;
  if (epoch >= warmup) return config.teacher_temp;
  if (warmup == 1) return config.warmup_teacher_temp;
  const double share = static_cast<double>(epoch) / static_cast<double>(warmup - 1);
  return config.warmup_teacher_temp + share * (config.teacher_temp - config.warmup_teacher_temp);
}

torch::Tensor dino_losses(const torch::Tensor& student, const torch::Tensor& teacher,
                          const torch::Tensor& centre, double student_temp, double teacher_temp) {
  const int64_t batch = teacher.size(0) / 2, views = student.size(0) / batch;
  const std::vector<torch::Tensor> targets =
      ((at_least_float(teacher).detach() - centre) / teacher_temp).softmax(1).chunk(2);
  torch::Tensor sum = torch::zeros({batch}, targets[0].options());
  for (int64_t view = 0; view < views; ++view) {
    const torch::Tensor log_p =
        (at_least_float(student.narrow(0, view * batch, batch)) / student_temp).log_softmax(1);
    for (int64_t target = 0; target < 2; ++target)
      if (target != view) sum = sum - (targets[static_cast<size_t>(target)] * log_p).sum(1);
  }
  return sum / static_cast<double>(2 * views - 2);
}

torch::Tensor dino_centre(const torch::Tensor& centre, const torch::Tensor& sum, int64_t rows,
                          double momentum) {
  return centre * momentum + sum.unsqueeze(0) / static_cast<double>(rows) * (1 - momentum);
}

// --- the task

Dino::Dino(const TaskSetup& setup)
    : config_(read_task<DinoConfig>(setup.settings)),
      spec_(setup.model),
      validation_(setup.validation),
      student_(setup.build_backbone(spec_)),
      teacher_(setup.build_backbone(momentum_spec(spec_))),
      views_(setup, views_of(config_), "task dino", *student_) {
  const auto head = [&] {
    auto made = std::make_shared<DinoHead>(student_->embed_width(), config_);
    if (setup.draws()) made->initialise(setup.seed);
    return made;
  };
  head_ = setup.build(head), teacher_head_ = setup.build(head);
  centre_part_ = std::make_shared<torch::nn::Module>();
  centre_ = centre_part_->register_buffer("center", setup.build([&] {
    return nn::zeros({1, config_.out_dim});
  }));
  momentum_ =
      std::make_unique<MomentumNetwork>(MomentumNetwork::Modules{{"", teacher_}, {"head.", teacher_head_}},
                                        MomentumNetwork::Modules{{"", student_}, {"head.", head_}});
}

std::vector<Part> Dino::parts() const {
  return {{"", student_}, {"head.", head_}, {"teacher.", momentum_->buffers()}, {"dino_loss.", centre_part_}};
}

int64_t Dino::macs(int64_t side) const {
  int64_t total = 4 * student_->macs(side, side) + (2 + config_.views()) * head_->macs();
  if (config_.local_crops > 0)
    total += config_.local_crops * student_->macs(config_.local_size, config_.local_size);
  return total;
}

void Dino::before_step(const models::TrainingStep& step) {
  step_ = step;
  if (step.step == 0) momentum_->copy();  // the student may have pretrained weights
  teacher_->before_step(step);
  seen_ = torch::Tensor(), seen_rows_ = 0;
}

Dino::Outputs Dino::outputs(const StreamInputs& inputs, int64_t views, const models::Context& context,
                            Collective& others) {
  momentum_->take_mode();
  std::vector<torch::Tensor> of_student, of_teacher;
  for (int64_t view = 0; view < views; ++view) {
    const models::Context own = of_view(context, view, views);
    of_student.push_back(student_->embed(inputs.at(view_field(view)), own));
  }
  const bool frozen = epoch() < config_.freeze_last_layer;
  const torch::Tensor student = head_->forward(torch::cat(of_student), views * inputs.whole, others, frozen);
  const torch::NoGradGuard no_grad;
  for (int64_t view = 0; view < 2; ++view)
    of_teacher.push_back(teacher_->embed(inputs.at(view_field(view)), of_view(context, view, views)));
  return {student, teacher_head_->forward(torch::cat(of_teacher), 2 * inputs.whole, others)};
}

Loss Dino::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const Outputs made = outputs(inputs.main(), config_.views(), context, others);
  others_ = &others;
  seen_ = seen_.defined() ? seen_ + made.teacher.sum(0) : made.teacher.sum(0);
  seen_rows_ = 2 * inputs.main().whole;
  return {dino_losses(made.student, made.teacher, centre_, config_.student_temp,
                      dino_temperature(config_, epoch()))
              .sum(),
          {}};
}

void Dino::after_step(const models::TrainingStep& step) {
  const torch::NoGradGuard no_grad;
  momentum_->follow(cosine_momentum(config_.momentum_teacher, step.step, step.steps));
  check(others_ && seen_.defined(), "task dino: a step without a loss");
  centre_.copy_(dino_centre(centre_, others_->sum(seen_), seen_rows_, config_.center_momentum));
}

std::vector<std::unique_ptr<Evaluator>> Dino::evaluators() {
  return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
}

// The loss between two views of validation images, which depend only on their index, at the last temperature; and the
// teacher's features.
Findings Dino::evaluate(const EvaluateOptions& options) {
  SampleRows losses(1);
  FeatureHealth health(teacher_->embed_width());
  Findings out = evaluate_rows(options, validation(), losses, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    const Outputs made = outputs(batch, 2, {}, Collective::alone());
    if (health.wants(loaded)) health.add(loaded, teacher_->embed(batch.at("image")));
    return dino_losses(made.student, made.teacher, centre_, config_.student_temp, config_.teacher_temp)
        .unsqueeze(1);
  });
  double sum = 0;
  for (const float loss : losses.column(0)) sum += static_cast<double>(loss);
  out.metrics = {{main_metric(), sum / static_cast<double>(out.samples)}};
  health.finish(options, validation_.get(), out);
  return out;
}

TaskKind dino_kind() {
  return task_kind<Dino, DinoConfig>("dino",
                                     "self-distillation (DINO): views predict a momentum teacher's outputs",
                                     {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
