// DETR's loss of a set (Carion et al. 2020, section 3.1): each object is given to one query, the cheapest way.
#pragma once

#include "ops/torch.h"

#include <vector>

namespace tessera::tasks {

// The objects of one image.
struct SetTargets {
  torch::Tensor labels;  // int64 [objects]
  torch::Tensor boxes;   // [objects, 4]: centre x, y, width, height as shares of the image
};

struct SetCosts {
  double label = 1, box = 5, overlap = 2;  // of matching, and of the loss
  double no_object = 0.1;                  // weight of the class "nothing"
};

// Which query takes which object, queries ascending; int64 [min(queries, objects)] each.
struct SetMatch {
  torch::Tensor queries, objects;
};

// Equation 1 with section A.2's costs: - p(class) + 5 |box - box'|_1 - 2 GIoU. logits [batch, queries, classes + 1],
// "nothing" last; boxes [batch, queries, 4] as the targets' are. One match an image, without gradients.
std::vector<SetMatch> match_sets(const torch::Tensor& logits, const torch::Tensor& boxes,
                                 const std::vector<SetTargets>& targets, const SetCosts& costs = {});

// Equation 2 in sums and what they are divided by: the loss is
//   label / label_weight + (costs.box box + costs.overlap overlap) / objects.
// box: L1 of matched pairs; overlap: 1 - GIoU; label: cross entropy with weights; label_weight: their sum.
struct SetLoss {
  torch::Tensor label, box, overlap;
  double label_weight = 0;
  int64_t objects = 0;       // matched or not: all that there are
  double label_error = 100;  // per cent of matched queries with another class; 100 where nothing is matched
  double cardinality_error = 0;  // mean over images of |queries that say something - objects|

  torch::Tensor mean_label() const { return label / label_weight; }
  torch::Tensor mean_box() const { return box / divisor(); }
  torch::Tensor mean_overlap() const { return overlap / divisor(); }
  double divisor() const { return objects > 1 ? static_cast<double>(objects) : 1; }
};
SetLoss set_loss(const torch::Tensor& logits, const torch::Tensor& boxes,
                 const std::vector<SetTargets>& targets, const std::vector<SetMatch>& matches,
                 const SetCosts& costs = {});

}  // namespace tessera::tasks
