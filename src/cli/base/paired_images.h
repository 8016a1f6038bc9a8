// Shared by commands on models of images and texts: opens a model, and embeds many images.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <string>
#include <vector>

#include "answer/caption.h"
#include "cli/base/arguments.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "data/base/source.h"
#include "open/open_task.h"
#include "tasks/base/paired.h"

namespace tessera::cli {

struct PairedOptions : ComputeOptions {
  std::string weights, tokenizer;
  int64_t batch = 64;
  std::string key;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("tokenizer", tokenizer, "tokeniser file, for weights of other programs without one");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    ComputeOptions::visit(v);
  }
};

class PairedModel : public ImageModel {
 public:
  explicit PairedModel(const PairedOptions& options);
  // Computes in the model's precision; returns float32 on the CPU.
  torch::Tensor with_precision(const std::function<torch::Tensor()>& compute) const;
};

// Reports truncated texts; throws a usage error instead if `strict`.
void tell_cut(const tasks::CutTexts& cut, bool strict);
using answer::check_beams;
using answer::visit_beams;

}  // namespace tessera::cli
