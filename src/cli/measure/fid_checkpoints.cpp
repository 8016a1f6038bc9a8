#include "cli/measure/fid_checkpoints.h"

#include <filesystem>
#include <ostream>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/tensorboard.h"
#include "models/base/family.h"
#include "open/open_generator.h"
#include "open/ready_task.h"
#include "report/training_report.h"
#include "runs/checkpoint.h"
#include "runs/run_directory.h"
#include "tasks/generate/generator_fid.h"
#include "tasks/generate/generator_pictures.h"

namespace tessera::cli {

CheckpointFids measure_checkpoints(const std::string& run, const CheckpointDrawing& drawing, int64_t count,
                                   std::shared_ptr<const data::Source> reference, const std::string& weights,
                                   torch::Device device, tasks::Precision precision, std::ostream& lines) {
  const train::CheckpointStore store(run + "/checkpoints");
  const std::vector<int64_t> steps = store.steps();
  if (steps.empty())
    fail_usage("'", run,
               "' has no checkpoints: --checkpoints measures those of a run (train.keep_last keeps several)");
  CheckpointFids found;
  const auto open = [&found](const std::string& path, const tasks::ExtractorPlace& place) {
    auto extractor = train::open_extractor(path, {.place = place}).extractor;
    found.origin = extractor->origin(), found.width = extractor->width();
    return extractor;
  };
  tasks::GeneratorFid fid(open, {.classifier = weights, .samples = count, .reference = reference->size()},
                          reference);
  train::OpenedCodec codec;
  if (!drawing.vae.empty()) codec = train::open_codec(drawing.vae);
  const Interruptible stretch;
  const auto alive = [] { return !interrupted(); };
  for (const int64_t step : steps) {
    const train::OpenedTask opened = train::open_generator(store.directory_of(step), {.raw = drawing.raw});
    const tasks::Generator* generator = tasks::generator_of(*opened.task);
    if (!generator)
      fail_usage("'", run, "' draws patch by patch: --checkpoints measures runs of task diffuse");
    tasks::move(opened.task->parts(), device, train::parameter_type(precision));
    tasks::GeneratorPictures pictures(
        *generator, models::extent_of(*opened.info.model.settings.find("image_size"), "image_size"), codec,
        {.sampler = drawing.sampler, .cfg = drawing.cfg}, "'" + opened.file + "'");
    const double value = fid.measure(
        [&](int64_t first, int64_t images) { return pictures.draw(first, images, device, precision, alive); },
        device, alive);
    found.checkpoints.push_back({.step = step, .fid = value});
    found.drawn_by = pictures.describe();
    lines << "step " << step << "  FID  " << fixed(value, 4) << "  (" << count << " images by "
          << found.drawn_by << ")" << std::endl;
  }
  return found;
}

namespace {

constexpr const char *kHeading = "FID over the checkpoints", *kSection = "checkpoints";
constexpr uint64_t kMostPageBytes = uint64_t{1} << 30;

// All steps are equally long.
double epoch_of(const std::vector<train::HistoryPoint>& history, int64_t step) {
  if (history.empty() || history.back().step == 0) return 0;
  return history.back().epoch * static_cast<double>(step) / static_cast<double>(history.back().step);
}

report::ChartBlock chart_of(const CheckpointFids& found, int64_t count) {
  report::Curve curve{.name = "FID"};
  for (const CheckpointFid& one : found.checkpoints)
    curve.points.push_back({static_cast<double>(one.step), one.fid});
  return {.heading = kHeading,
          .note = text(count, " images by ", found.drawn_by, "; extractor ", found.origin.extractor,
                       ", protocol ", found.origin.protocol),
          .charts = {{.options = {.title = "FID", .x_label = "step"}, .curves = {curve}}}};
}

}  // namespace

std::string record_checkpoints(const std::string& run, const CheckpointFids& found, int64_t count) {
  train::RunDirectory directory(run);
  const std::string metrics = directory.file("metrics.jsonl"), page = directory.file("report.html");
  if (!file_exists(metrics)) return "";  // weights that were moved out of their run
  try {
    directory.claim();
  } catch (const Error& error) {
    return text("not written into the run: ", error.what());
  }
  const std::vector<train::HistoryPoint> history = train::read_history(run);
  const int64_t last = found.checkpoints.back().step;
  for (const std::string& note : directory.open_metrics(std::filesystem::file_size(metrics), last))
    return text("not written into the run: ", note);
  TensorBoardWriter events(directory.path(), last + 1);  // older events of the run are kept
  for (const CheckpointFid& one : found.checkpoints) {
    directory.write({.kind = "checkpoint",
                     .step = one.step,
                     .epoch = epoch_of(history, one.step),
                     .values = {{"fid", one.fid}, {"images", static_cast<double>(count)}}});
    events.scalar("checkpoint/fid", one.step, one.fid);
  }
  directory.sync_metrics();
  events.sync();
  std::string places = "metrics.jsonl and TensorBoard's events";
  if (file_exists(page)) {
    write_text_atomic(page, report::with_later_block(read_text(page, kMostPageBytes), kSection,
                                                     chart_of(found, count), kHeading));
    places = "metrics.jsonl, TensorBoard's events and report.html";
  }
  return text("written into ", places, " of '", run, "'");
}

}  // namespace tessera::cli
