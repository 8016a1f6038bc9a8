// `tessera segment IMAGES… --weights FILE -o OUT`: the class of every pixel, as index PNG and overlay.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/transforms/mask_labels.h"
#include "io/files/file.h"
#include "io/images/index_png.h"
#include "report/overlay_labels.h"
#include "tasks/dense/segment.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostPixels = int64_t{1} << 30;  // limit per image: windows are finished from top to bottom

struct SegmentOptions : ComputeOptions {
  std::string weights, output, scales;
  std::vector<std::string> images;
  bool overlay = false, json = false, whole = false, flip = false, raw = false;
  int64_t tile = 0, stride = 0, top = 5;

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
    v("tile", tile, between(1, 16384),
      "side of the windows in pixels; overlaps are blended, by default a quarter (default: from the weights' "
      "recipe)");
    v("stride", stride, between(1, 16384), "distance between windows in pixels");
    v("whole", whole, "the whole image at once, without windows");
    v("scales", scales, "average results at these factors of the image's size: 0.75,1,1.25");
    v("flip", flip, "also mirror each scale");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    ComputeOptions::visit(v);
  }
};

tasks::SegmentInference inference_of(const SegmentOptions& options, const tasks::Segmenter& segmenter) {
  tasks::SegmentInference how = segmenter.inference();
  if (options.whole && options.tile > 0) fail_usage("--whole and --tile: choose one");
  if (options.whole) how.slide = false;
  if (options.tile > 0) {
    how.slide = true;
    how.crop = options.tile, how.stride = std::max<int64_t>(1, options.tile * 3 / 4), how.fading = true;
    how.scale = {}, how.scales = {1}, how.flip = false;
  }
  if (options.stride > 0) how.stride = options.stride;
  choose_views(how, options.scales, options.flip);
  return how;
}

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

// Returns the classes of a mask by their number of pixels, the most frequent first.
std::vector<std::pair<int64_t, int64_t>> counts_of(const Image& mask) {
  std::vector<int64_t> pixels(256);
  for (const uint8_t value : mask.pixels) ++pixels[value];
  std::vector<std::pair<int64_t, int64_t>> counts;
  for (int64_t c = 0; c < 256; ++c)
    if (pixels[static_cast<size_t>(c)] > 0) counts.emplace_back(c, pixels[static_cast<size_t>(c)]);
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return counts;
}

void print(const SegmentOptions& options, const std::string& image, const Names& names, const Image& mask,
           const std::vector<std::string>& classes) {
  const auto total = static_cast<double>(mask.pixels.size());
  Json line = {{"file", image}, {"width", mask.width}, {"height", mask.height}, {"mask", names.mask}};
  if (options.overlay) line["overlay"] = names.overlay;
  line["classes"] = Json::array();
  std::vector<std::string> words;
  for (const auto& [index, pixels] : counts_of(mask)) {
    const std::string& name = classes[static_cast<size_t>(index)];
    const double share = static_cast<double>(pixels) / total;
    line["classes"].push_back({{"class", name}, {"index", index}, {"pixels", pixels}, {"share", share}});
    if (std::ssize(words) < options.top) words.push_back(one_line(name) + " " + fixed(100 * share, 1) + " %");
  }
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
  auto& segmenter = model.require<tasks::Segmenter>("`tessera segment`");
  const tasks::SegmentInference how = inference_of(options, segmenter);
  std::vector<std::array<uint8_t, 3>> palette;
  for (int64_t c = 0; c < std::ssize(segmenter.mask_classes()); ++c) palette.push_back(data::mask_colour(c));
  const torch::InferenceMode inference;
  const int64_t broken =
      model.for_each_image(images, {.max_pixels = kMostPixels}, [&](int64_t index, const Image& picture) {
        const Names& names = outputs[static_cast<size_t>(index)];
        if (const fs::path folder = fs::path(names.mask).parent_path(); !folder.empty())
          fs::create_directories(folder);
        const tasks::AutocastScope autocast = model.autocast();
        const Image mask = segmenter.segment(picture, how);
        write_file_atomic(names.mask, encode_index_png(mask, palette));
        if (options.overlay)
          write_file_atomic(names.overlay,
                            encode_png(report::labelled_mask(picture, mask, segmenter.mask_classes())));
        print(options, images.name(index), names, mask, segmenter.mask_classes());
      });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_segment(Arguments& command, Action& action) {
  action = with_options<SegmentOptions>(command, segment);
}

}  // namespace tessera::cli
