#include "cli/base/paired_images.h"

#include <iostream>

#include "cli/base/common.h"
#include "core/error.h"

namespace tessera::cli {

void add_paired_options(Arguments& command, PairedOptions& options) {
  command
      .add("-w,--weights,--pretrained", options.weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("--tokenizer", options.tokenizer,
              "the tokeniser's file, of other programs' weights that have none beside them");
  command.add("--batch-size,--batch", options.batch, "images at a time").show_default().range(1, 4096);
  command.flag("--raw", options.raw, "checkpoints: the raw weights instead of their moving average");
  add_compute_options(command, options.device, options.precision, options.threads);
}

PairedModel::PairedModel(const PairedOptions& options)
    : ImageModel({.weights = options.weights,
                  .how = {.raw = options.raw, .tokenizer = options.tokenizer},
                  .device = options.device,
                  .precision = options.precision,
                  .threads = options.threads,
                  .batch = options.batch}) {
  if (!options.tokenizer.empty() && info().ours)
    fail_usage("--tokenizer: '", file(), "' holds its own, which it was trained with");
}

torch::Tensor PairedModel::with_precision(const std::function<torch::Tensor()>& compute) const {
  const tasks::AutocastScope scope = autocast();
  return compute().to(torch::kCPU, torch::kFloat32);
}

void tell_cut(const tasks::CutTexts& cut, bool strict) {
  if (cut.count == 0) return;
  if (strict) fail_usage(cut.line(), " (--strict)");
  std::cerr << cut.line() << "; what is over is not read\n";
}

void add_beam_options(Arguments& command, tasks::CaptionBeams& beams) {
  command
      .add("--beams", beams.beams,
           "of captions: texts that are followed at a time; 1 = the best token each time")
      .show_default()
      .range(1, 64);
  command
      .add("--beam-groups", beams.groups, "groups of beams that search on their own, as OpenCLIP's CoCa does")
      .show_default()
      .range(1, 64);
  command.flag("--raw-scores", beams.raw_scores,
               "compare beams by sums of scores, as OpenCLIP's CoCa does, not of log probabilities");
}

void check_beams(const tasks::CaptionBeams& beams) {
  if (beams.beams % beams.groups != 0)
    fail_usage("--beam-groups = ", beams.groups, ", must divide --beams = ", beams.beams);
  if (beams.raw_scores && beams.beams == 1) fail_usage("--raw-scores compares beams: give --beams");
}

}  // namespace tessera::cli
