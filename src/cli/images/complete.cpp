// `tessera complete`: task darl generates images patch by patch, from scratch or from a given part.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer/complete.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "open/device.h"
#include "open/image_walk.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

constexpr int kCell = 96;  // minimum side of an image in the sheet, in pixels

struct CompleteOptions : ComputeOptions, answer::CompletionOptions {
  std::string weights, out, folder, data, key;
  std::vector<std::string> images;
  int64_t batch = 64;
  bool raw = false, json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "weights, a checkpoint or a run directory of task darl");
    v("images", images, {.argument = "IMAGES"},
      "images to complete, or folders of them; without IMAGES and --data images are drawn from nothing");
    v("data", data, "complete validation images of a data source, in the form of `tessera train --data`");
    v("output", out, {.names = "-o", .writes = Writes::file}, "a sheet of all images, .png, .jpg or .webp");
    v("folder", folder, {.writes = Writes::file}, "new folder for every drawn image as a PNG");
    answer::CompletionOptions::visit(v);
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("batch_size", batch, between(1, 65536), "images drawn at a time");
    ComputeOptions::visit(v);
    visit_json(v, json);
  }
};

void check_request(const CompleteOptions& options) {
  if (options.out.empty() && options.folder.empty())
    fail_usage("nothing to write: give -o SHEET.png, or --folder DIR for an image each");
  if (!options.out.empty() && !is_image_name(options.out))
    fail_usage("'", options.out, "' must end in .png, .jpg, .jpeg or .webp");
  if (!options.images.empty() && !options.data.empty())
    fail_usage("IMAGES and --data both name the images: give one");
  std::error_code ignored;
  if (!options.folder.empty() && std::filesystem::exists(options.folder, ignored) &&
      !std::filesystem::is_empty(options.folder, ignored))
    fail_usage("--folder ", options.folder, " exists and is not an empty folder");
}

// Returns the images to complete, [images, 3, height, width], preprocessed; undefined if all are drawn from nothing.
torch::Tensor read_beginnings(const CompleteOptions& options, const data::Preprocess& preprocess) {
  if (options.images.empty() && options.data.empty()) return {};
  std::unique_ptr<data::Source> source;
  if (options.data.empty())
    source = std::make_unique<data::ImageFiles>(options.images);
  else
    source = data::open_source({.path = options.data}, data::Split::validation);
  return train::prepared_images(*data::make_eval_transform(preprocess),
                                std::min(options.count, source->size()),
                                [&](int64_t index) { return source->read(index); });
}

void write_sheet(const CompleteOptions& options, const answer::Completions& completions,
                 const std::vector<Image>& drawn) {
  std::vector<report::Cell> cells;
  int64_t last = -1;
  for (int64_t k = 0; k < completions.count(); ++k) {
    if (const int64_t of = completions.beginning_of(k); !completions.from_nothing() && of != last) {
      cells.push_back({completions.whole(of), "image"});
      cells.push_back({completions.given_part(of), "given"});
      last = of;
    }
    cells.push_back({drawn[static_cast<size_t>(k)], text("seed ", options.seed + k)});
  }
  const report::GridOptions layout{
      .columns = completions.from_nothing() ? 0 : static_cast<int>(options.samples) + 2,
      .cell = std::max(kCell, drawn.front().width)};
  write_file_atomic(options.out, encode_image(report::image_grid(cells, layout), options.out));
}

// Writes a temporary folder next to it and renames it at the end.
void write_folder(const std::string& folder, const std::vector<Image>& drawn) {
  namespace fs = std::filesystem;
  const fs::path part = fs::path(folder).lexically_normal().string() + ".part";
  fs::remove_all(part);
  fs::create_directories(part);
  for (size_t k = 0; k < drawn.size(); ++k) {
    const std::string number = std::to_string(k);
    const std::string name = std::string(6 - std::min<size_t>(6, number.size()), '0') + number + ".png";
    write_file_atomic((part / name).string(), encode_png(drawn[k]));
  }
  std::error_code ignored;
  fs::remove(folder, ignored);  // an empty one
  fs::rename(part, folder);
}

void complete(const CompleteOptions& options) {
  check_request(options);
  train::use_threads(options.threads);
  const train::ReadyTask model(options.weights, {.key = options.key, .raw = options.raw}, options.device,
                               options.precision);
  for (const std::string& note : model.opened().notes) std::cerr << one_line(note) << "\n";
  const torch::InferenceMode inference;
  const Interruptible stretch;
  const answer::PatchDrawing drawing(model);
  drawing.check_temperature(options.temperature);
  const answer::Completions completions(drawing, options, read_beginnings(options, model.info().preprocess));
  ProgressLine progress(std::cerr, {.label = "draw", .total = completions.count() * drawing.patches()});
  const std::vector<Image> drawn = completions.draw(options.batch, [&](int64_t done) {
    progress.update(done, {});
    return !interrupted();
  });
  progress.finish();
  if (!options.folder.empty()) write_folder(options.folder, drawn);
  if (!options.out.empty()) write_sheet(options, completions, drawn);
  people(options.json) << counted(completions.count(), "image") << ", " << completions.known() << " of "
                       << drawing.patches() << " patches given, in "
                       << (options.out.empty() ? options.folder : options.out) << "\n";
  nlohmann::ordered_json outcome = {
      {"images", completions.count()}, {"patches", drawing.patches()}, {"given", completions.known()}};
  if (!options.out.empty()) outcome["output"] = options.out;
  if (!options.folder.empty()) outcome["folder"] = options.folder;
  print_outcome(options.json, outcome);
}

}  // namespace

void add_complete(Arguments& command, Action& action) {
  action = with_options<CompleteOptions>(command, complete);
}

}  // namespace tessera::cli
