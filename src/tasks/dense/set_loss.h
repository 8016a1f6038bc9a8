// DETR's set loss (Carion et al. 2020, section 3.1): each object is assigned to one query, at minimal cost.
#pragma once

#include "ops/torch.h"

#include <vector>

namespace tessera::tasks {

// The objects of one image.
struct SetTargets {
  torch::Tensor labels;  // int64 [objects]
  torch::Tensor boxes;   // [objects, 4]: centre x, y, width, height, relative to the image
};

struct SetCosts {
  double label = 1, box = 5, overlap = 2;  // used in matching and in the loss
  double no_object = 0.1;                  // weight of the class "nothing"
};

// The matched queries and objects, queries ascending; int64 [min(queries, objects)] each.
struct SetMatch {
  torch::Tensor queries, objects;
};

// Equation 1 with the costs of section A.2: - p(class) + 5 |box - box'|_1 - 2 GIoU. logits [batch, queries,
// classes + 1], "nothing" last; boxes [batch, queries, 4] in the form of the targets. Returns one match per
// image, without gradients.
std::vector<SetMatch> match_sets(const torch::Tensor& logits, const torch::Tensor& boxes,
                                 const std::vector<SetTargets>& targets, const SetCosts& costs = {});

// Equation 2 as sums and their divisors: the loss is
//   label / label_weight + (costs.box box + costs.overlap overlap) / objects.
// box: L1 of matched pairs; overlap: 1 - GIoU; label: weighted cross entropy; label_weight: sum of its
// weights.
struct SetLoss {
  torch::Tensor label, box, overlap;
  double label_weight = 0;
  int64_t objects = 0;  // all objects, matched or not
  torch::Tensor
      label_error;  // [] float64: per cent of matched queries with a wrong class; 100 without matches
  torch::Tensor cardinality_error;  // [] float64: mean over images of |queries not "nothing" - objects|

  torch::Tensor mean_label() const { return label / label_weight; }
  torch::Tensor mean_box() const { return box / divisor(); }
  torch::Tensor mean_overlap() const { return overlap / divisor(); }
  double divisor() const { return objects > 1 ? static_cast<double>(objects) : 1; }
};
SetLoss set_loss(const torch::Tensor& logits, const torch::Tensor& boxes,
                 const std::vector<SetTargets>& targets, const std::vector<SetMatch>& matches,
                 const SetCosts& costs = {});

// Losses of masks and of independent binary classes.

// Focal loss (Lin et al. 2017, eq. 5) of each logit, same shape: -alpha_t (1 - p_t)^gamma log p_t. alpha
// weighs ones, 1 - alpha zeros; if negative, no weights. Targets in [0, 1].
torch::Tensor sigmoid_focal_loss(const torch::Tensor& logits, const torch::Tensor& targets, double alpha,
                                 double gamma);

// Dice loss (Milletari et al. 2016) of each row, [rows]: 1 - (2 sum p t + 1) / (sum p + sum t + 1), with p
// the sigmoid of the logits [rows, ...].
torch::Tensor dice_loss(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace tessera::tasks
