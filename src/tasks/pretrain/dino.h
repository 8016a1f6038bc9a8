// DINO (Caron et al. 2021, "Emerging properties in self-supervised vision transformers"): a student predicts the
// distribution of its own momentum teacher for another view of the image.
//
//   P_s(x) = softmax(g_s(x) / tau_s),  P_t(x) = softmax((g_t(x) - C) / tau_t)                              (eq. 1)
//   loss   = mean over the two global views x and all other views x' of  -P_t(x) log P_s(x')               (eq. 3)
//   theta_t <- lambda theta_t + (1 - lambda) theta_s, lambda from momentum_teacher to 1 by half a cosine
//   C <- m C + (1 - m) mean of g_t over the batch                                                           (eq. 4)
// g is a backbone and a head: an MLP, a bottleneck of length 1, and a linear layer under weight norm.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/linear.h"
#include "tasks/base/momentum_network.h"
#include "tasks/base/registry.h"
#include "tasks/base/whole_batch_norm.h"
#include "tasks/pretrain/image_views.h"

namespace tessera::tasks {

struct DinoConfig {
  int64_t out_dim = 65536, head_layers = 3, head_hidden = 2048, head_bottleneck = 256;
  bool head_batch_norm = false, norm_last_layer = true;
  int64_t freeze_last_layer = 1;
  double momentum_teacher = 0.996, center_momentum = 0.9;
  double student_temp = 0.1, warmup_teacher_temp = 0.04, teacher_temp = 0.04;
  int64_t warmup_teacher_temp_epochs = 0;
  int64_t local_crops = 8, local_size = 96;
  data::ViewAugment view_1{.scale = {0.4, 1}, .blur = 1},
      view_2{.scale = {0.4, 1}, .blur = 0.1, .solarize = 0.2}, view_local{.scale = {0.05, 0.4}, .blur = 0.5};

  template <class V>
  void visit(V& v) {
    v("out_dim", out_dim, between(2, 1 << 24), "outputs of the head");
    v("head_layers", head_layers, between(1, 16), "linear layers of its MLP");
    v("head_hidden", head_hidden, between(1, 1 << 20), "width inside the MLP");
    v("head_bottleneck", head_bottleneck, between(1, 1 << 20), "width of its result, of length 1");
    v("head_batch_norm", head_batch_norm, "batch norms in the MLP");
    v("norm_last_layer", norm_last_layer, "keep the rows of the last layer at length 1");
    v("freeze_last_layer", freeze_last_layer, at_least(0), "epochs before the last layer is trained");
    v("momentum_teacher", momentum_teacher, between(0, 1), "the teacher's first momentum, 1 at the end");
    v("center_momentum", center_momentum, between(0, 1), "momentum of the centre");
    v("student_temp", student_temp, above(0), "divisor of the student's outputs");
    v("warmup_teacher_temp", warmup_teacher_temp, above(0), "divisor of the teacher's in the first epoch");
    v("teacher_temp", teacher_temp, above(0), "the same after the warm-up");
    v("warmup_teacher_temp_epochs", warmup_teacher_temp_epochs, at_least(0), "epochs of the warm-up");
    v("local_crops", local_crops, between(0, 64), "small views, for the student alone");
    v("local_size", local_size, between(1, 16384), "their side in pixels");
    v("view_1", view_1, "augmentation of the first global view");
    v("view_2", view_2, "augmentation of the second global view");
    v("view_local", view_local, "augmentation of the small views");
  }
  int64_t views() const { return 2 + local_crops; }
};

// The projection head, with the published names: mlp.0 …, or mlp if it has one layer, and last_layer.
class DinoHead final : public torch::nn::Module {
 public:
  DinoHead(int64_t width, const DinoConfig& config);
  void initialise(uint64_t seed);
  // Maps rows [n, width] of this process, `count` over all processes, to [n, out_dim]. A `frozen` last layer gets no
  // gradient.
  torch::Tensor forward(torch::Tensor x, int64_t count, Collective& others, bool frozen = false);
  int64_t macs() const;  // per row

 private:
  std::vector<nn::Linear> layers_;
  std::vector<std::shared_ptr<WholeBatchNorm>> norms_;
  torch::Tensor weight_g_, weight_v_;  // [out_dim, 1], [out_dim, bottleneck]
};

// Returns the teacher's temperature in an epoch: evenly spaced over the warm-up, the last value reached within it.
double dino_temperature(const DinoConfig& config, int64_t epoch);
// Returns the loss of each sample, [batch], of outputs of all views, one after another: `student` [views * batch,
// out_dim], `teacher` [2 * batch, out_dim]. `centre`: [1, out_dim].
torch::Tensor dino_losses(const torch::Tensor& student, const torch::Tensor& teacher,
                          const torch::Tensor& centre, double student_temp, double teacher_temp);
// Returns the centre [1, out_dim] after outputs with this sum [out_dim].
torch::Tensor dino_centre(const torch::Tensor& centre, const torch::Tensor& sum, int64_t rows,
                          double momentum);

class Dino final : public Task {
 public:
  explicit Dino(const TaskSetup& setup);

  std::vector<Part> parts() const override;
  std::vector<BackbonePart> backbones() const override { return {{"", student_, spec_}}; }
  int64_t macs(int64_t side) const override;
  std::vector<StreamSpec> streams() const override { return {views_.training()}; }
  StreamSpec validation() const override { return views_.validation(2); }
  // Batch norms of the head read all samples of a step.
  bool whole_batch() const override { return config_.head_batch_norm; }
  void before_step(const models::TrainingStep& step) override;
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  void after_step(const models::TrainingStep& step) override;
  bool reads_steps() const override { return true; }
  std::string why_weights_stay_whole() const override { return "its teacher reads them between steps"; }
  std::vector<std::unique_ptr<Evaluator>> evaluators() override;
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

  // The outputs of one pass, views one after another, and the teacher's without a graph.
  struct Outputs {
    torch::Tensor student, teacher;
  };
  Outputs outputs(const StreamInputs& inputs, int64_t views, const models::Context& context,
                  Collective& others);

 private:
  Findings evaluate(const EvaluateOptions& options);
  int64_t epoch() const { return step_.steps_per_epoch > 0 ? step_.step / step_.steps_per_epoch : 0; }

  DinoConfig config_;
  models::ModelSpec spec_;
  std::shared_ptr<const data::Source> validation_;
  std::shared_ptr<models::Backbone> student_, teacher_;
  std::shared_ptr<DinoHead> head_, teacher_head_;
  std::unique_ptr<MomentumNetwork> momentum_;
  std::shared_ptr<torch::nn::Module> centre_part_;
  torch::Tensor centre_;  // its buffer "center"
  ImageViews views_;
  models::TrainingStep step_;
  // The step's sum of teacher outputs in this process, its rows in all processes, and their exchange.
  torch::Tensor seen_;
  int64_t seen_rows_ = 0;
  Collective* others_ = nullptr;
};

TaskKind dino_kind();

}  // namespace tessera::tasks
