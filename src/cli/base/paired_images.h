// What commands on models of images and texts share: opening one, and embedding many images.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "cli/base/image_model.h"
#include "tasks/base/paired.h"

namespace tessera::cli {

struct PairedOptions {
  std::string weights, tokenizer;
  int64_t batch = 64, threads = 0;
  std::string device = "auto", precision = "fp32";
  bool raw = false;
};
// --weights, --tokenizer, --batch-size, --raw and the compute options.
void add_paired_options(Arguments& command, PairedOptions& options);

class PairedModel : public ImageModel {
 public:
  explicit PairedModel(const PairedOptions& options);
  // Computes under the model's precision; returns float32 on the CPU.
  torch::Tensor with_precision(const std::function<torch::Tensor()>& compute) const;
};

// Says which texts are not read to their end; a usage error instead if `strict`.
void tell_cut(const tasks::CutTexts& cut, bool strict);
// --beams, --beam-groups and --raw-scores.
void add_beam_options(Arguments& command, tasks::CaptionBeams& beams);
// Usage errors: groups of different sizes, raw scores of one beam.
void check_beams(const tasks::CaptionBeams& beams);

}  // namespace tessera::cli
