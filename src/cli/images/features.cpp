// `tessera features IMAGES… --weights FILE -o OUT`: a backbone's features of images, for other programs.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer/features.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "cli/base/output_places.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/array_file.h"

namespace tessera::cli {
namespace {

constexpr size_t kMostNameBytes = 16384;

struct FeaturesOptions : ComputeOptions, answer::FeatureOptions {
  std::string weights, out, data, split = "validation", model;
  std::vector<std::string> images;
  int64_t size = 0, batch = 16;
  double crop = 0;
  std::string key;
  bool raw = false, json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("images", images, {.argument = "IMAGES"}, "images or folders of images; or --data");
    v("output", out, {.names = "-o", .required = true, .writes = Writes::file},
      "OUT.npy, OUT.npz or OUT.safetensors; the names go to OUT.txt");
    v("data", data, "data source, in the form of `tessera train --data`; its labels are written too");
    v("split", split, {.choices = {"validation", "train", "all"}},
      "split of the data source; all of a set without splits");
    FeatureOptions::visit(v);
    v("size", size, between(1, 8192), "input side in pixels (default: from the weights)");
    v("crop", crop, between(0.01, 1), "test-crop ratio (default: from the weights)");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, between(1, 4096), "images at a time");
    ComputeOptions::visit(v);
    visit_json(v, json);
  }
};

std::string names_file(const std::string& out) {
  return std::filesystem::path(out).replace_extension(".txt").string();
}

void check_request(const FeaturesOptions& options) {
  if (options.images.empty() == options.data.empty())
    fail_usage(options.images.empty() ? "no images: name files or folders, or a data source with --data"
                                      : "IMAGES and --data both name the images: give one");
  if (!ArrayFile::knows(options.out))
    fail_usage("'", options.out, "' must end in .npy, .npz or .safetensors");
  guard_output({.path = names_file(options.out), .option = "--output"});
}

// The images, and the paths of those that are files.
struct NamedImages {
  std::unique_ptr<data::Source> source;
  std::vector<std::string> paths = {};
};

NamedImages open_images(const FeaturesOptions& options) {
  if (options.data.empty()) {
    auto files = std::make_unique<data::ImageFiles>(given_images(options.images));
    std::vector<std::string> paths;
    for (int64_t i = 0; i < files->size(); ++i) paths.push_back(files->name(i));
    return {std::move(files), std::move(paths)};
  }
  data::SourceConfig config{.path = options.data};
  if (options.split == "all") config.val_share = 0;
  return {data::open_source(config,
                            options.split == "validation" ? data::Split::validation : data::Split::train)};
}

// Returns the classes of all samples if each has one and the file format stores them.
std::vector<int64_t> labels_of(const data::Source& source, const std::string& out) {
  const data::ClassLabels* classes = source.class_labels();
  std::vector<int64_t> labels;
  if (!classes || classes->multi_label() || !ArrayFile::holds_several(out)) return labels;
  for (int64_t i = 0; i < source.size(); ++i) labels.push_back(classes->label(i));
  return labels;
}

// Writes one name per line, in the order of the rows.
void write_names(AtomicFile& file, const NamedImages& images, const train::WalkedBatch& batch) {
  for (size_t i = 0; i < batch.names.size(); ++i) {
    const auto place = static_cast<size_t>(batch.first) + i;
    const std::string& name = images.paths.empty() ? batch.names[i] : images.paths[place];
    file.write(printable(name.empty() ? text("image ", place) : name, kMostNameBytes) + "\n");
  }
}

// Returns the shape of the features of `images` images.
std::vector<int64_t> shape_of(answer::Extractor& extractor, const data::Transform& transform,
                              int64_t images) {
  std::vector<int64_t> shape = transform.fields().at(0).shape;
  shape.insert(shape.begin(), 1);
  shape = extractor(torch::zeros(shape)).sizes().vec();
  shape[0] = images;
  return shape;
}

train::ImageWalk walk_of(const FeaturesOptions& options, const ImageModel& model, ProgressLine& progress) {
  train::ImageWalk walk = model.walk();
  walk.batch = options.batch;
  walk.broken = [&progress](const std::string& error) { progress.print("tessera: " + one_line(error)); };
  walk.progress = [&progress](int64_t done) { progress.update(done, {}); };
  walk.interruption = "interrupted: '" + options.out + "' is not written";
  return walk;
}

void print_written(const FeaturesOptions& options, const std::vector<int64_t>& shape, bool labelled,
                   const std::string& name, int64_t broken) {
  people(options.json) << "features " << c10::IntArrayRef(shape) << (labelled ? " and labels" : "") << " of "
                       << name << " in " << options.out << ", names in " << names_file(options.out) << "\n";
  print_outcome(options.json, {{"output", options.out},
                               {"names", names_file(options.out)},
                               {"shape", shape},
                               {"labels", labelled},
                               {"model", name},
                               {"unreadable", broken}});
}

void extract(const FeaturesOptions& options) {
  check_request(options);
  const NamedImages images = open_images(options);
  const data::Source& source = *images.source;
  const ImageModel model({.weights = options.weights,
                          .how = {.model = options.model,
                                  .key = options.key,
                                  .raw = options.raw,
                                  .size = options.size,
                                  .crop = options.crop},
                          .compute = options,
                          .batch = options.batch});
  const auto transform = data::make_eval_transform(model.info().preprocess);
  const torch::InferenceMode inference;
  answer::Extractor extractor(options, model);

  const std::vector<int64_t> shape = shape_of(extractor, *transform, source.size());
  const std::vector<int64_t> labels = labels_of(source, options.out);
  std::vector<ArraySpec> arrays = {{"features", DType::f32, shape}};
  if (!labels.empty()) arrays.push_back({"labels", DType::i64, {std::ssize(labels)}});
  AtomicFile names(names_file(options.out));
  ArrayFile out(options.out, arrays);

  ProgressLine progress(std::cerr, {.label = "features", .total = source.size()});
  const train::ImageWalk walk = walk_of(options, model, progress);
  const int64_t broken =
      train::for_each_batch(source, *transform, walk, [&](const train::WalkedBatch& batch) {
        torch::Tensor rows = extractor(batch.images);
        for (int64_t i = 0; i < batch.size(); ++i)
          if (!batch.readable(i)) rows[i].fill_(std::numeric_limits<float>::quiet_NaN());
        out.write({static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()});
        write_names(names, images, batch);
      });
  progress.finish();
  out.write(std::as_bytes(std::span(labels)));
  names.commit();
  out.commit();
  print_written(options, shape, !labels.empty(), model.info().model.name, broken);
  if (broken > 0)
    fail(broken, " of ", source.size(), " images could not be read: their rows in ", options.out, " are NaN");
}

}  // namespace

void add_features(Arguments& command, Action& action) {
  action = with_options<FeaturesOptions>(command, extract);
}

}  // namespace tessera::cli
