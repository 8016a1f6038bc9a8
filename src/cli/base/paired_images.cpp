#include "cli/base/paired_images.h"

#include <iostream>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {

PairedModel::PairedModel(const PairedOptions& options)
    : ImageModel({.weights = options.weights,
                  .how = {.key = options.key, .raw = options.raw, .tokenizer = options.tokenizer},
                  .compute = options,
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

}  // namespace tessera::cli
