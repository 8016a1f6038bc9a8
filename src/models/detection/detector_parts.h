// The two halves of a detector; see detector.h.
#pragma once

#include "models/detection/detector.h"
#include "nn/linear.h"

namespace tessera::models {

// Returns the sum of |x| - beta / 2 where |x| > beta, else x^2 / (2 beta); beta 0 is L1.
torch::Tensor smooth_l1_sum(const torch::Tensor& got, const torch::Tensor& want, double beta);
torch::Tensor index_tensor(const std::vector<int64_t>& numbers, const torch::Device& device);

// Sampled positives and negatives: at most batch * positives positives, the rest negatives.
struct Sampled {
  std::vector<int64_t> positives, negatives;
};
Sampled sample(const std::vector<int64_t>& truth, int64_t batch, double positives, int64_t image,
               const std::string& purpose, const Chooser& choose);

class Detector::Rpn final : public torch::nn::Module {
 public:
  Rpn(const DetectorOptions& options, int64_t width, std::vector<int64_t> strides);

  struct Output {
    std::vector<torch::Tensor> anchors, logits, deltas;  // per level: [n, 4], [batch, n], [batch, n, 4]
  };
  Output forward(const std::vector<torch::Tensor>& maps, Extent padded, DetectorTrace* trace);
  NamedLosses losses(const Output& output, const std::vector<Extent>& images,
                     const std::vector<DetectionTarget>& targets, const Chooser& choose,
                     DetectorTrace* trace) const;
  AnchorMatches matches(Extent padded, Extent image, const torch::Tensor& truths) const;
  // Returns the proposals of each image, best first, without gradients.
  std::vector<torch::Tensor> proposals(const Output& output, const std::vector<Extent>& images,
                                       DetectorTrace* trace) const;
  int64_t macs(Extent image) const;

 private:
  // Returns the anchors of a level, [n, 4] on the host.
  torch::Tensor anchors_of(int64_t level, Extent grid, Extent padded, torch::ScalarType type) const;
  Matches match(const torch::Tensor& anchors, const torch::Tensor& truths, Extent image) const;

  const DetectorOptions& options_;
  std::vector<int64_t> strides_;
  std::vector<NormedConv> convs_;
  NormedConv objectness_{nullptr}, deltas_{nullptr};
};

class Detector::RoiHeads final : public torch::nn::Module {
 public:
  RoiHeads(const DetectorOptions& options, int64_t width, std::vector<int64_t> strides);

  NamedLosses losses(const std::vector<torch::Tensor>& maps, const std::vector<Extent>& images,
                     std::vector<torch::Tensor> proposals, const std::vector<DetectionTarget>& targets,
                     const Chooser& choose, DetectorTrace* trace);
  std::vector<Detections> detect(const std::vector<torch::Tensor>& maps, const std::vector<Extent>& images,
                                 std::vector<torch::Tensor> proposals, DetectorTrace* trace);
  void add_masks(const std::vector<torch::Tensor>& maps, std::vector<Detections>& found);
  int64_t macs() const;

 private:
  struct BoxHead {
    std::vector<NormedConv> convs;
    std::vector<nn::Linear> fcs;
    nn::Linear scores{nullptr}, deltas{nullptr};
  };
  struct MaskHead {
    std::vector<NormedConv> convs;
    nn::DoublingConvolution up{nullptr};
    NormedConv predictor{nullptr};
  };
  // The boxes of an image that train one stage.
  struct Assigned {
    torch::Tensor boxes;           // [n, 4]
    std::vector<int64_t> labels;   // classes_ = background
    std::vector<int64_t> matched;  // ground truth; 0 for background
    std::vector<bool> added;       // true for a ground truth that was added to the proposals
    int64_t positives = 0;
  };
  struct Predicted {
    torch::Tensor logits, deltas;
  };

  void build_box_head(torch::nn::Module& owner, torch::nn::Module& predictor, int64_t width);
  void build_mask_head(int64_t width, torch::nn::Module& owner);
  torch::Tensor pool(const std::vector<torch::Tensor>& maps, const std::vector<torch::Tensor>& boxes,
                     int64_t side, int64_t sampling) const;
  Predicted run_stage(size_t stage, const std::vector<torch::Tensor>& maps,
                      const std::vector<torch::Tensor>& boxes);
  torch::Tensor run_masks(MaskHead& head, const torch::Tensor& pooled);
  Assigned assign(size_t stage, const torch::Tensor& boxes, const DetectionTarget& target, int64_t image,
                  const Chooser& choose) const;
  // Returns the boxes of the next stage, without gradients.
  std::vector<torch::Tensor> refine(size_t stage, const Predicted& predicted,
                                    const std::vector<torch::Tensor>& boxes,
                                    const std::vector<Extent>& images) const;
  void add_box_losses(NamedLosses& losses, size_t stage, const Predicted& predicted,
                      const std::vector<Assigned>& assigned,
                      const std::vector<DetectionTarget>& targets) const;
  torch::Tensor mask_losses(size_t head, const std::vector<torch::Tensor>& maps,
                            const std::vector<Assigned>& assigned,
                            const std::vector<DetectionTarget>& targets, DetectorTrace* trace);
  Detections select(const torch::Tensor& scores, const torch::Tensor& boxes, Extent image) const;
  int64_t first_class() const { return options_.background_first ? 1 : 0; }
  bool is_cascade() const { return options_.box.stages.size() > 1; }
  std::string name_of(const char* loss, size_t stage) const;

  const DetectorOptions& options_;
  std::vector<int64_t> strides_;
  std::vector<BoxHead> box_heads_;
  std::vector<MaskHead> mask_heads_;
};

}  // namespace tessera::models
