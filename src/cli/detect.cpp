// `tessera detect IMAGES… --weights FILE`: the objects in images, as lines, as an image with them drawn, as COCO's JSON.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "cli/test_views.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "data/coco_file.h"
#include "data/draw_objects.h"
#include "data/image_files.h"
#include "io/file.h"
#include "io/image_write.h"
#include "tasks/object_tiles.h"
#include "train/device.h"
#include "train/open_task.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using tasks::FoundObject;

struct DetectOptions {
  std::string weights, overlay, results, scales;
  std::vector<std::string> images;
  double threshold = 0.5;
  int64_t tile = 0, threads = 0;
  bool json = false, raw = false, flip = false;
  std::string device = "auto", precision = "fp32";
};

class Printer {
 public:
  Printer(const DetectOptions& options, const tasks::ObjectFinder& finder, int64_t images)
      : options_(options), finder_(finder), single_(images == 1) {}

  void print(const std::string& file, const std::vector<FoundObject>& found) const {
    if (options_.json) return print_json(file, found);
    if (!single_) std::cout << one_line(file) << "\n";
    for (const FoundObject& o : found)
      std::cout << fixed(100 * o.score, 1) << " %  " << one_line(name(o)) << "  at " << fixed(o.left, 0)
                << "," << fixed(o.top, 0) << " to " << fixed(o.right, 0) << "," << fixed(o.bottom, 0) << "\n";
    std::cout << counted(std::ssize(found), "object") << "\n";
  }

 private:
  const std::string& name(const FoundObject& o) const {
    return finder_.object_classes()[static_cast<size_t>(o.label)];
  }
  void print_json(const std::string& file, const std::vector<FoundObject>& found) const {
    nlohmann::ordered_json line = {{"file", file}, {"objects", nlohmann::ordered_json::array()}};
    for (const FoundObject& o : found) {
      nlohmann::ordered_json one = {
          {"class", name(o)}, {"score", o.score}, {"box", {o.left, o.top, o.right, o.bottom}}};
      if (!o.mask.counts.empty())
        one["mask"] = {{"size", {o.mask.height, o.mask.width}}, {"counts", compress_runs(o.mask)}};
      line["objects"].push_back(one);
    }
    std::cout << json_text(line) << "\n";
  }
  const DetectOptions& options_;
  const tasks::ObjectFinder& finder_;
  bool single_;
};

// Where the drawn image of a file goes: the file that was named, or one of its name in the folder that was.
std::string overlay_path(const DetectOptions& options, const std::string& file, int64_t images) {
  if (images == 1 && is_image_name(options.overlay)) return options.overlay;
  return (fs::path(options.overlay) / (fs::path(file).stem().string() + ".png")).string();
}

void write_overlay(const Image& image, const std::vector<FoundObject>& found, const std::string& path) {
  std::vector<data::DrawnObject> drawn;
  for (const FoundObject& o : found)
    drawn.push_back({o.left, o.top, o.right, o.bottom, o.label, o.mask.counts.empty() ? nullptr : &o.mask});
  write_file_atomic(path, encode_image(data::draw_objects(image, drawn), path));
}

// COCO knows images by numbers: that of the file's name where it is one, else its place in the list.
int64_t image_number(const std::string& file, int64_t place) {
  const auto number = parse_int(fs::path(file).stem().string());
  return number.value_or(place + 1);
}

void detect(const DetectOptions& options) {
  train::use_threads(options.threads);
  const data::ImageFiles images(options.images);
  for (const std::string& note : images.notes()) std::cerr << one_line(note) << "\n";
  if (!options.overlay.empty() && images.size() > 1 && is_image_name(options.overlay))
    fail_usage("--overlay ", options.overlay, " is one file, there are ", images.size(),
               " images: give a folder");
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  const train::OpenedTask opened = train::open_task(options.weights, {.raw = options.raw});
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  auto* finder = dynamic_cast<tasks::ObjectFinder*>(opened.task.get());
  if (!finder)
    fail_usage("'", opened.file, "' was trained for task ", tasks::task_name(opened.info.task),
               "; `tessera detect` needs weights of task detect or detr");
  choose_views(*finder, options.scales, options.flip);
  tasks::move(opened.task->parts(), device, train::parameter_type(precision));
  if (!options.overlay.empty() && !(images.size() == 1 && is_image_name(options.overlay)))
    fs::create_directories(options.overlay);
  const Printer printer(options, *finder, images.size());
  std::vector<data::CocoResult> results;
  int64_t broken = 0;
  const Interruptible stretch;
  for (int64_t i = 0; i < images.size(); ++i) {
    const std::string& file = images.paths()[static_cast<size_t>(i)];
    Image image;
    try {
      image = data::decode_sample(images.read(i), {.apply_exif = opened.info.preprocess.apply_exif});
    } catch (const Error& error) {
      ++broken;
      std::cerr << "tessera: " << one_line(error.what()) << "\n";
      continue;
    }
    const std::vector<FoundObject> found =
        options.tile > 0 ? tasks::find_in_tiles(*finder, image, static_cast<int>(options.tile),
                                                options.threshold, device, precision)
                         : finder->find(image, options.threshold, device, precision);
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    printer.print(file, found);
    if (!options.overlay.empty()) write_overlay(image, found, overlay_path(options, file, images.size()));
    for (const FoundObject& o : found)
      results.push_back({.image = image_number(file, i),
                         .category = finder->class_number(o.label),
                         .score = o.score,
                         .box = {o.left, o.top, o.right - o.left, o.bottom - o.top},
                         .has_box = true,
                         .mask = o.mask});
  }
  if (!options.results.empty()) data::write_coco_results(options.results, results);
  if (broken > 0) fail(broken, " of ", counted(images.size(), "image"), " could not be read");
}

}  // namespace

void add_detect(Arguments& command, Action& action) {
  auto options = std::make_shared<DetectOptions>();
  command
      .add("-w,--weights", options->weights,
           "weights of task detect: a file, a checkpoint or a run directory")
      .required();
  command.add("IMAGES", options->images, "images, or folders of images").required();
  command.add("--threshold", options->threshold, "objects below this score are left out")
      .show_default()
      .range(0.0, 1.0);
  command.add("--tile", options->tile, "large images: find in overlapping tiles of this side in pixels")
      .range(64, 16384);
  command.add("--scales", options->scales,
              "factors on the usual size whose results are merged: 0.75,1,1.25 (default: the recipe's)");
  command.flag("--flip", options->flip, "each scale mirrored too");
  command.add("--overlay", options->overlay,
              "write the image with its objects drawn: a file, of several images a folder");
  command.add("--results", options->results, "write a file of results as COCO has them");
  command.flag("--json", options->json, "one JSON object an image");
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { detect(*options); };
}

}  // namespace tessera::cli
