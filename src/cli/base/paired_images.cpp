#include "cli/base/paired_images.h"

#include <algorithm>
#include <iostream>

#include "cli/base/common.h"
#include "cli/base/image_batches.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/transforms/transform.h"
#include "open/device.h"

namespace tessera::cli {

PairedModel::PairedModel(const PairedOptions& options) : options_(options) {
  workers_ = std::max(1, train::use_threads(options.threads) / 8);
  train::use_threads_beside(workers_, options.threads);
  device_ = train::choose_device(options.device);
  precision_ = tasks::parse_precision(options.precision);
  train::OpenOptions how;
  how.raw = options.raw, how.tokenizer = options.tokenizer;
  opened_ = train::open_task(options.weights, how);
  if (!options.tokenizer.empty() && opened_.info.ours)
    fail_usage("--tokenizer: '", opened_.file, "' holds its own, which it was trained with");
  for (const std::string& note : opened_.notes) std::cerr << one_line(note) << "\n";
  tasks::move(opened_.task->parts(), device_, train::parameter_type(precision_));
}

tasks::PairedEmbedding& PairedModel::embedding(const std::string& command) const {
  if (auto* able = dynamic_cast<tasks::PairedEmbedding*>(opened_.task.get())) return *able;
  fail_usage("'", opened_.file, "' was trained for task ", tasks::task_name(opened_.info.task), "; ", command,
             " needs two towers, of images and of texts: task clip or coca");
}

tasks::Captioner& PairedModel::captioner(const std::string& command) const {
  if (auto* able = dynamic_cast<tasks::Captioner*>(opened_.task.get())) return *able;
  fail_usage("'", opened_.file, "' was trained for task ", tasks::task_name(opened_.info.task), "; ", command,
             " needs a model that writes texts: task coca or simvlm");
}

void PairedModel::run(
    const data::Source& images,
    const std::function<void(int64_t, const torch::Tensor&, const std::vector<std::string>&)>& each) const {
  const auto transform = data::make_eval_transform(opened_.info.preprocess);
  ImageBatches batches(images, *transform, batch_that_fits(options_.batch, opened_.info.preprocess.size),
                       workers_);
  while (const auto batch = batches.next()) {
    const tasks::AutocastScope autocast(device_, precision_);
    each(batch->first, batch->images.to(device_, train::parameter_type(precision_)), batch->errors);
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
  }
}

torch::Tensor PairedModel::with_precision(const std::function<torch::Tensor()>& compute) const {
  const tasks::AutocastScope autocast(device_, precision_);
  return compute().to(torch::kCPU, torch::kFloat32);
}

void tell_cut(const tasks::CutTexts& cut, bool strict) {
  if (cut.count == 0) return;
  if (strict) fail_usage(cut.line(), " (--strict)");
  std::cerr << cut.line() << "; what is over is not read\n";
}

void check_beams(const tasks::CaptionBeams& beams) {
  if (beams.beams % beams.groups != 0)
    fail_usage("--beam-groups = ", beams.groups, ", must divide --beams = ", beams.beams);
  if (beams.raw_scores && beams.beams == 1) fail_usage("--raw-scores compares beams: give --beams");
}

void fail_for_broken(const std::vector<std::string>& errors, int64_t images) {
  if (images == 1 && errors.size() == 1) fail(errors[0]);
  for (const std::string& error : errors) std::cerr << "tessera: " << one_line(error) << "\n";
  if (!errors.empty()) fail(errors.size(), " of ", counted(images, "image"), " could not be read");
}

}  // namespace tessera::cli
