// `tessera segment IMAGES… --weights FILE -o OUT`: the class of every pixel, as an index PNG and laid over the image.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/pictures.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostPixels = int64_t{1} << 30;  // limit per image: windows are finished from top to bottom

struct SegmentOptions : ComputeOptions, answer::SegmentOptions {
  std::string weights, output;
  std::vector<std::string> images;
  bool overlay = false, json = false, raw = false;
  int64_t top = 5;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "weights of task segment: a file, a checkpoint or a run directory");
    v("images", images, {.argument = "IMAGES", .required = true},
      "images, folders of images, or - for standard input");
    v("output", output, {.names = "-o", .required = true, .writes = Writes::file},
      "NAME.png for one image, else a folder: for each image a PNG of class indices, with a palette");
    v("overlay", overlay, "also NAME_overlay.png: the image under its mask");
    v("json", json, "one JSON object for each image");
    v("top", top, between(1, 255), "classes to print for each image");
    answer::SegmentOptions::visit(v);
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    ComputeOptions::visit(v);
  }
};

struct Names {
  std::string mask, overlay;
};

// OUT is the mask of one image, or a folder for the masks of several.
Names names_of(const SegmentOptions& options, const std::string& image, bool file) {
  const std::string stem = file ? options.output.substr(0, options.output.size() - 4)
                                : (fs::path(options.output) / fs::path(image).stem()).string();
  return {file ? options.output : stem + ".png", stem + "_overlay.png"};
}

// Returns the names of all outputs, after checking that none replaces an image or another output.
std::vector<Names> checked_names(const SegmentOptions& options, const data::ImageFiles& images) {
  const bool file = names_output_file("--output", options.output, images.size(), {".png"});
  std::vector<Names> names;
  std::vector<OutputPlace> outputs;
  for (int64_t i = 0; i < images.size(); ++i) {
    names.push_back(names_of(options, images.name(i), file));
    outputs.push_back({names.back().mask, "--output", images.name(i)});
    if (options.overlay) outputs.push_back({names.back().overlay, "--output", images.name(i)});
  }
  check_output_places(images.paths(), outputs);
  return names;
}

void print(const SegmentOptions& options, const std::string& image, const Names& names, const Image& mask,
           const std::vector<std::string>& classes) {
  Json line = {{"file", image}, {"width", mask.width}, {"height", mask.height}, {"mask", names.mask}};
  if (options.overlay) line["overlay"] = names.overlay;
  line["classes"] = answer::class_counts(mask, classes);
  std::vector<std::string> words;
  for (const Json& one : line["classes"])
    if (std::ssize(words) < options.top)
      words.push_back(one_line(one["class"].get<std::string>()) + " " +
                      fixed(100 * one["share"].get<double>(), 1) + " %");
  if (options.json)
    std::cout << json_text(line) << "\n";
  else
    std::cout << one_line(image) << ": " << join(words, ", ") << " in " << one_line(names.mask) << "\n";
}

void segment(const SegmentOptions& options) {
  const data::ImageFiles images = given_images(options.images);
  const std::vector<Names> outputs = checked_names(options, images);
  require_described(options.weights, options.raw, "recipes/upernet/swin_tiny.toml");
  const ImageModel model({.weights = options.weights, .how = {.raw = options.raw}, .compute = options});
  const answer::Segmentation segmentation(model, "`tessera segment`");
  const tasks::SegmentInference how = segmentation.inference(options);
  const torch::InferenceMode inference;
  const int64_t broken =
      model.for_each_image(images, {.max_pixels = kMostPixels}, [&](int64_t index, const Image& picture) {
        const Names& names = outputs[static_cast<size_t>(index)];
        if (const fs::path folder = fs::path(names.mask).parent_path(); !folder.empty())
          fs::create_directories(folder);
        const Image mask = segmentation.mask(picture, how);
        write_file_atomic(names.mask, segmentation.png(mask));
        if (options.overlay)
          write_file_atomic(names.overlay,
                            encode_png(report::labelled_mask(picture, mask, segmentation.classes())));
        print(options, images.name(index), names, mask, segmentation.classes());
      });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_segment(Arguments& command, Action& action) {
  action = with_options<SegmentOptions>(command, segment);
}

}  // namespace tessera::cli
