// `tessera complete`: task darl generates images patch by patch, from scratch or from a given part.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/images/generate_output.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "open/device.h"
#include "open/open_task.h"
#include "report/grid.h"
#include "tasks/base/report_blocks.h"

namespace tessera::cli {
namespace {

constexpr int kCell = 96;  // minimum side of an image in the sheet, in pixels

struct CompleteOptions : ComputeOptions {
  std::string weights, out, folder, data;
  std::vector<std::string> images;
  int64_t count = 8, samples = 4, steps = 1000, seed = 0, batch = 64;
  double given = 0.5, temperature = 1;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "weights, a checkpoint or a run directory of task darl");
    v("images", images, {.argument = "IMAGES"},
      "images to complete, or folders of them; without IMAGES and --data images are drawn from nothing");
    v("data", data, "complete validation images of a data source, in the form of `tessera train --data`");
    v("output", out, {.names = "-o", .writes = Writes::file}, "a sheet of all images, .png, .jpg or .webp");
    v("folder", folder, {.writes = Writes::file}, "new folder for every drawn image as a PNG");
    v("count", count, {.range = between(1, 1000000), .names = "-n"},
      "most images to complete, or images to draw from nothing");
    v("samples", samples, between(1, 1000), "completions of each image");
    v("given", given, between(0, 1), "share of the patches to keep, the first in the model's order");
    v("steps", steps, between(1, 1000), "noise levels of a patch's reverse chain");
    v("temperature", temperature, between(0.01, 100),
      "weights that draw tokens: below 1 likely ones are drawn more often");
    v("seed", seed, between(0, 1000000000), "seed of the first drawn image; each has the next");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("batch_size", batch, between(1, 65536), "images drawn at a time");
    ComputeOptions::visit(v);
  }
};

// The images to complete, [images, 3, height, width], preprocessed; undefined if none are given.
struct Beginnings {
  torch::Tensor images = {};
  std::vector<std::string> names = {};
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

Beginnings read_beginnings(const CompleteOptions& options, const train::OpenedTask& opened) {
  Beginnings out;
  if (options.images.empty() && options.data.empty()) return out;
  std::unique_ptr<data::Source> source;
  if (options.data.empty())
    source = std::make_unique<data::ImageFiles>(options.images);
  else
    source = data::open_source({.path = options.data}, data::Split::validation);
  const auto transform = data::make_eval_transform(opened.info.preprocess);
  const std::vector<int64_t> shape = transform->fields().at(0).shape;
  std::vector<torch::Tensor> images;
  for (int64_t i = 0; i < std::min(options.count, source->size()); ++i) {
    RandomStream unused(0, "test");  // a test transform draws nothing
    torch::Tensor image = torch::empty(shape);
    const data::Slot slot{static_cast<std::byte*>(image.data_ptr()), nullptr};
    const data::RawSample sample = source->read(i);
    transform->apply(sample, unused, {&slot, 1});
    images.push_back(image);
    out.names.push_back(sample.name);
  }
  out.images = torch::stack(images);
  return out;
}

class Completions {
 public:
  Completions(const CompleteOptions& options, const train::OpenedTask& opened)
      : options_(options),
        preprocess_(opened.info.preprocess),
        drawer_(patch_drawer(opened, options.temperature)),
        beginnings_(read_beginnings(options, opened)) {
    const bool free = !beginnings_.images.defined();
    known_ =
        free ? 0 : static_cast<int64_t>(std::lround(options.given * static_cast<double>(drawer_.patches())));
    for (int64_t i = 0; i < (free ? options.count : beginnings_.images.size(0)); ++i)
      for (int64_t s = 0; s < (free ? 1 : options.samples); ++s) of_.push_back(i);
  }

