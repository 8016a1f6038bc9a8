// `tessera predict IMAGES… --weights FILE`: what a model says of images, with nothing but a weights file.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "data/base/class_names.h"
#include "io/files/json_value.h"
#include "tasks/base/soundness.h"

namespace tessera::cli {
namespace {

struct PredictOptions {
  std::string weights;
  std::vector<std::string> images;
  int64_t top = 5, batch = 16, threads = 0;
  bool json = false, csv = false, raw = false;
  std::string device = "auto", precision = "fp32", model, class_names;
  double crop = 0;
};

// What the weights cannot do: a task does not know their file.
[[noreturn]] void refuse(const ImageModel& model, const Error& error) {
  const tasks::TaskKind &first = tasks::default_task(),
                        &own = tasks::find_task(tasks::task_name(model.info().task));
  if (&own == &first || error.kind != ErrorKind::usage)
    throw Error(error.kind, model.file() + ": " + error.what());
  fail_usage("'", model.file(), "' was trained for task ", own.name,
             "; `tessera predict` needs weights of task ", first.name,
             own.command ? text(", `tessera ", own.command, "` takes these") : "");
}

std::vector<tasks::Prediction> predictions_of(const ImageModel& model, const torch::Tensor& images,
                                              int64_t most) {
  try {
    const tasks::AutocastScope autocast = model.autocast();
    return model.task().predict(model.moved(images), most);
  } catch (const Error& error) {
    refuse(model, error);
  }
}

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
    nlohmann::ordered_json line = {{"file", file}, {"predictions", nlohmann::ordered_json::array()}};
    for (const tasks::PredictionLine& one : prediction) {
      nlohmann::ordered_json values;
      for (const auto& [name, value] : one.values)
        values[name] = nlohmann::ordered_json::parse(train::json_text(value));
      line["predictions"].push_back(values);
    }
    std::cout << json_text(line) << "\n";
  }

  void print_csv(const std::string& file, const tasks::Prediction& prediction) {
    if (!headed_ && !prediction.empty()) {
      std::cout << "file,rank";
      for (const auto& [name, value] : prediction.front().values) std::cout << "," << name;
      std::cout << "\n";
      headed_ = true;
    }
    for (size_t rank = 0; rank < prediction.size(); ++rank) {
      std::cout << csv_field(file) << "," << rank + 1;
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
  if (options.top < 1) fail_usage("--top is ", options.top, ", must be at least 1");
  const data::ImageFiles images = given_images(options.images);
  ImageModelRequest request{.weights = options.weights,
                            .how = {.model = options.model, .raw = options.raw, .crop = options.crop},
                            .device = options.device,
                            .precision = options.precision,
                            .threads = options.threads,
                            .batch = options.batch};
  if (!options.class_names.empty()) request.how.class_names = data::read_class_names(options.class_names);
  const ImageModel model(request);
  const torch::InferenceMode inference;
  PredictionPrinter printer(options, images.size());
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const std::vector<tasks::Prediction> predictions = predictions_of(model, batch.images, options.top);
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
  auto options = std::make_shared<PredictOptions>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("IMAGES", options->images, "images, or folders of images").required();
  command.add("--top", options->top, "lines to show an image").show_default();
  command.flag("--json", options->json, "one JSON object an image");
  command.flag("--csv", options->csv, "one line an image and rank");
  command.add("--crop", options->crop, "test-crop ratio (default: as the weights say)").range(0.01, 1.0);
  add_class_names(command, options->class_names);
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.add("--batch-size,--batch", options->batch, "images at a time").show_default().range(1, 4096);
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { predict(*options); };
}

}  // namespace tessera::cli
