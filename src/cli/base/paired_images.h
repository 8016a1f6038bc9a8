// What commands on models of images and texts share: opening one, and embedding many images.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <string>
#include <vector>

#include "cli/base/common.h"
#include "data/base/source.h"
#include "open/open_task.h"
#include "tasks/base/paired.h"

namespace tessera::cli {

struct PairedOptions : ComputeOptions {
  std::string weights, tokenizer;
  int64_t batch = 64;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("tokenizer", tokenizer, "tokeniser file, for weights of other programs without one");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    ComputeOptions::visit(v);
  }
};

// A trained task on its device, ready to compute.
class PairedModel {
 public:
  explicit PairedModel(const PairedOptions& options);
  // Fails with what `command` needs where the weights cannot.
  tasks::PairedEmbedding& embedding(const std::string& command) const;
  tasks::Captioner& captioner(const std::string& command) const;

  // Calls `each` with the images of every batch, on the device, under its precision: the place of the first one, the
  // images, and why single ones could not be read ("" where they could).
  void run(const data::Source& images,
           const std::function<void(int64_t first, const torch::Tensor& images,
                                    const std::vector<std::string>& errors)>& each) const;
  // Computes under the model's precision.
  torch::Tensor with_precision(const std::function<torch::Tensor()>& compute) const;
  const train::OpenedTask& opened() const { return opened_; }

 private:
  PairedOptions options_;
  int workers_ = 1;
  torch::Device device_ = torch::kCPU;
  tasks::Precision precision_ = tasks::Precision::fp32;
  train::OpenedTask opened_;
};

// Says which texts are not read to their end; a usage error instead if `strict`.
void tell_cut(const tasks::CutTexts& cut, bool strict);
template <class V>
void visit_beams(V& v, tasks::CaptionBeams& beams) {
  v("beams", beams.beams, between(1, 64), "captions: beams of the search; 1 = greedy");
  v("beam_groups", beams.groups, between(1, 64), "independent groups of beams, for OpenCLIP's CoCa");
  v("raw_scores", beams.raw_scores,
    "rank beams by sums of scores instead of log probabilities, for OpenCLIP's CoCa");
}
// Usage errors: groups of different sizes, raw scores of one beam.
void check_beams(const tasks::CaptionBeams& beams);

// Names images that could not be read, then fails with their number; nothing where there are none.
void fail_for_broken(const std::vector<std::string>& errors, int64_t images);

}  // namespace tessera::cli
