// `tessera predict IMAGES… --weights FILE`: classify images with a weights file.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/predict.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/json.h"
#include "open/device.h"
#include "open/open_task.h"
#include "tasks/base/validation_pass.h"

namespace tessera::cli {
namespace {

struct PredictOptions : ComputeOptions {
  std::string weights;
  std::vector<std::string> images;
  answer::PredictOptions predict;
  int64_t batch = 16;
  std::string key;
  bool json = false, csv = false, raw = false;
  std::string model, class_names;
  double crop = 0;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("images", images, {.argument = "IMAGES", .required = true}, "images or folders of images");
    predict.visit(v);
    v("json", json, "one JSON object for each image");
    v("csv", csv, "one line for each image and rank");
    v("crop", crop, between(0.01, 1), "test-crop ratio (default: from the weights)");
    visit_class_names(v, class_names);
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    ComputeOptions::visit(v);
  }
};

class PredictionPrinter {
 public:
  PredictionPrinter(const PredictOptions& options, int64_t images)
      : options_(options), single_(images == 1) {}

  void print(const std::string& file, const tasks::Prediction& prediction) {
    if (options_.json) return print_json(file, prediction);
    if (options_.csv) return print_csv(file, prediction);
    if (!single_) std::cout << one_line(file) << "\n";
    for (const tasks::PredictionLine& line : prediction) std::cout << one_line(line.words) << "\n";
  }

 private:
  static void print_json(const std::string& file, const tasks::Prediction& prediction) {
    std::cout << json_text({{"file", file}, {"predictions", answer::json_of(prediction)}}) << "\n";
  }

  // Prints control characters of a path as they are, except on a terminal.
  static void print_path(const std::string& file) {
    if (isatty(STDOUT_FILENO))
      std::cout << csv_path(file);
    else
      std::ostream(unfiltered(std::cout << std::flush)) << csv_path(file) << std::flush;
  }

  void print_csv(const std::string& file, const tasks::Prediction& prediction) {
    if (!headed_ && !prediction.empty()) {
      std::cout << "file,rank";
      for (const auto& [name, value] : prediction.front().values) std::cout << "," << name;
      std::cout << "\n";
      headed_ = true;
    }
    for (size_t rank = 0; rank < prediction.size(); ++rank) {
      print_path(file);
      std::cout << "," << rank + 1;
      for (const auto& [name, value] : prediction[rank].values)
        std::cout << ","
                  << (value.is_double()   ? fixed(value.as_double(), 6)
                      : value.is_string() ? csv_field(value.as_string())
                                          : toml_text(value));
      std::cout << "\n";
    }
  }

  const PredictOptions& options_;
  bool single_, headed_ = false;
};

void predict(const PredictOptions& options) {
  if (options.json && options.csv) fail_usage("--json and --csv: choose one");
  if (options.predict.top < 1) fail_usage("--top is ", options.predict.top, ", must be at least 1");
  const data::ImageFiles images = given_images(options.images);
  ImageModelRequest request{
      .weights = options.weights,
      .how = {.model = options.model, .key = options.key, .raw = options.raw, .crop = options.crop},
      .compute = options,
      .batch = options.batch};
  if (!options.class_names.empty()) request.how.class_names = data::read_class_names(options.class_names);
  const ImageModel model(request);
  const torch::InferenceMode inference;
  PredictionPrinter printer(options, images.size());
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const std::vector<tasks::Prediction> predictions =
        answer::predictions_of(model, batch.images, options.predict.top);
    for (int64_t i = 0; i < batch.size(); ++i) {
      if (!batch.readable(i)) continue;
      const std::string& name = images.name(batch.first + i);
      if (!tasks::gives_numbers(predictions[static_cast<size_t>(i)]))
        fail(model.file(), ": the model's output for '", name,
             "' is not finite: its training went astray, or the file is damaged");
      printer.print(name, predictions[static_cast<size_t>(i)]);
    }
  });
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_predict(Arguments& command, Action& action) {
  action = with_options<PredictOptions>(command, predict);
}

}  // namespace tessera::cli
