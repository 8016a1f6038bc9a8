// MoCo v3 (Chen, Xie & He 2021, "An empirical study of training self-supervised vision transformers"): two views of an
// image predict each other's key of a momentum encoder, against the keys of all other images of the batch.
//
//   q = predictor(projector(f(x))),  k = projector_m(f_m(x))
//   ctr(q, k) = 2 tau * cross entropy(q k_j / tau over all images j, the own image), q and k of length 1 (eq. 1)
//   loss = ctr(q_1, k_2) + ctr(q_2, k_1)
//   theta_m <- m theta_m + (1 - m) theta before the keys, m from `momentum` to 1 by half a cosine
// A ViT's patch embedding stays at its random first values, as published (section 4.2): stop_grad_conv1.
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

struct MocoConfig {
  int64_t dim = 256, hidden = 4096, projector_layers = 3, predictor_layers = 2;
  bool predictor_norm = true;
  double temperature = 0.2, momentum = 0.99;
  bool momentum_cos = true, stop_grad_conv1 = true;
  data::ViewAugment view_1{.blur = 1}, view_2{.blur = 0.1, .solarize = 0.2};

  template <class V>
  void visit(V& v) {
    v("dim", dim, between(1, 65536), "width of the space that views are compared in");
    v("hidden", hidden, between(1, 1 << 20), "width inside the MLPs");
    v("projector_layers", projector_layers, between(1, 16), "linear layers of the projector (ResNet: 2)");
    v("predictor_layers", predictor_layers, between(1, 16), "linear layers of the predictor");
    v("predictor_norm", predictor_norm, "a batch norm after the predictor (ResNet: none)");
    v("temperature", temperature, above(0), "divisor of the cosines");
    v("momentum", momentum, between(0, 1), "momentum of the encoder of keys");
    v("momentum_cos", momentum_cos, "raise the momentum to 1 by half a cosine, else constant");
    v("stop_grad_conv1", stop_grad_conv1, "leave a ViT's patch embedding at its random first values");
    v("view_1", view_1, "augmentation of the first view");
    v("view_2", view_2, "augmentation of the second view");
  }
};

// Linear layers without bias, each with a batch norm and ReLU; after the last one a batch norm without parameters, or
// nothing. Modules have the published names 0, 1, 3, 4, ….
struct MocoMlpOptions {
  int64_t layers = 3, in = 0, hidden = 0, out = 0;
  bool last_norm = true;
};
class MocoMlp final : public torch::nn::Module {
 public:
  explicit MocoMlp(const MocoMlpOptions& options);
  void initialise(uint64_t seed);
  // Maps rows [n, in] of this process, `count` over all processes.
  torch::Tensor forward(torch::Tensor x, int64_t count, Collective& others);
  int64_t macs() const;  // per row

 private:
  std::vector<nn::Linear> layers_;
  std::vector<std::shared_ptr<WholeBatchNorm>> norms_;  // one a layer, or none for the last
};

// Returns ctr(q, k) of each query, [rows]: `queries` [rows, dim], `keys` [images, dim] of all processes, the own key of
// row i is `first` + i.
torch::Tensor moco_losses(const torch::Tensor& queries, const torch::Tensor& keys, int64_t first,
                          double temperature);

class Moco final : public Task {
 public:
  explicit Moco(const TaskSetup& setup);

  std::vector<Part> parts() const override;
  std::vector<BackbonePart> backbones() const override { return {{"", base_, spec_}}; }
  int64_t macs(int64_t side) const override;
  std::vector<StreamSpec> streams() const override { return {views_.training()}; }
  StreamSpec validation() const override { return views_.validation(2); }
  bool whole_batch() const override { return true; }
  void before_step(const models::TrainingStep& step) override;
  std::string why_weights_stay_whole() const override {
    return "its second network reads them between steps";
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  // The momentum network changes in place between the steps.
  bool repeats_its_calls() const override { return true; }
  std::vector<std::unique_ptr<Evaluator>> evaluators() override;
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

  // Queries and keys of both views of this process' images; keys have no graph.
  struct Outputs {
    torch::Tensor q1, q2, k1, k2;
  };
  Outputs outputs(const StreamInputs& inputs, const models::Context& context, Collective& others);

 private:
  Findings evaluate(const EvaluateOptions& options);

  MocoConfig config_;
  models::ModelSpec spec_;
  std::shared_ptr<const data::Source> validation_;
  std::shared_ptr<models::Backbone> base_, momentum_base_;
  std::shared_ptr<MocoMlp> projector_, momentum_projector_, predictor_;
  std::unique_ptr<MomentumNetwork> momentum_;
  ImageViews views_;
};

TaskKind moco_v3_kind();

}  // namespace tessera::tasks
