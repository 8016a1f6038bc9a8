// Detection as set prediction (DETR, Carion et al. 2020) on any backbone: models/heads/detr.h on its last
// map, with the loss of tasks/dense/set_loss.h on the output of every decoder layer. No anchors, no
// suppression.
#pragma once

#include "models/heads/detr.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

struct DetrTaskConfig : models::DetrConfig {
  bool auxiliary = true, frozen_norms = true;
  double no_object = 0.1, label_cost = 1, box_cost = 5, overlap_cost = 2;
  std::vector<int64_t> shortest = {};
  int64_t longest = 0;
  std::vector<double> jitter = {};
  double flip = 0.5, score = 0.0;
  int64_t most = 100;

  template <class V>
  void visit(V& v) {
    models::DetrConfig::visit(v);
    v("auxiliary", auxiliary, "a loss for the output of every decoder layer, not only of the last");
    v("frozen_norms", frozen_norms,
      "batch norms of the backbone use the statistics that they came with (their weights: train.freeze)");
    v("no_object", no_object, between(0, 1), "weight of the class \"nothing\" in the cross entropy");
    v("label_cost", label_cost, at_least(0), "weight of the class in matching and loss");
    v("box_cost", box_cost, at_least(0), "weight of the L1 distance of boxes");
    v("overlap_cost", overlap_cost, at_least(0), "weight of generalised intersection over union");
    v("shortest", shortest, between(1, 16384),
      "sides that the short one is resized to, one is drawn; empty: the image fits");
    v("longest", longest, between(0, 16384), "the long side stays within it, with shortest");
    v("jitter", jitter, "large-scale jitter: factors from low to high; empty: none");
    v("flip", flip, between(0, 1), "probability of a horizontal flip");
    v("score", score, between(0, 1), "detections below it are left out");
    v("most", most, between(1, 10000), "detections of an image at most");
  }
  void check() const { models::DetrConfig::check("task"); }
};

TaskKind detr_kind();

}  // namespace tessera::tasks
