// The common part of SimMIM, MaskFeat and BEiT: images with mask tokens in place of patches, a head on the model's last map,
// and a loss over the masked patches. Each of the three draws its own masks and has its own targets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "models/base/patch_mask.h"
#include "nn/linear.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// The parameters in addition to the model's: mask_token, and the layers that a task registers.
class MaskedHead : public torch::nn::Module {
 public:
  explicit MaskedHead(int64_t token_width) {
    mask_token_ = register_parameter("mask_token", nn::zeros({token_width}));
  }
  const torch::Tensor& mask_token() const { return mask_token_; }
  // Initialises the mask token and, as PyTorch does, linear layers and convolutions.
  void initialise(uint64_t seed);

 private:
  torch::Tensor mask_token_;
};

class MaskedPatches : public Task {
 public:
  std::vector<Part> parts() const override { return {{"", backbone_}, {"", head_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::vector<ExportedPart> exported(int64_t side) override;
  int64_t macs(int64_t side) const override;
  std::vector<StreamSpec> streams() const override;
  StreamSpec validation() const override;
  // Adds the field "mask", i64 [rows * columns] of the first grid: 1 = masked.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override;
  // Masked patches.
  double weight(const Inputs& inputs) const override;
  bool weight_counts_samples() const override { return false; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override;
  bool repeats_its_calls() const override { return true; }
  std::vector<std::unique_ptr<Evaluator>> evaluators() override;
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

 protected:
  // `who` begins errors: "task simmim".
  MaskedPatches(const TaskSetup& setup, const std::string& who);
  // Registers the head, of a class derived from MaskedHead.
  void set_head(const TaskSetup& setup, std::shared_ptr<MaskedHead> head);
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t patch() const { return patch_; }
  models::MasksPatches& masker() const { return *masker_; }
  const models::ModelSpec& spec() const { return spec_; }
  models::PatchMask mask_of(const torch::Tensor& mask) const;

  // Returns 1 for the masked patches of the first grid, in row-major order.
  virtual std::vector<int64_t> draw_mask(RandomStream& random) const = 0;
  // Returns for each sample the sum of the masked patches' losses, [batch]; `mask` as in prepare().
  virtual torch::Tensor losses(const torch::Tensor& images, const torch::Tensor& mask,
                               const models::Context& context) = 0;
  virtual int64_t head_macs() const = 0;  // per image

 private:
  void add_masks(data::Batch& batch, const std::function<RandomStream(int64_t sample)>& stream_of) const;
  Findings evaluate(const EvaluateOptions& options);

  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::MasksPatches* masker_;
  int64_t patch_ = 0, rows_ = 0, columns_ = 0;
  std::shared_ptr<MaskedHead> head_;
};

// BEiT and MVP: rectangles of patches are masked, and a linear layer on the last map predicts a target of each.
class MaskedRectangles : public MaskedPatches {
 public:
  struct Settings {
    double ratio = 0.4;  // share of the patches that is masked
    int64_t least = 16;  // patches of the smallest rectangle

    template <class V>
    void visit(V& v) {
      v("mask_ratio", ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
        "share of the patches that is masked");
      v("mask_least", least, between(1, 1 << 20), "patches of the smallest masked rectangle");
    }
  };

 protected:
  MaskedRectangles(const TaskSetup& setup, const std::string& who, const Settings& settings);
  // Registers the layer as `name`, with `outputs` numbers for each patch.
  void set_layer(const TaskSetup& setup, const std::string& name, int64_t outputs);
  std::vector<int64_t> draw_mask(RandomStream& random) const final;
  // Returns the layer's outputs of the masked patches alone, [masked patches, outputs], in the order of the mask.
  torch::Tensor predicted(const torch::Tensor& images, const torch::Tensor& mask,
                          const models::Context& context);
  int64_t head_macs() const final { return masked_ * layer_->macs(); }

 private:
  Settings settings_;
  int64_t masked_ = 0;
  nn::Linear layer_{nullptr};
};

// Returns the places of a mask [batch, patches] of 0 and 1 that are 1, int64 [count], row after row; `count` is their number, which
// is not read from a device.
torch::Tensor masked_places(const torch::Tensor& mask, int64_t count);
// Adds up values [masked patches] by sample, [batch]; `places` are those of the mask.
torch::Tensor sums_by_sample(const torch::Tensor& values, const torch::Tensor& places,
                             const torch::Tensor& mask);

// A mask of rectangles (Bao et al. 2022, BEiT, algorithm 1): each covers at least `least` patches and has an aspect
// ratio of 0.3 to 1/0.3, until `count` patches of the grid are masked.
std::vector<int64_t> rectangle_mask(RandomStream& random, int64_t rows, int64_t columns, int64_t count,
                                    int64_t least);

}  // namespace tessera::tasks