  // Completes one image after another, each with all of its samples, in batches.
  void draw(torch::Device device, tasks::Precision precision) {
    const auto total = static_cast<int64_t>(of_.size());
    ProgressLine::Options bar;
    bar.label = "draw";
    bar.total = total * drawer_.patches();
    ProgressLine progress(std::cerr, bar);
    for (int64_t first = 0; first < total; first += options_.batch) {
      const int64_t count = std::min(options_.batch, total - first);
      std::vector<uint64_t> seeds;
      for (int64_t i = 0; i < count; ++i) seeds.push_back(static_cast<uint64_t>(options_.seed + first + i));
      tasks::DrawRequest request{.given = given(first, count),
                                 .known = known_,
                                 .steps = options_.steps,
                                 .temperature = options_.temperature,
                                 .seeds = seeds};
      request.progress = [&](int64_t done) {
        progress.update(first * drawer_.patches() + done * count, {});
        return !interrupted();
      };
      const torch::Tensor images = drawn_patches(drawer_, request, device, precision);
      for (int64_t i = 0; i < count; ++i) drawn_.push_back(tasks::picture_of(images[i], preprocess_));
    }
    progress.finish();
  }

  void write() const {
    if (!options_.folder.empty()) write_folder();
    if (options_.out.empty()) return;
    std::vector<report::Cell> cells;
    int64_t last = -1;
    for (size_t k = 0; k < of_.size(); ++k) {
      if (beginnings_.images.defined() && of_[k] != last) {
        const torch::Tensor image = beginnings_.images.slice(0, of_[k], of_[k] + 1);
        cells.push_back({tasks::picture_of(image[0], preprocess_), "image"});
        cells.push_back({tasks::picture_of(drawer_.known_part(image, known_)[0], preprocess_), "given"});
        last = of_[k];
      }
      cells.push_back({drawn_[k], text("seed ", options_.seed + static_cast<int64_t>(k))});
    }
    const int side = std::max(kCell, drawn_.front().width);
    const report::GridOptions layout{
        .columns = beginnings_.images.defined() ? static_cast<int>(options_.samples) + 2 : 0, .cell = side};
    write_file_atomic(options_.out, encode_image(report::image_grid(cells, layout), options_.out));
  }

  int64_t known() const { return known_; }
  int64_t patches() const { return drawer_.patches(); }
  int64_t count() const { return static_cast<int64_t>(drawn_.size()); }

 private:
  torch::Tensor given(int64_t first, int64_t count) const {
    const auto [height, width] = drawer_.image_size();
    if (!beginnings_.images.defined()) return torch::zeros({count, 3, height, width});
    const std::vector<int64_t> rows(of_.begin() + first, of_.begin() + first + count);
    return beginnings_.images.index_select(0, torch::tensor(rows, torch::kInt64));
  }

  // Writes to a temporary folder next to it and renames that at the end.
  void write_folder() const {
    namespace fs = std::filesystem;
    const fs::path part = fs::path(options_.folder).lexically_normal().string() + ".part";
    fs::remove_all(part);
    fs::create_directories(part);
    for (size_t k = 0; k < drawn_.size(); ++k) {
      const std::string number = std::to_string(k);
      const std::string name = std::string(6 - std::min<size_t>(6, number.size()), '0') + number + ".png";
      write_file_atomic((part / name).string(), encode_png(drawn_[k]));
    }
    std::error_code ignored;
    fs::remove(options_.folder, ignored);  // an empty one
    fs::rename(part, options_.folder);
  }

  const CompleteOptions& options_;
  data::Preprocess preprocess_;
  tasks::DrawsPatches& drawer_;
  Beginnings beginnings_;
  int64_t known_ = 0;
  std::vector<int64_t> of_;  // index of the given image for each result
  std::vector<Image> drawn_;
};

void complete(const CompleteOptions& options) {
  check_request(options);
  train::use_threads(options.threads);
  const train::OpenedTask opened = train::open_task(options.weights, {.raw = options.raw});
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  tasks::move(opened.task->parts(), device, train::parameter_type(precision));
  const torch::InferenceMode inference;
  const Interruptible stretch;
  Completions drawing(options, opened);
  drawing.draw(device, precision);
  drawing.write();
  std::cout << counted(drawing.count(), "image") << ", " << drawing.known() << " of " << drawing.patches()
            << " patches given, in " << (options.out.empty() ? options.folder : options.out) << "\n";
}

}  // namespace

void add_complete(Arguments& command, Action& action) {
  action = with_options<CompleteOptions>(command, complete);
}

}  // namespace tessera::cli
